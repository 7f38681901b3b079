"""Materialized views continue when columns of their tables change."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from foreshore.errors import QueryCanceled
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.launch import Launcher
from tests.adapter.harness import TestEnvironment, until
from tests.stopped_process import stop_process

HISTORY = "WITH (RETAIN HISTORY FOR '1h')"


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    """Start processes: tests stop and kill them."""
    return ProcessLauncher()


def now(env: TestEnvironment) -> int:
    return env.environment.coordinator.oracle.read_ts()


def replicas(env: TestEnvironment) -> list[int]:
    return [each["pid"] for each in env.environment.coordinator.compute.clusters.status()]


def signal_replicas(env: TestEnvironment, number: int) -> None:
    for pid in replicas(env):
        os.kill(pid, number)


async def begin(env: TestEnvironment, view: str) -> int:
    """Make a table of one row and a view of it; return a time at which the view has the row."""
    await env.query("s", "DROP TABLE IF EXISTS t CASCADE")
    await env.query("s", f"CREATE TABLE t (k int PRIMARY KEY, v int, x int) {HISTORY}")
    await env.query("s", f"CREATE MATERIALIZED VIEW m {HISTORY} AS {view}")
    await env.query("s", "INSERT INTO t VALUES (1, 1, 1)")
    await env.query("s", "SELECT * FROM m")
    return now(env)


@pytest.mark.parametrize(
    "block",
    [
        "UPDATE t SET v = v + 100; ALTER TABLE t ADD w int",
        "INSERT INTO t VALUES (2, 2); ALTER TABLE t DROP x",
        "TRUNCATE t; ALTER TABLE t ADD w int; INSERT INTO t VALUES (9, 9)",
    ],
)
async def test_view_over_altered_table_includes_writes_of_same_block(
    env: TestEnvironment, block: str
) -> None:
    before = await begin(env, "SELECT sum(v) AS s FROM t")
    assert (await env.query("s", f"BEGIN; {block}; COMMIT")).endswith("COMMIT")
    await env.query("s", "SELECT * FROM m")
    found = await env.query("s", f"SELECT mz_timestamp FROM CHANGES(m, {before})")
    changes = {int(line) for line in found.splitlines()[:-1]}
    both = []
    for time in sorted({time + more for time in changes for more in (-1, 0, 1)} - {before}):
        answer = await env.query("s", f"SELECT sum(v) FROM t AS OF {time}")
        if not answer.startswith("ERROR 22023"):
            both.append((answer, await env.query("s", f"SELECT s FROM m AS OF {time}")))
    assert both
    assert all(table == view for table, view in both), both


async def test_replica_crash_before_commit_keeps_view_history(env: TestEnvironment) -> None:
    before = await begin(env, "SELECT count(*) AS n FROM t")
    await env.query("s", "BEGIN; ALTER TABLE t ADD w int")
    await asyncio.sleep(0.3)
    signal_replicas(env, signal.SIGKILL)
    assert await env.query("s", "COMMIT") == "COMMIT"
    assert await env.query("s", f"SELECT n FROM m AS OF {before}") == "1\nSELECT 1"
    await env.query("s", "INSERT INTO t (k) VALUES (2)")
    assert await env.query("s", "SELECT n FROM m") == "2\nSELECT 1"


@pytest.fixture
def stopped(env: TestEnvironment) -> Iterator[list[int]]:
    """Let replicas that a test stops go on in the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


async def test_alter_that_waits_for_stopped_view_can_be_canceled(
    env: TestEnvironment, stopped: list[int]
) -> None:
    before = await begin(env, "SELECT count(*) AS n FROM t")
    for pid in replicas(env):
        stopped.append(pid)
        stop_process(pid)
    await env.query("s", "INSERT INTO t (k) VALUES (2)")
    altering = asyncio.create_task(env.query("s", "ALTER TABLE t ADD w int", alone=False))
    await asyncio.sleep(0.5)
    assert await env.query("x", "CREATE TEMP TABLE other (a int)") == "CREATE TABLE"
    assert await env.query("x", "INSERT INTO other VALUES (1)") == "INSERT 0 1"
    created = asyncio.create_task(env.query("x", "CREATE TABLE other2 (a int)", alone=False))
    await asyncio.sleep(0.1)
    assert not altering.done()
    assert not created.done()
    (await env.session("s")).interrupts.request(QueryCanceled())
    assert (await altering).startswith("ERROR 57014")
    assert await created == "CREATE TABLE"
    await env.query("s", "SET statement_timeout = '300ms'")
    timed_out = await env.query("s", "ALTER TABLE t ADD w int")
    assert timed_out.startswith("ERROR 57014"), timed_out
    await env.query("s", "SET statement_timeout = 0")
    altering = asyncio.create_task(env.query("s", "ALTER TABLE t ADD w int", alone=False))
    await asyncio.sleep(0.2)
    signal_replicas(env, signal.SIGCONT)
    assert await altering == "ALTER TABLE"
    assert await env.query("s", f"SELECT n FROM m AS OF {before}") == "1\nSELECT 1"
    assert await env.query("s", "SELECT n FROM m") == "2\nSELECT 1"


async def test_alter_does_not_wait_for_view_over_unmaintained_view(env: TestEnvironment) -> None:
    await env.query("s", "CREATE CLUSTER idle (SIZE 'embedded', REPLICATION FACTOR 0)")
    await env.query("s", "CREATE TABLE u (a int)")
    await env.query("s", "CREATE MATERIALIZED VIEW below IN CLUSTER idle AS SELECT a FROM u")
    await begin(env, "SELECT count(*) AS n FROM u")
    made = "CREATE MATERIALIZED VIEW over_both AS SELECT t.k, below.a FROM t, below"
    assert await env.query("s", made) == "CREATE MATERIALIZED VIEW"
    await until(lambda: any(each["ready"] for each in status(env)))
    began = asyncio.get_running_loop().time()
    assert await env.query("s", "ALTER TABLE t ADD w int") == "ALTER TABLE"
    assert asyncio.get_running_loop().time() - began < 10
    await env.query("s", "DROP CLUSTER idle CASCADE; DROP TABLE u CASCADE")


def status(env: TestEnvironment) -> list[dict[str, object]]:
    return env.environment.coordinator.compute.clusters.status()
