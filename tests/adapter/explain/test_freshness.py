"""EXPLAIN FRESHNESS: how fresh the inputs of a query are, and what delays them."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from foreshore.errors import DatabaseError, OutOfDisk
from foreshore.processes.child_process import ProcessLauncher
from foreshore.sql.plan import FRESHNESS_DESC
from tests.adapter.harness import TestEnvironment, told
from tests.adapter.introspection.troubled_engine import troubled_engine
from tests.compute.in_process import InProcessLauncher

Row = dict[str, str]
Test = Callable[[TestEnvironment], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture
def run(runner: asyncio.Runner, env: TestEnvironment) -> Run:
    """Return what runs a test in the environment; clusters made in it have troubled replicas."""

    async def ran(test: Test) -> None:
        healthy = env.launcher
        env.launcher = InProcessLauncher({"embedded": partial(troubled_engine, env.data_dir)})
        try:
            await test(env)
        finally:
            env.launcher = healthy
            await env.query("a", "ROLLBACK")
            await env.ran("a", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
            await env.ran("a", *(f"DROP CLUSTER IF EXISTS {name}" for name in ("c", '"Idle"')))

    return lambda test: runner.run(ran(test))


async def explained(env: TestEnvironment, of: str, session: str = "b") -> list[Row]:
    """Return the rows of EXPLAIN FRESHNESS FOR `of`; it must not wait."""
    async with asyncio.timeout(120):
        answer = await env.query(session, f"EXPLAIN FRESHNESS FOR {of}")
    lines = [line for line in answer.splitlines() if line not in ("T", "E")]
    assert lines[-1] == f"EXPLAIN {len(lines) - 1}" or lines[-1] == "EXPLAIN", answer
    names = FRESHNESS_DESC.names
    return [dict(zip(names, line.split("|"), strict=True)) for line in lines[:-1]]


async def when(
    env: TestEnvironment, of: str, holds: Callable[[dict[str, Row]], object]
) -> dict[str, Row]:
    """Return the rows by their objects' names, as soon as `holds` of them.

    On a busy machine any collection may be late, and a culprit, for a moment: what is asked of
    culprits belongs in `holds`.
    """
    found: dict[str, Row] = {}
    try:
        async with asyncio.timeout(120):
            while True:
                found = {row["object"].split(".")[-1]: row for row in await explained(env, of)}
                if holds(found):
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(found) from None


M_IN_C = (
    "CREATE TABLE t (k int)",
    "CREATE CLUSTER c (SIZE 'embedded')",
    "CREATE MATERIALIZED VIEW m IN CLUSTER c AS TABLE t",
)


def culprits(rows: dict[str, Row]) -> dict[str, str]:
    return {name: row["reason"] for name, row in rows.items() if row["culprit"] == "t"}


def test_fresh_collections_have_no_culprit(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (k int)",
            "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k",
            "CREATE VIEW v AS SELECT sum(n) AS s FROM m",
            "CREATE INDEX i ON v (s)",
            "SELECT * FROM v",
        )
        rows = await when(env, "INDEX i", lambda rows: not culprits(rows))
        assert list(rows) == ["i", "m", "t"]  # what is read, then what that is made of
        assert [row["object"] for row in rows.values()] == [
            "foreshore.public.i",
            "foreshore.public.m",
            "foreshore.public.t",
        ]
        assert [row["type"] for row in rows.values()] == ["index", "materialized view", "table"]
        assert [row["cluster"] for row in rows.values()] == ["quickstart", "quickstart", "NULL"]
        assert {row["state"] for row in rows.values()} == {"running"}
        assert {row["reason"] for row in rows.values()} == {"NULL"}
        assert rows["t"]["oracle_lag"] == "00:00:00"
        assert all(row["upper"].startswith("20") for row in rows.values())
        # the index answers for the view, and for a query that it answers
        assert list(await when(env, "VIEW v", bool)) == ["i", "m", "t"]
        assert list(await when(env, "SELECT s + 1 FROM v", bool)) == ["i", "m", "t"]
        assert list(await when(env, "SELECT * FROM m, t", bool)) == ["t", "m"]
        assert list(await when(env, "MATERIALIZED VIEW m", bool)) == ["m", "t"]
        assert list(await when(env, "TABLE t", bool)) == ["t"]
        assert await explained(env, "SELECT 1") == []
        assert await explained(env, "SELECT * FROM pg_class") == []

    run(test)


def test_reason_names_cluster_without_replica(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (k int)",
            "CREATE CLUSTER \"Idle\" (SIZE 'embedded')",
            'CREATE MATERIALIZED VIEW "Lower" IN CLUSTER "Idle" AS TABLE t',
            'CREATE MATERIALIZED VIEW upper AS TABLE "Lower"',
            "SELECT count(*) FROM upper",
            'DROP CLUSTER REPLICA "Idle".r1',
            "INSERT INTO t VALUES (1)",
        )
        rows = await when(
            env,
            "SELECT * FROM upper JOIN t USING (k)",
            lambda rows: (
                rows['"Lower"']["own_lag"] >= "00:00:01"
                and culprits(rows) == {'"Lower"': 'cluster "Idle" has no replica'}
            ),
        )
        assert rows['"Lower"']["state"] == "no replica"
        assert rows["upper"]["state"] == "running"
        assert rows["upper"]["reason"] == 'waits for foreshore.public."Lower"'
        assert rows["upper"]["own_lag"] < "00:00:01" <= rows["upper"]["oracle_lag"]
        assert rows["t"]["oracle_lag"] == "00:00:00"
        # what is made of it now is not filled before, and has no replica either
        await env.ran(
            "a",
            'CREATE MATERIALIZED VIEW late IN CLUSTER "Idle" AS TABLE t',
            "CREATE MATERIALIZED VIEW over_late AS SELECT count(*) FROM late",
        )
        rows = await when(
            env,
            "MATERIALIZED VIEW over_late",
            lambda rows: culprits(rows) == {"late": 'cluster "Idle" has no replica'},
        )
        assert {rows["late"][lag] for lag in ("upper", "wallclock_lag", "own_lag")} == {"NULL"}
        assert rows["over_late"]["state"] == "waiting"
        assert rows["over_late"]["reason"] == "waits for foreshore.public.late"
        await env.ran("a", "CREATE CLUSTER REPLICA \"Idle\".r2 (SIZE 'embedded')")
        await when(env, "SELECT * FROM upper, over_late", lambda rows: not culprits(rows))

    run(test)


def test_hydrating_view_is_culprit(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        (env.data_dir / "hold").touch()
        await env.ran(
            "a",
            *M_IN_C,
            "CREATE MATERIALIZED VIEW next IN CLUSTER c AS SELECT k + 1 FROM t",
        )
        rows = await when(
            env,
            "SELECT * FROM m, next",
            lambda rows: (
                rows["m"]["state"] == "hydrating" and culprits(rows).keys() == {"m", "next"}
            ),
        )
        assert rows["m"]["reason"].startswith("it is being filled, for ")
        assert rows["m"]["upper"] == "NULL"
        assert rows["next"]["state"] == "pending"
        (env.data_dir / "hold").unlink()
        await when(env, "SELECT * FROM m, next", lambda rows: not culprits(rows))

    run(test)


def test_failed_dataflow_is_culprit_with_its_error(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            *M_IN_C,
            "SELECT * FROM m",
        )
        (env.data_dir / "fail").touch()
        await env.ran("a", "INSERT INTO t VALUES (1)")
        error = "its dataflow failed, and is tried again: OSError: no more threads"
        rows = await when(env, "TABLE m", lambda rows: culprits(rows) == {"m": error})
        assert rows["m"]["state"] == "failed"
        (env.data_dir / "fail").unlink()
        await when(
            env,
            "TABLE m",
            lambda rows: rows["m"]["state"] == "running" and not culprits(rows),
        )

    run(test)


def test_read_of_repeatedly_failing_view_reports_error(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            *M_IN_C,
            "CREATE MATERIALIZED VIEW above IN CLUSTER quickstart AS SELECT count(*) AS n FROM m",
        )
        time = await env.query("b", "SELECT mz_now() FROM above")
        (env.data_dir / "fail").touch()
        await env.ran("a", "INSERT INTO t VALUES (1)")
        async with asyncio.timeout(120):
            for view in ("above", "m", "above"):  # the first waits already
                told = await env.query("b", f"SELECT * FROM {view}", alone=False)
                why = "cannot be kept up to date: OSError: no more threads"
                assert told.startswith("ERROR XX000: "), told
                assert why in told, told
        before = f"SELECT * FROM above AS OF {time.splitlines()[0]}"
        assert await env.query("b", before) == "0\nSELECT 1"
        (env.data_dir / "fail").unlink()
        async with asyncio.timeout(120):
            while (told := await env.query("b", "SELECT * FROM above")) != "1\nSELECT 1":
                assert told.startswith("ERROR XX000: ")
                await asyncio.sleep(0.1)

    run(test)


def test_repeatedly_failing_view_does_not_block_alter_table(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", *M_IN_C, "INSERT INTO t VALUES (1)", "SELECT * FROM m")
        (env.data_dir / "fail").touch()
        await env.ran("a", "INSERT INTO t VALUES (2)")
        async with asyncio.timeout(120):
            await env.ran("a", "ALTER TABLE t ADD c int", "INSERT INTO t VALUES (3)")
        (env.data_dir / "fail").unlink()
        async with asyncio.timeout(120):
            while (told := await env.query("b", "SELECT sum(k) FROM m")) != "6\nSELECT 1":
                assert told.startswith("ERROR XX000: "), told
                await asyncio.sleep(0.1)

    run(test)


def test_reason_names_replica_that_does_not_start(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        env.launcher = ProcessLauncher((sys.executable, "-c", "raise SystemExit"))
        await env.ran(
            "a",
            *M_IN_C,
        )
        rows = await when(env, "TABLE m", lambda rows: "nothing" in culprits(rows).get("m", ""))
        assert rows["m"]["state"] == "replica starting"
        assert rows["m"]["reason"].startswith('replica "r1" is starting, after ')

    run(test)


def test_full_disk_makes_tables_late(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int)")

        async def no_room() -> int:
            raise OutOfDisk("the log")

        with monkeypatch.context() as full:
            full.setattr(env.environment.coordinator.oracle, "write_ts", no_room)
            rows = await when(env, "TABLE t", culprits)
        assert rows["t"]["state"] == "not written"
        assert rows["t"]["reason"] == (
            "nothing is written: could not write the log: No space left on device"
        )
        await when(env, "TABLE t", lambda rows: rows["t"]["state"] == "running")

    run(test)


def test_explain_freshness_in_block_shows_own_objects_and_keeps_block_time(
    run: Run,
) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            *M_IN_C,
            "SELECT * FROM m",
            "DROP CLUSTER REPLICA c.r1",
            "BEGIN",
        )
        rows = {row["object"]: row for row in await explained(env, "TABLE m", "a")}
        assert list(rows) == ["foreshore.public.m", "foreshore.public.t"]
        # it has not chosen the time of the block, for which m would have to be waited for
        await env.query("b", "INSERT INTO t VALUES (1)")
        assert "1\nSELECT 1" in await env.query("a", "SELECT * FROM t")
        await env.ran("a", "COMMIT", "BEGIN", "CREATE TABLE own (k int)")
        await env.ran("a", "CREATE MATERIALIZED VIEW mine AS TABLE own")
        (row,) = await explained(env, "MATERIALIZED VIEW mine", "a")
        assert (row["object"], row["state"], row["culprit"], row["upper"]) == (
            "foreshore.public.mine",
            "uncommitted",
            "f",
            "NULL",
        )
        assert [row["state"] for row in await explained(env, "SELECT * FROM own, t", "a")] == [
            "uncommitted",
            "running",
        ]
        await env.ran("a", "ROLLBACK")

    run(test)


def test_explain_freshness_of_unsupported_object_is_refused(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int)", "CREATE VIEW v AS TABLE t")
        for of, error in (
            ("MATERIALIZED VIEW nope", '42P01: materialized view "nope" does not exist'),
            ("VIEW nope", '42P01: view "nope" does not exist'),
            ("INDEX nope", '42704: index "nope" does not exist'),
            ("TABLE nope", '42P01: relation "nope" does not exist'),
            ("SELECT * FROM nope", '42P01: relation "nope" does not exist'),
            ("MATERIALIZED VIEW v", '42809: "v" is not a materialized view'),
            ("VIEW t", '42809: "t" is not a view'),
            ("INDEX t", '42809: "t" is not an index'),
            ("INSERT INTO t VALUES (1)", "0A000: EXPLAIN FRESHNESS of a statement that changes"),
            ("SELECT * FROM t AS OF 5", "0A000: EXPLAIN FRESHNESS of a query AS OF a time"),
            ("VIEW v, t", '42601: syntax error at or near ","'),
            ("SEQUENCE s", '42601: syntax error at or near "SEQUENCE"'),
        ):
            answer = await env.query("a", f"EXPLAIN FRESHNESS FOR {of}")
            assert answer.startswith(f"ERROR {error}"), answer
        answer = await env.query("a", "EXPLAIN FRESHNESS VIEW v")
        assert answer.startswith('ERROR 42601: syntax error at or near "VIEW"')

    run(test)


def test_prepared_explain_freshness_describes_columns(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int)")
        session = await env.session("p")
        sql = "EXPLAIN FRESHNESS FOR SELECT * FROM t WHERE k = $1"
        statement = await session.extended.parse("p", sql, [])
        assert statement.desc == FRESHNESS_DESC
        assert [str(type) for type in statement.parameters] == ["integer"]
        # made anew with the catalog, of the same columns
        for view in (None, "CREATE MATERIALIZED VIEW m AS TABLE t", "CREATE INDEX i ON t (k)"):
            await env.ran("a", *([view] if view else []))
            await session.extended.bind("", "p", (1,), ())
            lines = await told(await session.extended.execute("", 0))
            await session.extended.sync()
            assert lines[-1] == "EXPLAIN"
            assert len(lines[-2].split("|")) == len(FRESHNESS_DESC.names)
            assert lines[-2].startswith("foreshore.public.t|table|NULL|running|")
        with pytest.raises(DatabaseError) as refused:
            await session.extended.parse("q", "EXPLAIN FRESHNESS FOR INDEX nope", [])
        assert (refused.value.sqlstate, refused.value.position) == ("42704", 29)
        await session.fail()

    run(test)


def test_views_whose_data_make_reads_fail_are_failing(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (0)",
            "CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS x FROM t",
            "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m",
        )
        found = await when(
            env,
            "SELECT * FROM above",
            lambda rows: (
                {rows[name]["state"] for name in ("m", "above")} == {"failing"}
                and not culprits(rows)
            ),
        )
        assert found["m"]["reason"] == "reads of it fail: division by zero"
        assert found["above"]["state"] == "failing"
        assert found["above"]["reason"] == "reads of it fail: division by zero, in m"
        assert found["t"]["state"] == "running"
        await env.ran("a", "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)")
        await when(env, "MATERIALIZED VIEW m", lambda rows: rows["m"]["state"] == "running")

    run(test)
