"""RETAIN HISTORY, also over restarts; staleness."""

import asyncio
from pathlib import Path

import pytest

from foreshore.ids import GlobalId
from foreshore.storage.read_holds import ReadHolds
from tests.adapter.harness import TestEnvironment, until

TWICE = "RETAIN HISTORY FOR '1h', RETAIN HISTORY FOR '2h'"
U1, U2, U3 = GlobalId("u1"), GlobalId("u2"), GlobalId("u3")


async def now(env: TestEnvironment) -> int:
    return int((await env.query("a", "SELECT mz_now()")).split("\n")[0])


async def forget(env: TestEnvironment) -> None:
    """Let all times pass that nobody has asked to keep."""
    await asyncio.sleep(0.2)
    await env.environment.coordinator.group.advance()
    await env.environment.coordinator.allow_compaction()


CREATED = """
    CREATE TABLE kept (k int) WITH (RETAIN HISTORY FOR '1 hour');
    CREATE TABLE lost (k int);
    CREATE VIEW doubled AS SELECT 2 * k AS k FROM kept;
    CREATE INDEX doubled_k ON doubled (k) WITH (RETAIN HISTORY = FOR '1 hour');
    CREATE MATERIALIZED VIEW tripled WITH (RETAIN HISTORY FOR '1 day') AS SELECT 3 * k AS k FROM lost;
    INSERT INTO kept VALUES (1); INSERT INTO lost VALUES (1)
"""


async def check_history(env: TestEnvironment, time: int) -> None:
    for relation, row in (("kept", "1"), ("doubled", "2"), ("tripled", "3")):
        given = await env.query("a", f"SELECT * FROM {relation} AS OF {time}")
        assert given == f"{row}\nSELECT 1", relation
    refused = await env.query("a", f"SELECT * FROM lost AS OF {time}")
    assert refused.startswith(f"ERROR 22023: cannot read as of {time}")


def test_retain_history_keeps_requested_span(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=50)
        await env.open()
        await env.query("a", CREATED)
        time = await now(env)
        await env.query("a", "UPDATE kept SET k = 10")
        await env.query("a", "UPDATE lost SET k = 10")
        assert await env.query("a", "SELECT * FROM tripled") == "30\nSELECT 1"
        await forget(env)
        await check_history(env, time)
        assert await env.query("a", "SHOW CREATE TABLE kept") == (
            "foreshore.public.kept|CREATE TABLE foreshore.public.kept (k integer)"
            " WITH (RETAIN HISTORY FOR '01:00:00')\nSHOW"
        )
        assert "WITH (RETAIN HISTORY FOR '24:00:00') AS SELECT" in await env.query(
            "a", "SHOW CREATE MATERIALIZED VIEW tripled"
        )
        await env.reopen()
        coordinator = env.environment.coordinator
        await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))
        await forget(env)
        await check_history(env, time)
        await env.query("a", "ALTER TABLE kept RESET (RETAIN HISTORY)")
        await env.query("a", "ALTER INDEX doubled_k RESET (RETAIN HISTORY)")
        await forget(env)
        for relation in ("kept", "doubled"):
            given = await env.query("a", f"SELECT * FROM {relation} AS OF {time}")
            assert given.startswith("ERROR 22023"), relation
        assert "RETAIN" not in await env.query("a", "SHOW CREATE TABLE kept")
        await env.query("a", "ALTER TABLE kept SET (RETAIN HISTORY FOR '1h')")
        time = await now(env)
        await env.query("a", "DELETE FROM kept")
        await forget(env)
        assert await env.query("a", f"SELECT * FROM kept AS OF {time}") == "10\nSELECT 1"
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE t (k int) WITH (RETAIN HISTORY FOR 'soon')", "22007"),
        ("CREATE TABLE t (k int) WITH (RETAIN HISTORY FOR '-1 hour')", "22023"),
        ("CREATE TABLE t (k int) WITH (RETAIN HISTORY FOR '1 month')", "22023"),
        ("CREATE VIEW v WITH (RETAIN HISTORY FOR '1 hour') AS SELECT 1", "0A000"),
        ("ALTER TABLE nowhere SET (RETAIN HISTORY FOR '1 hour')", "42P01"),
        ("ALTER TABLE t SET (RETAIN HISTORY)", "42601"),
        (f"ALTER TABLE t SET ({TWICE})", "42601"),
        (f"CREATE TABLE t (k int) WITH ({TWICE})", "42601"),
        ("CREATE TABLE t (k int) WITH (fillfactor = 10, fillfactor = 10)", "42601"),
        (f"CREATE MATERIALIZED VIEW v WITH ({TWICE}) AS SELECT 1", "42601"),
        (f"CREATE INDEX ON t (k) WITH ({TWICE})", "42601"),
        ("CREATE INDEX ON t (k) WITH (fillfactor = 10)", "0A000"),
        ("CREATE TABLE t (k int) WITH (fillfactor = 10, user_catalog_table)", "0A000"),
        ("SET transaction_isolation = 'bounded staleness soon'", "22023"),
    ],
)
async def test_what_is_refused(own_env: TestEnvironment, statement: str, error: str) -> None:
    assert (await own_env.query("a", statement)).startswith(f"ERROR {error}")


async def test_retain_history_is_accepted_beside_ignored_options(own_env: TestEnvironment) -> None:
    history, pages = "RETAIN HISTORY FOR '1h'", "fillfactor = 10"
    for options in (f"{history}, {pages}", f"{pages}, {history}"):
        await own_env.query("a", f"CREATE TABLE t (k int) WITH ({options})")
        shown = await own_env.query("a", "SHOW CREATE TABLE t")
        assert "WITH (RETAIN HISTORY FOR '01:00:00')" in shown
        await own_env.query("a", "DROP TABLE t")
    await own_env.query("a", f"CREATE TABLE t (k int) WITH ({pages})")
    assert "WITH" not in await own_env.query("a", "SHOW CREATE TABLE t")


async def test_bounded_staleness_transaction_cannot_write(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
    assert await own_env.query("a", "SET transaction_isolation = 'bounded staleness 5s'") == "SET"
    assert await own_env.query("a", "SELECT * FROM t") == "1\nSELECT 1"
    assert await own_env.query("a", "INSERT INTO t VALUES (2)") == (
        "ERROR 25006: cannot execute INSERT in a read-only transaction"
    )
    await own_env.query("a", "RESET transaction_isolation")
    assert await own_env.query("a", "INSERT INTO t VALUES (2)") == "INSERT 0 1"
    await own_env.query("a", "SET transaction_isolation = 'bounded staleness 5s'")
    await own_env.query("a", "SET transaction_isolation TO DEFAULT")
    assert await own_env.query("a", "INSERT INTO t VALUES (3)") == "INSERT 0 1"
    assert await own_env.query("a", "BEGIN ISOLATION LEVEL BOUNDED STALENESS '1 min'") == "BEGIN\nT"
    assert await own_env.query("a", "SHOW transaction_isolation") == (
        "bounded staleness 1min\nSHOW\nT"
    )
    assert await own_env.query("a", "COMMIT") == "COMMIT"


async def test_emit_timestamp_notice_shows_time_of_query(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)")
    await own_env.query("a", "SET emit_timestamp_notice = on")
    for query in ("SELECT * FROM t", "SELECT * FROM t WHERE k = 1"):
        answer = await own_env.query("a", f"BEGIN; SELECT mz_now()::text; {query}; COMMIT")
        now = answer.splitlines()[1]
        assert answer.endswith(f"\nNOTICE: query timestamp: {now}")


async def test_real_time_recency_sees_acknowledged_writes(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE TABLE t (k int)")
    await own_env.query("a", "CREATE MATERIALIZED VIEW n AS SELECT count(*) FROM t")
    await own_env.query("b", "SET real_time_recency = on; SET real_time_recency_timeout = '5s'")
    assert await own_env.query("b", "SHOW real_time_recency_timeout") == "5s\nSHOW"
    for count in range(1, 6):
        await own_env.query("a", "INSERT INTO t VALUES (1)")
        assert await own_env.query("b", "SELECT count(*) FROM t") == f"{count}\nSELECT 1"
        assert await own_env.query("b", "SELECT * FROM n") == f"{count}\nSELECT 1"
    refused = await own_env.query("b", "SET real_time_recency = perhaps")
    assert refused.startswith("ERROR 22023")


async def test_lag_relations_show_lag_and_slowest_input(own_env: TestEnvironment) -> None:
    await own_env.ran(
        "a",
        "CREATE TABLE t (k int)",
        "CREATE MATERIALIZED VIEW quick AS TABLE t",
        "CREATE CLUSTER slow (SIZE 'embedded')",
        "CREATE MATERIALIZED VIEW slow IN CLUSTER slow AS TABLE quick",
        "CREATE MATERIALIZED VIEW above AS TABLE slow",
        "SELECT count(*) FROM above",
        "DROP CLUSTER REPLICA slow.r1",
        "INSERT INTO t VALUES (1)",
    )
    lags = (
        "SELECT o.name, local_lag >= interval '200ms', global_lag >= interval '200ms', l.name,"
        " g.name, w.lag >= interval '200ms'"
        " FROM mz_internal.mz_materialization_lag JOIN mz_objects o ON o.id = object_id"
        " JOIN mz_objects l ON l.id = slowest_local_input_id"
        " JOIN mz_objects g ON g.id = slowest_global_input_id"
        " JOIN mz_internal.mz_wallclock_global_lag w USING (object_id) ORDER BY 1"
    )
    shown = ["above|f|t|slow|t|t", "quick|f|f|t|t|f", "slow|t|t|quick|t|t", "SELECT 3"]
    async with asyncio.timeout(60):  # on a busy machine the quick one is late now and then
        while (await own_env.query("a", lags)).splitlines() != shown:
            pass


def test_constant_view_is_readable_beside_table(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=10)
        await env.open()
        await env.ran(
            "a",
            "CREATE TABLE t (k int)",
            "INSERT INTO t VALUES (1)",
            "CREATE MATERIALIZED VIEW one AS SELECT 1 AS k",
            "CREATE VIEW two AS VALUES (1), (2)",
            "CREATE INDEX by_column ON two (column1)",
            "SELECT * FROM one",
        )
        for again in (False, True):
            if again:  # what it was allowed to forget is forgotten for good
                await env.reopen()
            coordinator = env.environment.coordinator
            await until(lambda it=coordinator: all(map(it.is_hydrated, it.as_ofs)))  # type: ignore[misc]
            await coordinator.allow_compaction()
            now = coordinator.oracle.read_ts()
            assert all(coordinator.holds.since(id) <= now for id in coordinator.as_ofs)
            async with asyncio.timeout(20):
                answer = await env.query("a", "SELECT * FROM one JOIN t USING (k)")
                assert answer == "1\nSELECT 1"
                answer = await env.query("a", "SELECT * FROM two JOIN t ON k = column1")
                assert answer == "1|1\nSELECT 1"
                answer = await env.query("a", "BEGIN; TABLE t; TABLE one; TABLE two; COMMIT")
                assert answer == "BEGIN\n1\nSELECT 1\n1\nSELECT 1\n1\n2\nSELECT 2\nCOMMIT"
        assert "ERROR" not in await env.query(
            "a", "CREATE MATERIALIZED VIEW above AS SELECT * FROM one JOIN t USING (k)"
        )
        assert await env.query("a", "TABLE above") == "1\nSELECT 1"
        await env.close()

    asyncio.run(main())


def test_index_holds_history_of_its_inputs() -> None:
    holds = ReadHolds(lag_ms=10)
    holds.add(U1, 0, lambda: 1001)
    holds.add(U2, 0, lambda: 1001, [U1], lag_ms=500, durable=False)
    holds.add(U3, 0, lambda: 1001, [U1], lag_ms=900)
    assert holds.due() == {U1: 500, U2: 500, U3: 100}
    holds.retain(U2, None)
    assert holds.due() == {U1: 990, U2: 990}


async def test_as_of_time_ahead_of_tables_waits(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)")
    for _ in range(3):
        assert await own_env.query("a", "SELECT k FROM t AS OF now()") == "1\nSELECT 1"
        assert await own_env.query("a", "SELECT * FROM t WHERE k = 1 AS OF now()") == "1\nSELECT 1"


async def test_bounded_staleness_never_waits_in_block(own_env: TestEnvironment) -> None:
    coordinator = own_env.environment.coordinator
    await own_env.query("a", "CREATE CLUSTER c (REPLICAS (r1 (SIZE 'embedded')))")
    await own_env.query("a", "CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
    await own_env.query("a", "CREATE MATERIALIZED VIEW m IN CLUSTER c AS SELECT count(*) FROM t")
    assert await own_env.query("a", "SELECT * FROM m") == "1\nSELECT 1"
    await own_env.query("a", "DROP CLUSTER REPLICA c.r1")
    await own_env.query("a", "INSERT INTO t VALUES (2)")
    (m,) = [each.id for each in coordinator.state.items() if each.name == "m"]
    await until(lambda: coordinator.upper(m) <= coordinator.oracle.read_ts())
    await own_env.query("a", "SET transaction_isolation = 'bounded staleness 60s'")
    assert await own_env.query("a", "BEGIN; SELECT count(*) FROM t") == "BEGIN\n2\nSELECT 1\nT"
    for query in ("SELECT * FROM m", "DECLARE c CURSOR FOR SELECT * FROM m, t"):
        await own_env.query("a", "SAVEPOINT s")
        async with asyncio.timeout(10):
            late = (await own_env.query("a", query)).splitlines()
        assert late[0] == (
            "ERROR 40001: could not serialize access: this relation is not known yet at the "
            "time at which the transaction reads, and is not waited for"
        )
        assert '; "m" is known before ' in late[1]
        await own_env.query("a", "ROLLBACK TO s")
    await own_env.query("a", "ROLLBACK")
    # One that reads it first has its time for all.
    answers = [await own_env.query("a", "BEGIN; SELECT * FROM m")]
    answers.append(await own_env.query("a", "SELECT count(*) FROM t"))
    assert answers == ["BEGIN\n1\nSELECT 1\nT", "1\nSELECT 1\nT"]


@pytest.mark.parametrize("level", ["serializable", "bounded staleness 10min"])
async def test_read_beside_late_view_fails_if_history_is_gone(
    own_env: TestEnvironment, level: str
) -> None:
    coordinator = own_env.environment.coordinator
    await own_env.query("a", "CREATE CLUSTER c (REPLICAS (r1 (SIZE 'embedded')))")
    await own_env.query("a", "CREATE TABLE t (k int); CREATE TABLE z (k int)")
    await own_env.query("a", "CREATE MATERIALIZED VIEW m IN CLUSTER c AS SELECT count(*) FROM t")
    assert await own_env.query("a", "SELECT * FROM m") == "0\nSELECT 1"
    await own_env.query("a", "DROP CLUSTER REPLICA c.r1")
    (m,) = [each.id for each in coordinator.state.items() if each.name == "m"]
    (z,) = [each.id for each in coordinator.state.items() if each.name == "z"]
    coordinator.holds.retain(z, 1)
    await until(lambda: coordinator.holds.since(z) >= coordinator.upper(m))
    await own_env.query("a", f"SET transaction_isolation = '{level}'")
    await own_env.query("a", "BEGIN; SELECT * FROM m")
    late = (await own_env.query("a", "SELECT * FROM z")).splitlines()
    assert late[0] == (
        "ERROR 40001: could not serialize access: the transaction reads at a time before this "
        "relation could be read"
    )
    assert '; "z" is readable from ' in late[1]
    await own_env.query("a", "ROLLBACK")
    if level != "serializable":
        both = (await own_env.query("a", "SELECT * FROM m, z")).splitlines()
        assert both[0] == (
            "ERROR 40001: there is no time at which all of these relations are known, and none "
            "is waited for"
        )
        assert both[1].startswith('DETAIL: "m" is known before ')
