"""Unique constraints under concurrent inserts, and when they are added while rows are written."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment


def test_colliding_inserts_exactly_one_succeeds(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s0", "CREATE TABLE t (k int PRIMARY KEY, who int)")
        for k in range(5):
            answers = await asyncio.gather(
                *(env.query(f"s{i}", f"INSERT INTO t VALUES ({k}, {i})") for i in range(16))
            )
            assert [a.splitlines()[0] for a in answers].count("INSERT 0 1") == 1
            lost = [a for a in answers if a != "INSERT 0 1"]
            assert (
                lost
                == [
                    'ERROR 23505: duplicate key value violates unique constraint "t_pkey"\n'
                    f"DETAIL: Key (k)=({k}) already exists."
                ]
                * 15
            )
        await env.reopen()
        assert "ERROR 23505" in await env.query("s", "INSERT INTO t VALUES (3, 1)")
        assert await env.query("s", "SELECT count(*) FROM t") == "5\nSELECT 1"
        await env.close()

    asyncio.run(play())


async def test_commit_after_table_altered_is_refused(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
    await own_env.query("b", "BEGIN; INSERT INTO t VALUES (1)")
    assert await own_env.query("s", "ALTER TABLE t ADD PRIMARY KEY (k)") == "ALTER TABLE"
    answer = await own_env.query("b", "COMMIT")
    assert answer == "ERROR 40001: could not serialize access: a table was altered meanwhile"
    await own_env.query("s", "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) FROM t GROUP BY k")
    answer = await own_env.query("s", "ALTER TABLE t DROP CONSTRAINT t_pkey")
    assert answer.splitlines()[:2] == [
        "ERROR 2BP01: cannot drop constraint t_pkey on table t because other objects depend on it",
        "DETAIL: materialized view m depends on constraint t_pkey on table t",
    ]
    await own_env.query("b", "BEGIN; ALTER TABLE t DROP COLUMN nothing")
    await own_env.query("b", "ROLLBACK")
    block = "BEGIN; CREATE TABLE n (i int); INSERT INTO n VALUES (1), (1)"
    await own_env.query("b", block)
    answer = await own_env.query("b", "ALTER TABLE n ADD UNIQUE (i)")
    assert answer.splitlines()[1] == "DETAIL: Key (i)=(1) is duplicated."
    await own_env.query("b", "ROLLBACK")
    await own_env.query(
        "b", f"{block}; DELETE FROM n; INSERT INTO n VALUES (2); ALTER TABLE n ADD UNIQUE (i)"
    )
    assert "ERROR 23505" in await own_env.query("b", "INSERT INTO n VALUES (2)")
    await own_env.query("b", "ROLLBACK")
    await own_env.query(
        "b", f"{block}; DELETE FROM n; INSERT INTO n VALUES (2); ALTER TABLE n ADD UNIQUE (i)"
    )
    assert (await own_env.query("b", "COMMIT")) == "COMMIT"
    assert "ERROR 23505" in await own_env.query("s", "INSERT INTO n VALUES (2)")
    await own_env.query(
        "s", "BEGIN; ALTER TABLE n DROP CONSTRAINT n_i_key; INSERT INTO n VALUES (2)"
    )
    assert await own_env.query("s", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT * FROM n") == "2\n2\nSELECT 2"


async def test_update_of_conflict_selects_values_of_both_rows(own_env: TestEnvironment) -> None:
    await own_env.ran(
        "a", "CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)"
    )
    upsert = "INSERT INTO t VALUES (1, 5) ON CONFLICT (k) DO UPDATE SET v = "
    for value, found in (("(SELECT excluded.v)", 5), ("(SELECT t.v + (SELECT excluded.v))", 10)):
        answer = await own_env.query("a", f"{upsert}{value} RETURNING v")
        assert answer == f"{found}\nINSERT 0 1"
    assert await own_env.query("a", f"{upsert}0 WHERE (SELECT t.v > 10)") == "INSERT 0 0"
    other = await own_env.query("a", f"{upsert}(SELECT max(v) FROM t)")
    assert other.startswith("ERROR 0A000")


@pytest.mark.parametrize("rows", [1, 400])
async def test_row_that_others_have_changed_is_no_duplicate_of_itself(
    env: TestEnvironment, rows: int
) -> None:
    """A client tries 40001 again, and not 23505; few rows and columns say the same."""
    table = f"self_{rows}"
    await env.query("s", f"CREATE TABLE {table} (id int PRIMARY KEY, v int UNIQUE)")
    await env.query("s", f"INSERT INTO {table} SELECT i, i * 10 FROM generate_series(1, {rows}) i")
    change = f"UPDATE {table} SET v = v + 1"
    await env.query("stale", f"BEGIN; SELECT v FROM {table} WHERE id = 1")
    assert await env.query("fresh", change) == f"UPDATE {rows}"
    answer = await env.query("stale", change)
    assert answer.startswith("ERROR 40001: could not serialize access due to concurrent update")
    await env.query("stale", "ROLLBACK")
    await env.query("stale", f"BEGIN; SELECT v FROM {table} WHERE id = 1")
    assert await env.query("fresh", f"INSERT INTO {table} VALUES (0, 7)") == "INSERT 0 1"
    answer = await env.query("stale", f"UPDATE {table} SET v = 7 WHERE id = 1")
    assert answer.startswith("ERROR 23505")  # of another row, as its own has not changed
    await env.query("stale", "ROLLBACK")
