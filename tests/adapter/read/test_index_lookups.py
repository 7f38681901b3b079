"""Aggregates and joins over rows under keys of indexes are those over whole relations."""

import asyncio
from random import Random

from tests.adapter.harness import TestEnvironment

TABLES = (
    "CREATE TABLE t (k int, x bigint, s text)",
    "CREATE TABLE w (b int PRIMARY KEY, name text)",
    "INSERT INTO w SELECT g, 'w' || g FROM generate_series(0, 30) g",
    "CREATE VIEW v AS SELECT k, x, s FROM t",
    "CREATE INDEX v_by_k ON v (k)",
    "CREATE VIEW u AS SELECT x % 7 AS y, k AS z, s FROM t",
    "CREATE INDEX u_by_y ON u (y)",
    "CREATE INDEX u_by_both ON u (z, s)",
)
QUERIES = (
    "SELECT count(*), sum(x), min(s) FROM v WHERE k = 3",
    "SELECT count(*), sum(x) FROM v WHERE k = 99999999999",
    "SELECT count(*) FROM v WHERE k = NULL",
    "SELECT s, count(*) FROM v WHERE k IN (1, 2) AND x > 5 GROUP BY s",
    "SELECT DISTINCT x FROM v WHERE k = 1",
    "SELECT v.x, u.s FROM v JOIN u ON u.y = v.k WHERE v.k = 2",
    "SELECT v.x, w.name FROM v JOIN w ON w.b = v.x WHERE v.k = ANY(ARRAY[1, 4, NULL])",
    "SELECT v.x, w.name FROM v LEFT JOIN w ON w.b = v.x WHERE v.k = 4",
    "SELECT count(*) FROM u WHERE z = 1 AND s = 'a'",
    "SELECT a.x, b.x FROM v AS a JOIN v AS b ON a.x = b.x + 1 WHERE a.k = 1 AND b.k = 2",
    "SELECT x FROM v WHERE k = 1 UNION ALL SELECT z FROM u WHERE y = 3",
    "SELECT x FROM v WHERE k = 1 EXCEPT SELECT z FROM u WHERE y = 3",
    "SELECT x, rank() OVER (ORDER BY x) FROM v WHERE k = 2",
    "SELECT count(*) FROM v WHERE k = 5 AND x > (SELECT min(z) FROM u WHERE y = 6)",
)
VIEWS = {
    " v": " (SELECT k, x, s FROM t) AS v",
    " u": " (SELECT x % 7 AS y, k AS z, s FROM t) AS u",
}


def over_tables(sql: str) -> str:
    """Return a query with its views written out, so that no index is used."""
    sql = sql.replace("v AS a", "(SELECT k, x, s FROM t) AS a")
    sql = sql.replace("v AS b", "(SELECT k, x, s FROM t) AS b")
    for name, text in VIEWS.items():
        for word in ("FROM", "JOIN"):
            sql = sql.replace(f"{word}{name} ", f"{word}{text} ")
    return sql


async def hydrated(env: TestEnvironment, sql: str = QUERIES[0]) -> None:
    """Wait until a query uses an index."""
    async with asyncio.timeout(60):
        while "Used indexes" not in await env.ran("s", f"EXPLAIN {sql}"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def both(env: TestEnvironment, session: str, sql: str) -> tuple[list[str], list[str]]:
    ours = await env.query(session, sql)
    theirs = await env.query(session, over_tables(sql))
    return sorted(ours.splitlines()), sorted(theirs.splitlines())


async def test_answers_are_those_over_tables(own_env: TestEnvironment) -> None:
    env, choose = own_env, Random(1)
    await env.ran("s", *TABLES)
    await hydrated(env)
    for _ in range(6):
        values = ", ".join(
            f"({choose.randint(0, 6)}, {choose.randint(-3, 30)}, '{choose.choice('abc')}')"
            for _ in range(20)
        )
        await env.ran("s", f"INSERT INTO t VALUES {values}, (NULL, 1, NULL)")
        await env.ran("s", f"DELETE FROM t WHERE x = {choose.randint(0, 30)}")
        for sql in QUERIES:
            ours, theirs = await both(env, "s", sql)
            assert ours == theirs, sql
    plans = {sql: await env.ran("s", f"EXPLAIN {sql}") for sql in QUERIES}
    used = [sql for sql, plan in plans.items() if "Used indexes" in plan]
    assert len(used) >= 11, plans


async def test_block_sees_its_own_writes_and_its_time(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", *TABLES, "INSERT INTO t VALUES (3, 1, 'a'), (3, 2, 'b')")
    await hydrated(env)
    sql = "SELECT count(*), sum(x) FROM v WHERE k = 3"
    assert (await env.ran("s", "BEGIN", sql)).splitlines()[0] == "2|3"
    await env.ran("other", "INSERT INTO t VALUES (3, 10, 'c')")
    assert (await env.ran("s", sql)).splitlines()[0] == "2|3"
    assert (await env.ran("other", sql)).splitlines()[0] == "3|13"
    await env.ran("s", "ROLLBACK", "BEGIN", "INSERT INTO t VALUES (3, 100, 'd')")
    assert (await env.ran("s", sql)).splitlines()[0] == "4|113"
    await env.ran("s", "ROLLBACK")


async def test_many_rows_and_errors_are_left_to_the_cluster(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", *TABLES, "INSERT INTO t SELECT 3, g, 'a' FROM generate_series(1, 12000) g")
    await hydrated(env)
    sql = "SELECT count(*), sum(x) FROM v WHERE k = 3"
    assert (await env.ran("s", sql)).splitlines()[0] == "12000|72006000"
    await env.ran("s", "CREATE VIEW f AS SELECT k, 10 / x AS q FROM t", "CREATE INDEX ON f (k)")
    await env.ran("s", "INSERT INTO t VALUES (4, 0, 'zero')")
    failing = "SELECT count(*), sum(q) FROM f WHERE k = 5"
    await hydrated(env, failing)
    for _ in range(5):
        assert "22012" in await env.query("s", failing)


async def test_dropped_index_is_not_missed(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", *TABLES, "INSERT INTO t VALUES (3, 1, 'a')")
    await hydrated(env)
    sql = "SELECT count(*), sum(x) FROM v WHERE k = 3"
    assert (await env.ran("s", sql)).splitlines()[0] == "1|1"
    await env.ran("s", "DROP INDEX v_by_k")
    assert (await env.ran("s", sql)).splitlines()[0] == "1|1"


async def test_semijoin_of_view_that_is_taken_out_again(own_env: TestEnvironment) -> None:
    """Only the keys of the table read the view, whose rows are more than are read as tuples."""
    env = own_env
    await env.ran(
        "s",
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE w (g int, x int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 1500) i",
        "INSERT INTO w SELECT 1, i FROM generate_series(1, 1500) i",
        "CREATE VIEW by_g AS SELECT g, x FROM w",
        "CREATE INDEX ON by_g (g)",
    )
    sql = "SELECT v FROM t WHERE id BETWEEN 1 AND 1400 AND id IN (SELECT x FROM by_g WHERE g = 1)"
    await hydrated(env, sql)
    answer = await env.ran("s", sql)
    assert len(answer.splitlines()) == 1401, answer
