"""Queries of indexed views are answered by mirrors as the replicas answer them."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from foreshore.adapter.session.session import Session
from foreshore.compute.controller.mirrors import Mirrors
from foreshore.types import Datum
from tests.adapter.harness import TestEnvironment, told

VIEW = (
    "DROP TABLE IF EXISTS t, u CASCADE",
    "CREATE TABLE u (k int PRIMARY KEY, x text)",
    "INSERT INTO u SELECT i, 'u' || i FROM generate_series(0, 5) i",
    "CREATE TABLE t (k int, s text, n numeric(10, 2), f float8, at timestamp, a int[], d int)",
    "INSERT INTO t VALUES (1, 'a', 1.5, -0.0, '2020-01-01', '{1,2}', 1), (1, 'a', 2, 'NaN', NULL,"
    " NULL, 2), (2, NULL, NULL, 1e20, '2020-01-02 03:04:05.6', '{}', 0), (NULL, 'b', 3, 1, NULL,"
    " NULL, 1), (3, 'b', 3, 0, NULL, NULL, 3), (3, 'b', 3, 0, NULL, NULL, 3)",
    "CREATE VIEW v AS SELECT k, s, n, f, at, a, d FROM t",
    "CREATE INDEX v_by_k ON v (k)",
    "CREATE VIEW w AS SELECT s, n, k + 1 AS more, d FROM t",
    "CREATE INDEX w_by_both ON w (s, n)",
)
QUERIES = (
    "SELECT * FROM v WHERE k = 1",
    "SELECT * FROM v WHERE k = 3",
    "SELECT * FROM v WHERE k = 9",
    "SELECT * FROM v WHERE k = NULL",
    "SELECT * FROM v WHERE k = 99999999999",
    "SELECT * FROM v WHERE k = 3 LIMIT 1",
    "SELECT * FROM v WHERE k = 3 LIMIT 0",
    "SELECT a, s, n FROM v WHERE k = 2",
    "SELECT k, n / 3, f + 1, s || '!' FROM v WHERE k = 1",
    "SELECT upper(s) FROM v WHERE k = 1 AND d > 1",
    "SELECT 10 / d FROM v WHERE k = 2",
    "SELECT 10 / (d - 1) FROM v WHERE k = 1",
    "SELECT d FROM v WHERE k = 1 AND 10 / (d - 1) > 1",
    "SELECT * FROM v WHERE k IN (1, 2)",
    "SELECT * FROM v WHERE k IN (1, 2) ORDER BY n DESC NULLS LAST, f LIMIT 2",
    "SELECT * FROM v ORDER BY k NULLS FIRST, n, f",
    "SELECT k FROM v ORDER BY k OFFSET 1 LIMIT 3",
    "SELECT * FROM w WHERE s = 'b' AND n = 3",
    "SELECT more FROM w WHERE s = 'b' AND n = 3.0 AND d = 3",
    "SELECT count(*), sum(n) FROM v",
    "SELECT count(*), max(n) FROM v WHERE k = 3",
    "SELECT s, sum(n), count(*) FROM v GROUP BY s ORDER BY s",
    "SELECT k, n, d FROM v WHERE d > 0 ORDER BY n DESC NULLS LAST, k, d LIMIT 2",
    "SELECT k, d FROM v WHERE k > 1 ORDER BY k DESC, d LIMIT 2",
    "SELECT v.s, v.d, u.x FROM v JOIN u ON u.k = v.k WHERE v.k = 1",
    "SELECT v.d, u.x FROM v LEFT JOIN u ON u.k = v.d + 3 WHERE v.k IN (1, 3) ORDER BY 1",
    "SELECT v.k, w.more FROM v JOIN w ON w.s = v.s AND w.n = v.n WHERE v.k = 3",
)


async def used(env: TestEnvironment, *indexes: str) -> None:
    """Read views until all of these have a mirror that is filled."""
    named = ", ".join(f"'{each}'" for each in indexes)
    shown = (
        "SELECT count(*) FROM mz_introspection.mz_arrangement_sizes s JOIN mz_objects o"
        f" ON o.id = s.object_id WHERE s.name = 'mirror' AND s.records > 0 AND o.name IN ({named})"
    )
    async with asyncio.timeout(60):
        while await env.ran("s", shown) != f"{len(indexes)}\nSELECT 1":
            await env.ran("s", "SELECT * FROM v", "SELECT * FROM w")
            await asyncio.sleep(0.01)


async def both(env: TestEnvironment, sql: str) -> tuple[list[str], list[str]]:
    """Return the answers of the mirror and of the replica, without the order of rows."""
    ours = await env.query("s", sql)
    theirs = await env.query("pinned", sql)
    if "ORDER BY" in sql:
        return ours.splitlines(), theirs.splitlines()
    return sorted(ours.splitlines()), sorted(theirs.splitlines())


async def test_mirror_answers_as_the_replica_does(env: TestEnvironment) -> None:
    await env.ran("s", *VIEW)
    await env.ran("pinned", "SET cluster_replica = r1")
    await used(env, "v_by_k", "w_by_both")
    choose = Random(0)
    for _ in range(5):
        for sql in QUERIES:
            for _ in range(2):
                ours, theirs = await both(env, sql)
                assert ours == theirs, sql
        change = choose.choice(
            [
                "INSERT INTO t SELECT k, s, n + 1, f, at, a, d FROM t WHERE k = 1",
                "DELETE FROM t WHERE k = 2",
                "UPDATE t SET s = 'b', n = 3 WHERE k = 1",
                "INSERT INTO t VALUES (2, 'x', 0.01, 'inf', 'infinity', '{NULL}', 0)",
            ]
        )
        await env.ran("s", change)


async def test_prepared_query_by_key_asks_no_replica(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("s", *VIEW)
    await used(env, "v_by_k")
    session = await env.session("s")
    await session.extended.parse("p", "SELECT s, d FROM v WHERE k = $1 AND d > $2", ())

    async def ask(*args: object) -> None:
        raise AssertionError("the pipeline is not needed")

    monkeypatch.setattr(Mirrors, "answer", ask)
    for args, rows in (
        ([1, 0], ["a|1", "a|2"]),
        ([1, 1], ["a|2"]),
        ([2, 0], []),
        ([None, 0], []),
        ([3, None], []),
    ):
        assert sorted(await executed(session, args)) == [*sorted([f"SELECT {len(rows)}"]), *rows]
    await env.ran("s", "INSERT INTO t VALUES (2, 'new', 1, 1, NULL, NULL, 5)")
    assert await executed(session, [2, 0]) == ["new|5", "SELECT 1"]
    await env.ran("s", "DELETE FROM t WHERE s = 'new'")
    assert await executed(session, [2, 0]) == ["SELECT 0"]


async def executed(session: Session, args: Sequence[Datum], max_rows: int = 0) -> list[str]:
    """Run the statement `p` with arguments; return its rows and its tag."""
    await session.extended.bind("", "p", args, ())
    execution = await session.extended.execute("", max_rows)
    found = await told(execution)
    await session.extended.sync()
    return found


async def test_rows_are_taken_a_few_at_a_time(env: TestEnvironment) -> None:
    await env.ran("s", *VIEW)
    await used(env, "v_by_k")
    session = await env.session("s")
    await session.extended.parse("few", "SELECT d FROM v WHERE k = $1", ())
    await env.ran("s", "BEGIN")
    await session.extended.bind("c", "few", [3], ())
    for expected in (["3", "SELECT 1"], ["3", "SELECT 1"], ["SELECT 0"]):
        assert await told(await session.extended.execute("c", 1)) == expected
    await session.extended.sync()
    await env.ran("s", "COMMIT")


async def test_block_reads_its_time_and_its_own_writes(env: TestEnvironment) -> None:
    await env.ran("s", *VIEW)
    await used(env, "v_by_k")
    sql = "SELECT s, d FROM v WHERE k = 2"
    await env.ran("s", "BEGIN")
    assert (await env.query("s", sql)).splitlines()[0] == "NULL|0"
    await env.ran("other", "UPDATE t SET s = 'other' WHERE k = 2")
    assert (await env.query("other", sql)).splitlines()[0] == "other|0"
    assert (await env.query("s", sql)).splitlines()[0] == "NULL|0"
    await env.ran("s", "COMMIT")
    await env.ran("s", "BEGIN", "UPDATE t SET s = 'own' WHERE k = 2")
    assert (await env.query("s", sql)).splitlines()[0] == "own|0"
    await env.ran("s", "ROLLBACK")
    assert (await env.query("s", sql)).splitlines()[0] == "other|0"


async def test_a_read_in_a_block_conflicts_with_a_later_write(env: TestEnvironment) -> None:
    await env.ran("s", *VIEW, "CREATE TABLE log (i int)")
    await used(env, "v_by_k")
    await env.ran("s", "BEGIN", "SELECT s FROM v WHERE k = 2", "INSERT INTO log VALUES (1)")
    await env.ran("other", "UPDATE t SET s = 'other' WHERE k = 2")
    assert "40001" in await env.query("s", "COMMIT")


async def test_errors_of_a_view_are_raised_and_pass(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        *VIEW,
        "CREATE VIEW e AS SELECT k, 10 / d AS q FROM t WHERE k > 2",
        "CREATE INDEX ON e (k)",
    )
    sql = "SELECT q FROM e WHERE k = 3 LIMIT 1"
    for _ in range(10):
        assert (await env.query("s", sql)).splitlines()[0] == "3"
        await asyncio.sleep(0.01)
    await env.ran("s", "INSERT INTO t VALUES (4, 'x', 1, 1, NULL, NULL, 0)")
    for _ in range(3):
        assert "22012" in await env.query("s", sql)
        assert "22012" in await env.query("s", "SELECT * FROM e ORDER BY q")
    await env.ran("s", "DELETE FROM t WHERE k = 4")
    assert (await env.query("s", sql)).splitlines()[0] == "3"


async def test_an_index_that_is_dropped_is_not_read(env: TestEnvironment) -> None:
    await env.ran("s", *VIEW)
    await used(env, "v_by_k")
    await env.ran("s", "DROP INDEX v_by_k", "UPDATE t SET d = 7 WHERE k = 2")
    assert await env.ran("s", "SELECT d FROM v WHERE k = 2") == "7\nSELECT 1"
    await env.ran("s", "CREATE INDEX v_by_k ON v (k)")
    await used(env, "v_by_k")
    assert await env.ran("s", "SELECT d FROM v WHERE k = 2") == "7\nSELECT 1"
