"""Peeks of several replicas: which answer counts, and which failure."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.controller.peeks import MOST_LOST, PeekRequest, Peeks
from foreshore.compute.protocol import (
    CancelPeek,
    CreateInstance,
    Failure,
    PeekPartTaken,
    PeekResponse,
    Response,
)
from foreshore.compute.result import Result
from foreshore.errors import DatabaseError
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.link import Link
from foreshore.processes.messages import Message
from foreshore.processes.transport import Connection
from tests.compute.runtime.harness import KV_SCHEMA, id_, run, table

(U1,) = table("u1")
ROWS = KV_SCHEMA.empty_table()
NOT_UP = Failure("57P03", "the engine is not up")


class SilentConnection:
    """A connection that ignores everything received."""

    def __init__(self) -> None:
        self.sent: list[Message] = []  # to this replica only

    def send_frame(self, parts: list[Any]) -> None:
        pass

    def send(self, message: Message, tables: Sequence[pa.Table] = ()) -> None:
        self.sent.append(message)


async def asked(
    *names: str, request: PeekRequest | None = None
) -> tuple[Cluster, Peeks, "asyncio.Task[Result]"]:
    """Return a cluster of connected replicas, all asked peek number 1."""
    cluster = Cluster("c", CreateInstance("embedded", {}), lambda _: pytest.fail("not asked for"))
    for name in names:
        link: Link[Response] = Link(
            name, ProcessLauncher(), Response, lambda _: None, lambda *_: None, lambda: None
        )
        connection = cast(Connection[Response], SilentConnection())
        cluster.replicas[name] = Replica(name, link, cluster.instance, connection)
    peeks = Peeks()
    task = asyncio.create_task(peeks.ask(cluster, request or PeekRequest(1, U1), ()))
    await asyncio.sleep(0)
    return cluster, peeks, task


def test_failure_of_last_replica_is_the_answer() -> None:
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


def test_peek_does_not_wait_for_dropped_replica() -> None:
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


def test_peek_waits_for_new_replica_after_last_is_dropped() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a")
        (one,) = cluster.replicas.values()
        cluster.replicas.clear()
        peeks.lost(cluster, one)
        peeks.dropped(cluster)
        peeks.answered(one, PeekResponse(1, 1), (ROWS,))
        assert (await task).num_rows == 0

    run(scenario)


def rows(*numbers: int) -> tuple[pa.Table]:
    """Return rows as in a response."""
    values = [f"w{n}" for n in numbers]
    return (pa.table([pa.array(numbers, pa.int32()), pa.array(values)], ["k", "v"]),)


def sent_to(replica: Replica) -> list[Message]:
    """Return the messages sent to one replica only."""
    return cast(SilentConnection, replica.connection).sent


async def soon(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


def test_parts_come_from_the_first_replica_and_the_others_are_cancelled() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        peeks.answered(one, PeekResponse(1, 1, more=True), rows(1, 2))
        assert sent_to(other) == [CancelPeek(1)]
        peeks.answered(other, PeekResponse(1, 1, more=True), rows(8, 9))
        peeks.answered(other, PeekResponse(1, 0, Failure("57014", "canceled")), ())
        await soon(lambda: sent_to(one) == [PeekPartTaken(1)])
        peeks.answered(one, PeekResponse(1, 1), rows(3))
        assert (await task).whole().column(0).to_pylist() == [1, 2, 3]

    run(scenario)


def test_peek_starts_again_when_its_replica_is_lost_before_the_last_part() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        peeks.answered(one, PeekResponse(1, 1, more=True), rows(1, 2))
        await soon(lambda: sent_to(one) == [PeekPartTaken(1)])
        one.connection = None
        peeks.lost(cluster, one)
        await soon(lambda: list(cluster.peeks) == [2])
        peeks.answered(other, PeekResponse(2, 1, more=True), rows(2, 1))
        peeks.answered(other, PeekResponse(2, 1), rows(3))
        assert (await task).whole().column(0).to_pylist() == [2, 1, 3]

    run(scenario)


@pytest.mark.parametrize("begun", [False, True])
def test_peek_that_loses_replicas_again_and_again_fails(begun: bool) -> None:
    """Else it would end each replacement, too. What has been dropped does not count."""

    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        for times in range(1, MOST_LOST):
            (number,) = cluster.peeks
            peeks.answered(other, PeekResponse(number, 0, NOT_UP), ())
            if begun:
                peeks.answered(one, PeekResponse(number, 1, more=True), rows(1, 2))
            peeks.lost(cluster, one)
            peeks.lost(cluster, other)  # which did not evaluate it
            if begun:
                await soon(lambda: list(cluster.peeks) == [times + 1])  # noqa: B023
        del cluster.replicas["b"]
        peeks.lost(cluster, other)
        peeks.dropped(cluster)
        await asyncio.sleep(0)
        assert not task.done()
        peeks.lost(cluster, one)
        with pytest.raises(DatabaseError, match="have ended while they evaluated") as failed:
            await task
        assert failed.value.sqlstate == "58000"

    run(scenario)


def test_peek_goes_on_while_a_replica_that_lives_may_answer_it() -> None:
    """The other one ends for reasons of its own."""

    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, other = cluster.replicas.values()
        for _ in range(2 * MOST_LOST):
            peeks.lost(cluster, other)
        peeks.answered(one, PeekResponse(1, 1, more=True), rows(1, 2))
        for _ in range(2 * MOST_LOST):
            peeks.lost(cluster, other)
        peeks.answered(one, PeekResponse(1, 1), rows(3))
        assert (await task).num_rows == 3

    run(scenario)


def test_peek_that_waits_for_an_index_ends_no_replica() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", request=PeekRequest(1, U1, index=id_("u9")))
        (one,) = cluster.replicas.values()
        for _ in range(2 * MOST_LOST):
            peeks.lost(cluster, one)
        peeks.answered(one, PeekResponse(1, 1), (ROWS,))
        assert (await task).num_rows == 0

    run(scenario)


def test_failure_after_the_first_part_fails_the_peek() -> None:
    async def scenario() -> None:
        cluster, peeks, task = await asked("a", "b")
        one, _ = cluster.replicas.values()
        peeks.answered(one, PeekResponse(1, 1, more=True), rows(1, 2))
        peeks.answered(one, PeekResponse(1, 0, Failure("53200", "out of memory")), ())
        with pytest.raises(DatabaseError, match="out of memory"):
            await task
        assert not cluster.peeks

    run(scenario)
