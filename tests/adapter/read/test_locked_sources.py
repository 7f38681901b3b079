"""Statements that lock rows under their keys and read other tables lock nothing of these."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS t, s, other",
    "CREATE TABLE t (id int PRIMARY KEY, k int, n int NOT NULL)",
    "CREATE TABLE s (k int PRIMARY KEY, v int NOT NULL)",
    "CREATE TABLE other (k int PRIMARY KEY)",
    "INSERT INTO t SELECT i, i, 0 FROM generate_series(1, 9) AS i",
    "INSERT INTO s SELECT i, 10 * i FROM generate_series(1, 9) AS i",
)
CHANGES = [
    "UPDATE t SET n = n + v FROM s WHERE id = 1 AND s.k = t.k",
    "UPDATE t SET n = n + v FROM s WHERE id = 1 AND s.k = 1",
    "UPDATE t SET n = n + (SELECT v FROM s WHERE s.k = t.k) WHERE id IN (1, 2)",
    "DELETE FROM t USING s WHERE id = 1 AND s.k = t.k AND v > 0",
    "DELETE FROM t WHERE id = 1 AND EXISTS (SELECT FROM s WHERE s.k = t.k)",
    "SELECT n, v FROM t JOIN s ON s.k = t.k WHERE id = 1 FOR UPDATE OF t",
]


async def begun(env: TestEnvironment) -> None:
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK")
    await env.ran("w", *TABLES)


@pytest.mark.parametrize("change", CHANGES)
async def test_changes_of_other_rows_are_not_waited_for(env: TestEnvironment, change: str) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", "UPDATE s SET v = 0 WHERE k = 7", "DELETE FROM t WHERE id = 7")
    async with asyncio.timeout(10):
        assert "ERROR" not in await env.query("b", change, alone=False)
    await env.ran("a", "COMMIT")


@pytest.mark.parametrize("change", CHANGES)
async def test_block_conflicts_with_change_of_row_that_it_read(
    env: TestEnvironment, change: str
) -> None:
    for key, refused in ((1, True), (8, False)):
        await begun(env)
        await env.ran("a", "BEGIN", change, "INSERT INTO other VALUES (1)")
        await env.ran("b", f"UPDATE s SET v = 2 WHERE k = {key}")
        assert (await env.query("a", "COMMIT")).startswith("ERROR 40001") is refused


async def test_statements_that_read_what_others_change_run_one_after_the_other(
    env: TestEnvironment,
) -> None:
    await begun(env)
    statements = (
        "UPDATE t SET n = v + 1 FROM s WHERE id = 1 AND s.k = t.k",
        "UPDATE s SET v = n + 1 FROM t WHERE s.k = 1 AND id = s.k",
    )

    async def run(name: str, sql: str) -> None:
        for _ in range(15):
            assert await env.query(name, sql, alone=False) == "UPDATE 1"

    await asyncio.gather(*(run(f"r{i}", sql) for i, sql in enumerate(statements * 2)))
    apart = await env.ran("w", "SELECT abs(n - v) FROM t JOIN s ON s.k = t.k WHERE id = 1")
    assert apart.splitlines()[0] == "1"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE t SET n = n + 1 WHERE id BETWEEN 2 AND 4",
        "UPDATE t SET n = n + v FROM s WHERE s.k = t.k AND s.k BETWEEN 2 AND 4",
        "SELECT n FROM t WHERE id BETWEEN 2 AND 4 FOR UPDATE",
        "SELECT n FROM t WHERE id > 1 ORDER BY id LIMIT 3 FOR UPDATE",
        "INSERT INTO other SELECT n + id FROM t WHERE id BETWEEN 2 AND 4",
        "MERGE INTO t USING s ON s.k = t.id WHEN MATCHED AND s.k = 2 THEN UPDATE SET n = v"
        " WHEN MATCHED AND id IN (3, 4) THEN DELETE",
    ],
)
async def test_rows_without_named_keys_are_those_after_the_lock(
    env: TestEnvironment, change: str
) -> None:
    for changed in ("UPDATE t SET n = 7 WHERE id = 3", "DELETE FROM t WHERE id = 2"):
        left = "2" if "DELETE" in changed and "LIMIT" not in change else "3"
        await begun(env)
        await env.ran("a", "BEGIN", "UPDATE t SET n = 3 WHERE id = 9")
        waits = asyncio.create_task(env.query("b", change, alone=False))
        await env.ran("a", changed, "COMMIT")
        answer = await waits
        assert answer.split("\n")[-1].split()[-1] == left, answer


@pytest.mark.parametrize("change", [CHANGES[0], "UPDATE t SET n = n + 1 WHERE id BETWEEN 1 AND 4"])
async def test_block_conflicts_with_row_inserted_into_range_that_it_read(
    env: TestEnvironment, change: str
) -> None:
    await begun(env)
    await env.ran("a", "BEGIN", change)
    await env.ran("b", "INSERT INTO t VALUES (20, 20, 0)")
    assert (await env.query("a", "COMMIT")).startswith("ERROR 40001") is ("BETWEEN" in change)
