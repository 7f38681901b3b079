"""REFRESH options of materialized views: their contents are those of the last refresh."""

import asyncio
from pathlib import Path

import pytest

from foreshore.clock import SystemClock
from tests.adapter.harness import TestEnvironment, in_environment, until

VIEW = "CREATE MATERIALIZED VIEW m {options} AS SELECT k, count(*) AS n FROM t GROUP BY k"
READ = "SELECT n FROM m WHERE k = 1"


async def made(env: TestEnvironment, options: str) -> None:
    await env.ran("s", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1), (2)")
    await env.ran("s", VIEW.format(options=options))


async def insert(env: TestEnvironment) -> None:
    await env.ran("w", "INSERT INTO t VALUES (1)")


@pytest.mark.parametrize("policy", ["INCREMENTAL", "FULL"])
def test_scheduled_view_changes_at_refreshes_only(tmp_path: Path, policy: str) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, f"WITH (REFRESH EVERY '1 day', REFRESH POLICY = {policy})")
        await env.ran("s", "CREATE MATERIALIZED VIEW above AS SELECT sum(n) AS n FROM m")
        count = 1
        for round in range(3):
            await insert(env)
            assert await env.query("s", READ) == f"{count}\nSELECT 1"  # without waiting
            assert await env.query("s", "SELECT n FROM above") == f"{count + 1}\nSELECT 1"
            await insert(env)
            concurrently = "CONCURRENTLY " if round else ""
            refresh = f"REFRESH MATERIALIZED VIEW {concurrently}m"
            assert await env.query("s", refresh) == "REFRESH MATERIALIZED VIEW"
            count += 2
            assert await env.query("r", READ) == f"{count}\nSELECT 1"
            assert await env.query("r", "SELECT n FROM above") == f"{count + 1}\nSELECT 1"
            if round == 0:
                await env.reopen()
            elif round == 1:  # the replica starts anew, and begins at the next refresh
                await env.ran("s", "ALTER CLUSTER quickstart SET (THREADS = 1)")
                assert await env.query("r", READ) == f"{count}\nSELECT 1"
        compute = env.environment.coordinator.compute
        if policy == "FULL":
            await until(lambda: not any(_states(env, "m")))
        shown = await env.query("s", "SHOW CREATE MATERIALIZED VIEW m")
        assert "WITH (REFRESH EVERY '24:00:00' ALIGNED TO '20" in shown
        assert f"REFRESH POLICY = {policy}) AS SELECT" in shown
        created = shown.split("|")[1].split("\n")[0].replace(".m ", ".again ")
        await env.ran("s", created)
        again = await env.query("s", "SHOW CREATE MATERIALIZED VIEW again")
        assert again.split("WITH (")[1] == shown.split("WITH (")[1]
        assert compute.schedule is not None
        explained = await env.query("s", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW m")
        assert ("computed anew" if policy == "FULL" else "by the changes since") in explained

    in_environment(tmp_path, scenario)


def _states(env: TestEnvironment, name: str) -> list[str]:
    """Return the states of a view's dataflow on the replicas."""
    state = env.environment.coordinator.state
    (id,) = (item.id for item in state.items() if item.name == name)
    found = env.environment.coordinator.compute.clusters.dataflows()
    return [each.state for _, each in found if each.id == id]


def test_transaction_does_not_see_its_writes_in_scheduled_view(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (REFRESH EVERY '1 day')")
        await env.ran("s", "CREATE VIEW above AS SELECT n FROM m WHERE k = 1")
        await env.ran("s", "BEGIN", "INSERT INTO t VALUES (1)")
        for read in (READ, "SELECT n FROM above", f"SELECT sum(n) FROM ({READ}) x"):
            assert (await env.query("s", read)).startswith("1\nSELECT 1"), read
        both = "SELECT (SELECT n FROM above), (SELECT count(*) FROM t WHERE k = 1)"
        assert (await env.query("s", both)).startswith("1|2\nSELECT 1")
        await env.ran("s", "COMMIT", "BEGIN", VIEW.replace(" m ", " new ").format(options=""))
        await env.ran("s", "INSERT INTO t VALUES (1)")
        assert (await env.query("s", "SELECT n FROM new WHERE k = 1")).startswith("3\n")
        await env.ran("s", "ROLLBACK")

    in_environment(tmp_path, scenario)


def test_view_with_lag_is_exact_as_of_each_refresh(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (TARGET LAG = '300ms')")
        oracle = env.environment.coordinator.oracle
        begin = oracle.read_ts()
        while oracle.read_ts() < begin + 1500:
            await insert(env)
            await asyncio.sleep(0.02)
        last = oracle.read_ts()
        for time in range(begin, last, 37):
            refreshed = max(time - time % 300, begin)
            expected = await env.query("s", f"SELECT count(*) FROM t WHERE k = 1 AS OF {refreshed}")
            assert await env.query("s", f"{READ} AS OF {time}") == expected, (time, refreshed)
        strategies = (
            "SELECT type, interval FROM mz_internal.mz_materialized_view_refresh_strategies"
        )
        assert await env.query("s", f"{strategies} ORDER BY type") == (
            "at-creation|NULL\ntarget-lag|00:00:00.3\nSELECT 2"
        )
        refreshes = (
            "SELECT (next_refresh::text::int8 - last_completed_refresh::text::int8) / 300"
            " FROM mz_internal.mz_materialized_view_refreshes"
        )
        assert await env.query("s", refreshes) == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_downstream_view_is_refreshed_with_those_that_read_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (TARGET LAG = DOWNSTREAM)")
        await env.ran("s", "CREATE VIEW plain AS SELECT n FROM m WHERE k = 1")
        middle = "CREATE MATERIALIZED VIEW middle WITH (TARGET LAG = DOWNSTREAM) AS"
        await env.ran("s", f"{middle} SELECT n FROM plain")
        await insert(env)
        oracle = env.environment.coordinator.oracle
        begin = oracle.read_ts()
        await until(lambda: oracle.read_ts() > begin + 1000)
        assert await env.query("s", READ) == "1\nSELECT 1"  # as nothing needs it
        top = "CREATE MATERIALIZED VIEW top WITH (TARGET LAG = '400ms') AS SELECT n FROM middle"
        await env.ran("s", top)
        for reopened in (False, True):
            if reopened:
                await env.reopen()
                oracle = env.environment.coordinator.oracle
            begin = oracle.read_ts() + 400
            while oracle.read_ts() < begin + 1500:
                await insert(env)
                await asyncio.sleep(0.02)
            last = oracle.read_ts()
            for time in range(begin - begin % 400 + 400, last, 139):
                at = f"AS OF {time}"
                count = f"SELECT count(*) FROM t WHERE k = 1 AS OF {time - time % 400}"
                expected = await env.query("s", count)
                for read in (READ, "SELECT n FROM middle", "SELECT n FROM top"):
                    assert await env.query("s", f"{read} {at}") == expected, (read, time)
        shown = await env.query("s", "SHOW CREATE MATERIALIZED VIEW m")
        assert "WITH (TARGET LAG = DOWNSTREAM, REFRESH POLICY = AUTO)" in shown
        strategies = "SELECT type FROM mz_internal.mz_materialized_view_refresh_strategies"
        assert "downstream" in await env.query("s", strategies)
        await env.ran("s", "DROP MATERIALIZED VIEW top", "REFRESH MATERIALIZED VIEW m")
        expected = await env.query("s", "SELECT count(*) FROM t WHERE k = 1")
        assert await env.query("s", READ) == expected

    in_environment(tmp_path, scenario)


def test_single_refreshes_happen_at_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        hour = 3_600_000
        later = env.environment.coordinator.oracle.read_ts() + hour
        await made(env, f"WITH (REFRESH AT CREATION, REFRESH AT {later})")
        await insert(env)
        assert await env.query("s", READ) == "1\nSELECT 1"
        now = SystemClock.now
        monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + hour)
        await until(lambda: env.environment.coordinator.oracle.read_ts() > later)
        assert await env.query("s", READ) == "2\nSELECT 1"
        await insert(env)
        assert await env.query("s", READ) == "2\nSELECT 1"
        refreshes = "SELECT next_refresh FROM mz_internal.mz_materialized_view_refreshes"
        assert await env.query("s", refreshes) == "NULL\nSELECT 1"
        await env.reopen()
        assert await env.query("s", READ) == "2\nSELECT 1"
        await env.ran("s", "REFRESH MATERIALIZED VIEW m")
        assert await env.query("s", READ) == "3\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_errors_are_those_of_the_last_refresh(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
        await env.ran(
            "s",
            "CREATE MATERIALIZED VIEW m WITH (REFRESH EVERY '1 day') AS SELECT 6 / k AS q FROM t",
        )
        read, refresh = "SELECT q FROM m", "REFRESH MATERIALIZED VIEW m"
        await env.ran("w", "INSERT INTO t VALUES (0)")
        assert await env.query("s", read) == "6\nSELECT 1"
        await env.ran("s", refresh)
        for _ in range(2):
            assert (await env.query("s", read)).startswith("ERROR 22012")
            await env.reopen()
        await env.ran("w", "DELETE FROM t WHERE k = 0")
        assert (await env.query("s", read)).startswith("ERROR 22012")
        await env.ran("s", refresh)
        assert await env.query("s", read) == "6\nSELECT 1"
        await env.ran("w", "INSERT INTO t VALUES (2)")
        await env.ran("s", "ALTER CLUSTER quickstart SET (THREADS = 1)", refresh)
        assert await env.query("s", f"{read} ORDER BY q") == "3\n6\nSELECT 2"

    in_environment(tmp_path, scenario)


def test_refresh_statement_and_options_are_checked(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (REFRESH = ON COMMIT)")
        await insert(env)
        assert await env.query("s", "REFRESH MATERIALIZED VIEW m") == "REFRESH MATERIALIZED VIEW"
        assert await env.query("s", READ) == "2\nSELECT 1"
        for statement, error in {
            "REFRESH MATERIALIZED VIEW t": "42809",
            "REFRESH MATERIALIZED VIEW none": "42P01",
            "REFRESH MATERIALIZED VIEW m WITH NO DATA": "0A000",
            VIEW.format(options="WITH (REFRESH EVERY '1 month')"): "22023",
            VIEW.format(options="WITH (REFRESH EVERY '0s')"): "22023",
            VIEW.format(options="WITH (REFRESH ON COMMIT, REFRESH AT CREATION)"): "22023",
            VIEW.format(options="WITH (REFRESH POLICY = FULL)"): "22023",
            VIEW.format(options="WITH (REFRESH POLICY = often, TARGET LAG '1s')"): "22023",
            VIEW.format(options="WITH (REFRESH EVERY '1s', TARGET LAG = '1s')"): "0A000",
            "CREATE MATERIALIZED VIEW x WITH (REFRESH EVERY '1s') AS"
            " SELECT k FROM t WHERE mz_now() > k": "0A000",
        }.items():
            answer = await env.query("s", statement)
            assert answer.startswith(f"ERROR {error}"), (statement, answer)
        await env.ran("s", "ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 0)")
        assert (await env.query("s", "REFRESH MATERIALIZED VIEW m")).startswith("ERROR 55000")

    in_environment(tmp_path, scenario)


def test_table_under_scheduled_view_may_be_rewritten(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (REFRESH EVERY '1 day')")
        await insert(env)
        await env.ran("s", "ALTER TABLE t ADD COLUMN extra int DEFAULT 3")
        assert await env.query("s", READ) == "1\nSELECT 1"
        await env.ran("s", "REFRESH MATERIALIZED VIEW m")
        assert await env.query("s", READ) == "2\nSELECT 1"
        await env.ran("s", "DROP MATERIALIZED VIEW m")

    in_environment(tmp_path, scenario)


def test_scheduled_view_moves_and_cluster_is_resized(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "WITH (REFRESH EVERY '1 day')")
        await env.ran("s", "CREATE CLUSTER d (SIZE 'duckdb')")
        await env.ran("s", "ALTER MATERIALIZED VIEW m SET CLUSTER d")
        await insert(env)
        assert await env.query("s", READ) == "1\nSELECT 1"
        await env.ran("s", "DROP CLUSTER quickstart CASCADE", "SET cluster = d")
        await env.ran("s", "REFRESH MATERIALIZED VIEW m")
        assert await env.query("s", READ) == "2\nSELECT 1"
        wait = "WITH (WAIT UNTIL READY (TIMEOUT '1min', ON TIMEOUT 'ROLLBACK'))"
        await env.ran("s", f"ALTER CLUSTER d SET (SIZE 'embedded') {wait}")
        await insert(env)
        assert await env.query("s", READ) == "2\nSELECT 1"
        await env.ran("s", "REFRESH MATERIALIZED VIEW m")
        assert await env.query("s", READ) == "3\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_view_refreshed_once_over_another_is_filled(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        once = "WITH (REFRESH AT CREATION) AS"
        await made(env, "WITH (REFRESH AT CREATION)")
        await env.ran("s", f"CREATE MATERIALIZED VIEW above {once} SELECT sum(n) AS n FROM m")
        await env.ran("s", "CREATE MATERIALIZED VIEW top AS SELECT n + 1 AS n FROM above")
        async with asyncio.timeout(60):
            assert await env.query("s", "SELECT n FROM above") == "2\nSELECT 1"
            assert await env.query("s", "SELECT n FROM top") == "3\nSELECT 1"

    in_environment(tmp_path, scenario)
