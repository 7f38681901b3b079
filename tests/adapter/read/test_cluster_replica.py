"""SET cluster_replica: only that replica answers."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from foreshore.processes.child_process import ProcessLauncher
from tests.adapter.harness import TestEnvironment, in_environment, until
from tests.stopped_process import stop_process

INDEXED = "SELECT n FROM v WHERE k = 1"  # from an arrangement
BULK = "SELECT count(*) FROM t"  # by the engine


async def made(env: TestEnvironment) -> None:
    """Make a cluster of two replicas r1 and r2, which session `s` uses, with an index."""
    for sql in (
        "CREATE CLUSTER two (SIZE = 'embedded', REPLICATION FACTOR = 2)",
        "SET cluster = two",
        "CREATE TABLE t (k int)",
        "INSERT INTO t VALUES (1), (1), (2)",
        "CREATE VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "CREATE INDEX i IN CLUSTER two ON v (k)",
    ):
        assert "ERROR" not in (answer := await env.query("s", sql)), answer
    await until(
        lambda: all(each["ready"] for each in env.environment.coordinator.compute.clusters.status())
    )


def id_of(env: TestEnvironment, name: str) -> str:
    state = env.environment.coordinator.state
    cluster = state.cluster("two")
    assert cluster is not None
    replica = state.replica(cluster.id, name)
    assert replica is not None
    return replica.id


def status_of(env: TestEnvironment, name: str) -> dict[str, Any]:
    (status,) = (
        each
        for each in env.environment.coordinator.compute.clusters.status()
        if each["replica"] == id_of(env, name)
    )
    return status


@contextmanager
def stopped(env: TestEnvironment, name: str) -> Iterator[None]:
    """Let a replica's process stand still meanwhile."""
    pid = status_of(env, name)["pid"]
    stop_process(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was dropped
            os.kill(pid, signal.SIGCONT)


def is_started_anew(env: TestEnvironment, name: str, than: int) -> bool:
    status = status_of(env, name)
    return bool(status["ready"] and status["pid"] != than)


@pytest.mark.full
@pytest.mark.parametrize("query", [INDEXED, BULK])
def test_cluster_replica_setting_selects_answering_replica(tmp_path: Path, query: str) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, launcher=ProcessLauncher())
        await env.open()
        try:
            await made(env)
            await env.ran("all", "CREATE TABLE later (a int)")
            answer = await env.query("s", query)
            assert answer == ("2\nSELECT 1" if query == INDEXED else "3\nSELECT 1")
            for here, other in (("r1", "r2"), ("r2", "r1")):
                await env.query("s", f"SET cluster_replica = {here}")
                with stopped(env, other):
                    assert await env.query("s", query) == answer
                with stopped(env, here):
                    await env.ran(
                        "all", "INSERT INTO later VALUES (1)"
                    )  # it knows no such time yet
                    asking = asyncio.create_task(env.query("s", query))
                    assert await env.query("all", f"SET cluster = two; {query}") == f"SET\n{answer}"
                    pid = status_of(env, other)["pid"]
                    os.kill(pid, signal.SIGKILL)  # the next is told what is still asked
                    await until(lambda: is_started_anew(env, other, pid))  # noqa: B023
                    await asyncio.sleep(0.3)
                    assert not asking.done(), asking.result()
                assert await asking == answer
            await env.query("s", "RESET cluster_replica")
            with stopped(env, "r1"):
                assert await env.query("s", query) == answer
        finally:
            await env.close()

    asyncio.run(main())


def test_unknown_cluster_replica_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, launcher=ProcessLauncher())
        await env.open()
        try:
            await made(env)
            await env.query("s", "SET cluster_replica = r3")
            for query in (INDEXED, BULK, "SELECT * FROM mz_internal.mz_dataflow_statuses"):
                assert await env.query("s", query) == (
                    'ERROR 42704: cluster replica "two.r3" does not exist\n'
                    "HINT: RESET cluster_replica to have any replica of the cluster answer."
                )
            assert await env.query("s", "SELECT 1") == "1\nSELECT 1"
            assert await env.query("s", "SHOW cluster_replica") == "r3\nSHOW"
            await env.query("s", "SET cluster_replica = r2")
            with stopped(env, "r2"):
                asking = asyncio.create_task(env.query("s", BULK))
                await asyncio.sleep(0.3)
                assert not asking.done()
                replica = id_of(env, "r2")
                dropping = asyncio.create_task(env.query("d", "DROP CLUSTER REPLICA two.r2"))
                assert (await asking).startswith("ERROR 42704: cluster replica")
            assert await dropping == "DROP CLUSTER REPLICA"
            assert replica not in str(env.environment.coordinator.compute.clusters.status())
        finally:
            await env.close()

    asyncio.run(main())


def test_dataflow_statuses_follow_cluster_replica_setting(tmp_path: Path) -> None:
    query = (
        "SELECT r.name, o.name, d.state, d.arranged_rows FROM mz_internal.mz_dataflow_statuses d"
        " JOIN mz_cluster_replicas r ON r.id = d.replica_id JOIN mz_objects o ON o.id = d.object_id"
        " WHERE o.name = 'i' ORDER BY 1"
    )

    async def main() -> None:
        env = TestEnvironment(tmp_path, launcher=ProcessLauncher())
        await env.open()
        try:
            await made(env)
            async with asyncio.timeout(30):
                both = "r1|i|running|2\nr2|i|running|2\nSELECT 2"
                while await env.query("s", query) != both:  # noqa: ASYNC110 - a replica tells it in its own time
                    await asyncio.sleep(0.1)
            for name in ("r1", "r2"):
                await env.query("s", f"SET cluster_replica = {name}")
                assert await env.query("s", query) == f"{name}|i|running|2\nSELECT 1"
                assert await env.query("other", query) == both
        finally:
            await env.close()

    asyncio.run(main())


def test_replica_away_longer_than_history_resumes_subscription(
    tmp_path: Path,
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        async def fetched() -> list[str]:
            answer = await env.query("b", "FETCH ALL c WITH (TIMEOUT = '500ms')")
            return [line.partition("|")[2] for line in answer.splitlines() if "|" in line]

        await made(env)
        await until(lambda: all(status_of(env, name)["uppers"] for name in ("r1", "r2")))
        (index,) = status_of(env, "r1")["uppers"]
        compute = env.environment.coordinator.compute
        with stopped(env, "r2"):
            await env.query("b", "SET cluster = two")
            await env.query("b", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE v")
            assert sorted(await fetched()) == ["1|1|2", "1|2|1"]
            begun = compute.upper(index)
            for k in range(3, 6):
                await env.query("s", f"INSERT INTO t VALUES ({k})")
            await until(lambda: compute.since(index) > begun)
            changes = await fetched()
        await env.query("s", "SET cluster_replica = r2")
        async with asyncio.timeout(10):
            assert await env.query("s", "SELECT count(*) FROM v") == "5\nSELECT 1"
        await env.query("s", "RESET cluster_replica; DROP CLUSTER REPLICA two.r1")
        await env.query("s", "INSERT INTO t VALUES (6)")
        while len(changes) < 4:
            changes += await fetched()
        assert changes == [f"1|{k}|1" for k in range(3, 7)]
        assert not status_of(env, "r2")["dataflows"][0]["failures"]

    in_environment(tmp_path, scenario, lag_ms=500, launcher=ProcessLauncher())
