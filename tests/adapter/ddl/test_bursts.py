"""Burst replicas: an extra replica serves a cluster while its own replicas hydrate."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest

from foreshore.compute.controller import bursts
from foreshore.compute.replica.instance import Instance
from tests.adapter.harness import TestEnvironment, in_environment, until

STRATEGY = "AUTO SCALING STRATEGY = (ON HYDRATION (HYDRATION SIZE = 'duckdb', LINGER DURATION = "
SHOWN = "SELECT size, status, lingering FROM mz_internal.mz_burst_cluster_replicas"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bursts begin as soon as something hydrates."""
    monkeypatch.setattr(bursts, "PATIENCE", 0.0)
    monkeypatch.setattr(bursts, "LOOK_SECONDS", 0.02)


@pytest.fixture
def embedded_starts(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the engines of embedded replicas start once the event is set."""
    opened, start = asyncio.Event(), Instance.start

    async def later(self: Instance, executor: Executor, tried: Callable[[], None]) -> None:
        if self.command is not None and self.command.engine == "embedded":
            await opened.wait()
        await start(self, executor, tried)

    monkeypatch.setattr(Instance, "start", later)
    return opened


def test_burst_replica_answers_until_the_others_are_ready(
    tmp_path: Path, embedded_starts: asyncio.Event
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        status = env.environment.coordinator.compute.clusters.status
        await env.ran(
            "s",
            f"CREATE CLUSTER c (SIZE = 'embedded', {STRATEGY}'0s')))",
            "SET cluster = c",
            "CREATE TABLE t (k int)",
            "INSERT INTO t VALUES (1), (2), (2)",
            "CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
        )
        # The cluster's own replica does not start, so the answer is the extra one's.
        assert await env.query("s", "SELECT n FROM v WHERE k = 2") == "2\nSELECT 1"
        assert await env.query("s", SHOWN) == "duckdb|online|f\nSELECT 1"
        assert (
            await env.query(
                "s",
                "SELECT count(*) FROM mz_cluster_replicas r JOIN mz_clusters c"
                " ON c.id = cluster_id WHERE c.name = 'c'",
            )
            == "1\nSELECT 1"
        )
        embedded_starts.set()
        await until(lambda: not any("burst" in each["replica"] for each in status()))
        assert await env.query("s", SHOWN) == "SELECT 0"
        await env.ran("s", "INSERT INTO t VALUES (2)")
        assert await env.query("s", "SELECT n FROM v WHERE k = 2") == "3\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_burst_replica_lingers_and_ends_with_its_strategy(
    tmp_path: Path, embedded_starts: asyncio.Event
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        compute = env.environment.coordinator.compute
        await env.ran(
            "s",
            "CREATE CLUSTER c (SIZE = 'embedded')",
            f"ALTER CLUSTER c SET ({STRATEGY}'1h')))",
            "SET cluster = c",
            "CREATE TABLE t (k int)",
            "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t",
        )
        assert await env.query("s", "SELECT n FROM m") == "0\nSELECT 1"
        embedded_starts.set()
        await until(lambda: any(each.ready_at for each in compute.bursts))
        assert await env.query("s", SHOWN) == "duckdb|online|t\nSELECT 1"
        shown = await env.query("s", "SHOW CREATE CLUSTER c")
        assert f"{STRATEGY}'3600000ms'))" in shown
        await env.ran("s", "ALTER CLUSTER c RESET (AUTO SCALING STRATEGY)")
        await until(lambda: not list(compute.bursts))
        assert "AUTO SCALING" not in await env.query("s", "SHOW CREATE CLUSTER c")

    in_environment(tmp_path, scenario)


def test_burst_survives_restart_and_needs_a_replica(
    tmp_path: Path, embedded_starts: asyncio.Event
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            f"CREATE CLUSTER c (SIZE = 'embedded', {STRATEGY}'0s')))",
            "SET cluster = c",
            "CREATE TABLE t (k int)",
            "INSERT INTO t VALUES (1)",
            "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t",
        )
        assert await env.query("s", "SELECT n FROM m") == "1\nSELECT 1"
        await env.reopen()
        await env.ran("s", "SET cluster = c", "INSERT INTO t VALUES (2)")
        assert await env.query("s", "SELECT n FROM m") == "2\nSELECT 1"
        assert await env.query("s", SHOWN) == "duckdb|online|f\nSELECT 1"
        await env.ran("s", "ALTER CLUSTER c SET (REPLICATION FACTOR 0)")
        await until(lambda: not list(env.environment.coordinator.compute.bursts))
        await env.ran("s", "DROP CLUSTER c CASCADE")

    in_environment(tmp_path, scenario)


def test_invalid_burst_is_refused(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for options in (
            "HYDRATION SIZE = 'huge'",
            "LINGER DURATION = '1 month'",
            "COLOUR = 'red'",
        ):
            strategy = f"AUTO SCALING STRATEGY (ON HYDRATION ({options}))"
            made = await env.query("s", f"CREATE CLUSTER c ({strategy})")
            assert made.startswith("ERROR 22023"), made

    in_environment(tmp_path, scenario)
