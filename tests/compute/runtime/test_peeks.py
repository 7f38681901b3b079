"""Peeks that several replicas are asked: whose answer counts, and whose failure."""

import asyncio
from typing import Any, cast

import pytest

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.controller.link import ReplicaLink
from foreshore.compute.controller.peeks import PeekRequest, Peeks
from foreshore.compute.controller.process import ProcessLauncher
from foreshore.compute.protocol import CreateInstance, Failure, PeekResponse, Response
from foreshore.compute.result import Result
from foreshore.compute.transport import Connection
from foreshore.errors import DatabaseError
from tests.compute.runtime.harness import KV_SCHEMA, run, table

(U1,) = table("u1")
ROWS = KV_SCHEMA.empty_table()
NOT_UP = Failure("57P03", "the engine is not up")


class Deaf:
    """A connection on which nobody is heard."""

    def send_frame(self, parts: list[Any]) -> None:
        pass


async def asked(*names: str) -> tuple[Cluster, Peeks, "asyncio.Task[Result]"]:
    """Return a cluster of connected replicas, all asked for one peek, number 1."""
    cluster = Cluster("c", CreateInstance("embedded", {}), lambda _: pytest.fail("not asked for"))
    for name in names:
        link = ReplicaLink(name, ProcessLauncher(), lambda _: None, lambda *_: None, lambda: None)
        connection = cast(Connection[Response], Deaf())
        cluster.replicas[name] = Replica(name, link, connection)
    peeks = Peeks()
    task = asyncio.create_task(peeks.ask(cluster, PeekRequest(1, U1), ()))
    await asyncio.sleep(0)
    return cluster, peeks, task


def test_one_replica_s_failure_counts_when_no_other_can_answer() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        peeks.answered(one, PeekResponse(1, 0, NOT_UP), ())
        await asyncio.sleep(0)
        assert not task.done()
        peeks.answered(other, PeekResponse(1, 0, NOT_UP), ())
        with pytest.raises(DatabaseError, match="not up"):
            await task

    run(scenario)


def test_a_peek_does_not_wait_for_a_replica_that_is_dropped() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        peeks.answered(one, PeekResponse(1, 0, NOT_UP), ())
        del cluster.replicas["b"]
        peeks.lost(cluster, other)
        peeks.dropped(cluster)
        async with asyncio.timeout(10):
            with pytest.raises(DatabaseError, match="not up"):
                await task

    run(scenario)


def test_a_peek_waits_for_a_replica_to_come_when_the_last_is_dropped() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a")
        (one,) = cluster.replicas.values()
        cluster.replicas.clear()
        peeks.lost(cluster, one)
        peeks.dropped(cluster)
        peeks.answered(one, PeekResponse(1, 1), (ROWS,))
        assert (await task).num_rows == 0

    run(scenario)
