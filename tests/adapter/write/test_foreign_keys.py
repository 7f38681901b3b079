"""Foreign keys between transactions: what refers is never left without the row it refers to."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment
from tests.effort import examples

CREATED = (
    "CREATE TABLE p (id int PRIMARY KEY, n int)",
    "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)",
    "CREATE TABLE plain (p int REFERENCES p ON DELETE CASCADE)",
    "INSERT INTO p SELECT g, 0 FROM generate_series(1, 9) g",
)
ORPHANS = (
    "SELECT count(*) FROM {} AS c WHERE p IS NOT NULL AND NOT EXISTS (SELECT FROM p WHERE id = c.p)"
)
SIZE = 5  # keys


def run(data_dir: Path, scenario: Callable[[TestEnvironment], Awaitable[None]]) -> None:
    async def created(env: TestEnvironment) -> None:
        await env.ran("0", *CREATED)
        await scenario(env)

    in_environment(data_dir, created)


def test_commit_after_the_referenced_row_was_deleted_fails(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "BEGIN", "INSERT INTO c VALUES (1, 1)")
        await env.ran("b", "DELETE FROM p WHERE id = 1")
        answer = await env.query("a", "COMMIT")
        assert answer.startswith(
            'ERROR 23503: insert or update on table "c" violates foreign key constraint "c_p_fkey"\n'
            'DETAIL: Key (p)=(1) is not present in table "p".'
        )

    run(tmp_path, scenario)


def test_commit_after_the_referenced_row_was_replaced_succeeds(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "BEGIN", "INSERT INTO c VALUES (1, 1)")
        await env.ran("b", "UPDATE p SET n = n + 1", "DELETE FROM p WHERE id = 1")
        await env.ran("b", "INSERT INTO p VALUES (1, 5)")
        assert await env.query("a", "COMMIT") == "COMMIT"

    run(tmp_path, scenario)


@pytest.mark.parametrize("table", ["c", "plain"])
def test_commit_of_a_delete_after_a_row_referred_to_it_fails(tmp_path: Path, table: str) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "BEGIN", "DELETE FROM p WHERE id = 1")
        await env.ran("b", f"INSERT INTO {table} (p) VALUES (1)" if table == "plain" else
                      "INSERT INTO c VALUES (1, 1)")  # fmt: skip
        assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")
        assert await env.query("b", ORPHANS.format(table)) == "0\nSELECT 1"

    run(tmp_path, scenario)


def test_delete_outside_a_block_runs_again_after_a_row_referred_to_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        inserts = env.query(
            "a", "INSERT INTO c SELECT g, 1 FROM generate_series(1, 3) g", alone=False
        )
        deletes = env.query("b", "DELETE FROM p WHERE id = 1", alone=False)
        inserted, deleted = await asyncio.gather(inserts, deletes)
        assert (inserted.startswith("ERROR 23503"), deleted.startswith("ERROR 23503")) in (
            (True, False),
            (False, True),
        )
        assert await env.query("a", ORPHANS.format("c")) == "0\nSELECT 1"

    run(tmp_path, scenario)


def test_write_planned_before_a_foreign_key_was_added_is_checked(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("0", "CREATE TABLE late (p int)")
        await env.ran("a", "BEGIN", "INSERT INTO late VALUES (77)")
        await env.ran("b", "ALTER TABLE late ADD FOREIGN KEY (p) REFERENCES p")
        assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")

    run(tmp_path, scenario)


def test_foreign_keys_hold_after_a_restart_and_a_rewrite(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("0", "ALTER TABLE p ADD COLUMN more int", "ALTER TABLE c ADD COLUMN more int")
        await env.ran("0", "INSERT INTO c VALUES (1, 1)")
        await env.reopen()
        assert (await env.query("0", "INSERT INTO c VALUES (2, 77)")).startswith("ERROR 23503")
        assert (await env.query("0", "DELETE FROM p WHERE id = 1")).startswith("ERROR 23503")
        await env.ran("0", "DELETE FROM p WHERE id > 1")

    run(tmp_path, scenario)


def test_tables_with_foreign_keys_change_after_a_restart(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.reopen()
        await env.ran("0", "ALTER TABLE c RENAME TO d", "DROP TABLE plain")
        await env.reopen()
        answer = await env.query("0", "INSERT INTO d VALUES (1, 10)")
        assert answer.startswith("ERROR 23503"), answer

    run(tmp_path, scenario)


def statement(choose: random.Random) -> str:
    key, other = choose.randrange(1, SIZE), choose.randrange(1, SIZE)
    return choose.choice(
        (
            f"INSERT INTO p VALUES ({key}, 0) ON CONFLICT DO NOTHING",
            f"DELETE FROM p WHERE id = {key}",
            f"UPDATE p SET id = {other} WHERE id = {key}",
            f"UPDATE p SET n = n + 1 WHERE id = {key}",
            f"INSERT INTO c VALUES ({choose.randrange(40)}, {key}) ON CONFLICT DO NOTHING",
            f"INSERT INTO plain VALUES ({key})",
            f"UPDATE c SET p = {key} WHERE id < {choose.randrange(40)}",
            f"DELETE FROM c WHERE p = {key}",
            "DELETE FROM plain",
        )
    )


@pytest.mark.parametrize("seed", range(examples(20)))
def test_random_transactions_leave_no_row_without_what_it_refers_to(
    tmp_path: Path, seed: int
) -> None:
    async def session(env: TestEnvironment, name: str) -> None:
        choose = random.Random(f"{seed} {name}")
        for _ in range(12):
            block = choose.random() < 0.6
            steps = [statement(choose) for _ in range(choose.randrange(1, 4) if block else 1)]
            for sql in ["BEGIN", *steps, "COMMIT"] if block else steps:
                answer = await env.query(name, sql, alone=False)
                assert "XX" not in answer, (sql, answer)

    async def scenario(env: TestEnvironment) -> None:
        await asyncio.gather(*(session(env, name) for name in ("a", "b", "c")))
        for table in ("c", "plain"):
            assert await env.query("0", ORPHANS.format(table)) == "0\nSELECT 1"

    run(tmp_path, scenario)
