"""Rows named by a prefix of a key, an index or a list are locked one by one, and their keys too."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment, until

CONFLICT = "ERROR 40001: could not serialize access due to concurrent update"
TABLE = (
    "DROP TABLE IF EXISTS t, other",
    "CREATE TABLE t (a int, b int, c text, n int NOT NULL, PRIMARY KEY (a, b))",
    "CREATE INDEX by_c ON t (c)",
    "CREATE TABLE other (k int PRIMARY KEY)",
    "INSERT INTO t SELECT i / 4, i % 4, 'c' || i % 3, 0 FROM generate_series(0, 19) AS i",
)


async def begun(env: TestEnvironment) -> None:
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK")
    await env.ran("w", *TABLE)


async def waiting(env: TestEnvironment, session: str, sql: str) -> asyncio.Task[str]:
    """Run a statement that has to wait."""
    locks = env.environment.coordinator.locks
    before = len(locks._waiting)
    task = asyncio.create_task(env.query(session, sql, alone=False))
    await until(lambda: task.done() or len(locks._waiting) > before)
    assert not task.done(), task.result()
    return task


NAMED = ["a = 1", "a IN (1, 7)", "c = 'c1'", "(a, b) IN ((1, 0), (1, 1))", "a = ANY('{1}')"]


@pytest.mark.parametrize("where", NAMED)
@pytest.mark.parametrize(
    "change", ["UPDATE t SET n = n + 1 WHERE {}", "SELECT 1 FROM t WHERE {} FOR UPDATE"]
)
async def test_rows_under_named_keys_are_locked_alone(
    env: TestEnvironment, where: str, change: str
) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", change.format(where))
    await env.ran("b", "UPDATE t SET n = 5 WHERE a = 3 AND b = 3")
    same = await waiting(env, "b", f"UPDATE t SET n = n + 10 WHERE a = 1 AND b = 0 AND {where}")
    await env.ran("a", "COMMIT")
    assert "UPDATE" in await same
    assert "ERROR" not in await env.ran("b", f"DELETE FROM t WHERE {where}")


async def test_update_by_prefix_waits_for_one_of_its_rows(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", "UPDATE t SET n = 7 WHERE a = 2 AND b = 1")
    by_prefix = await waiting(env, "b", "UPDATE t SET n = n + 1 WHERE a = 2 RETURNING n")
    await env.ran("c", "UPDATE t SET n = 1 WHERE a = 3")
    await env.ran("a", "COMMIT")
    assert sorted((await by_prefix).splitlines()) == ["1", "1", "1", "8", "UPDATE 4"]


@pytest.mark.parametrize("where", ["a = 1", "c = 'c9'"])
async def test_block_conflicts_with_inserted_row_of_read_values_only(
    env: TestEnvironment, where: str
) -> None:
    for inserted, refused in (("(9, 9, 'c8', 0)", False), ("(1, 9, 'c9', 0)", True)):
        await begun(env)
        await env.ran("a", "BEGIN", f"SELECT count(*) FROM t WHERE {where}")
        await env.ran("b", f"INSERT INTO t VALUES {inserted}")
        await env.ran("a", "INSERT INTO other VALUES (1)")
        assert (await env.query("a", "COMMIT")).startswith("ERROR 40001") is refused


@pytest.mark.parametrize("where", ["a = 1", "c = 'c1'"])
async def test_block_conflicts_with_row_that_moves_away(env: TestEnvironment, where: str) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", f"SELECT count(*) FROM t WHERE {where}")
    await env.ran("b", "UPDATE t SET a = 30, c = 'other' WHERE a = 1 AND b = 0")
    await env.ran("a", "INSERT INTO other VALUES (1)")
    assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")


async def test_writes_of_one_group_conflict_by_prefix(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran(
        "a", "BEGIN", "SELECT count(*) FROM t WHERE a = 1", "INSERT INTO other VALUES (1)"
    )
    await env.ran("b", "BEGIN", "INSERT INTO t VALUES (1, 9, 'x', 0)")
    answers = await asyncio.gather(
        env.query("b", "COMMIT", alone=False), env.query("a", "COMMIT", alone=False)
    )
    assert answers[0] == "COMMIT"
    assert answers[1].startswith("ERROR 40001")


async def test_updates_by_prefix_beside_inserts_lose_nothing(env: TestEnvironment) -> None:
    """A statement that met an inserted row locks the table when it runs again."""
    await begun(env)

    async def insert() -> None:
        for i in range(10, 40):
            await env.query("b", f"INSERT INTO t VALUES (1, {i}, 'x', 0)", alone=False)

    async def update() -> int:
        total = 0
        for _ in range(10):
            answer = await env.query("a", "UPDATE t SET n = n + 1 WHERE a = 1", alone=False)
            assert answer.startswith("UPDATE"), answer
            total += int(answer.split()[1])
        return total

    (_, total) = await asyncio.gather(insert(), update())
    assert (await env.ran("c", "SELECT sum(n) FROM t WHERE a = 1")).split("\n")[0] == str(total)


async def test_nowait_and_skip_locked_see_rows_of_prefix(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", "SELECT 1 FROM t WHERE a = 2 FOR UPDATE")
    refused = await env.query("b", "SELECT 1 FROM t WHERE a = 2 AND b = 0 FOR UPDATE NOWAIT")
    assert refused.startswith("ERROR 55P03")
    skipped = await env.query("b", "SELECT a, b FROM t WHERE a IN (2, 3) FOR UPDATE SKIP LOCKED")
    assert skipped.splitlines()[-1] == "SELECT 4"
    assert all(line.startswith("3|") for line in skipped.splitlines()[:-1])


async def test_savepoint_takes_rows_of_prefix_back(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", "DELETE FROM t WHERE a = 1 AND b > 1", "SAVEPOINT s")
    await env.ran("a", "UPDATE t SET b = b + 10 WHERE a = 1", "INSERT INTO t VALUES (1, 5, 'z', 1)")
    shown = "SELECT b FROM t WHERE a = 1 ORDER BY b"
    assert (await env.ran("a", shown)).splitlines()[:-2] == ["5", "10", "11"]
    await env.ran("a", "ROLLBACK TO s")
    assert (await env.ran("a", shown)).splitlines()[:-2] == ["0", "1"]
    await env.ran("a", "COMMIT")
    assert (await env.ran("b", shown)).splitlines()[:-1] == ["0", "1"]


async def test_altered_table_is_found_by_its_new_keys(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "SELECT 1 FROM t WHERE a = 1", "ALTER TABLE t ADD COLUMN d int DEFAULT 4")
    assert (await env.ran("a", "SELECT sum(d) FROM t WHERE a = 1")).startswith("16")
    await env.ran("a", "BEGIN", "ALTER TABLE t ADD COLUMN e int DEFAULT 2")
    assert (await env.ran("a", "SELECT sum(e) FROM t WHERE a = 1")).startswith("8")
    await env.ran("a", "UPDATE t SET e = 3 WHERE a = 1", "COMMIT")
    assert (await env.ran("b", "SELECT sum(e) FROM t WHERE a IN (1, 2)")).startswith("20")
    await env.ran("a", "ALTER TABLE t DROP CONSTRAINT t_pkey")
    assert (await env.ran("b", "SELECT sum(e) FROM t WHERE a IN (1, 2)")).startswith("20")


async def test_key_with_nulls_is_not_looked_up_by_its_prefix(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "CREATE TABLE IF NOT EXISTS u (a int NOT NULL, b int, UNIQUE (a, b))")
    await env.ran("a", "DELETE FROM u", "INSERT INTO u VALUES (1, 1), (1, NULL), (1, NULL)")
    assert (await env.ran("a", "SELECT count(*) FROM u WHERE a = 1")).startswith("3")
    assert await env.ran("a", "DELETE FROM u WHERE a = 1") == "DELETE 3"
