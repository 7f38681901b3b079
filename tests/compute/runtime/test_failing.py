"""Reading dependents of a failing view fails at once."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from foreshore.compute.controller.cluster import Replica
from foreshore.compute.engine import ERRORS, output_schema
from foreshore.compute.protocol import (
    CreateDataflow,
    DataflowStatus,
    Frontiers,
    SinkExport,
    SinkUpdates,
    Status,
)
from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.processes.link import Link
from tests.compute.runtime.harness import (
    KV_SCHEMA,
    Environment,
    environment,
    id_,
    index_on,
    run,
    table,
)

(T1, U1, U2) = table("t1", "u1", "u2")
NO_MEMORY = 'shard "u1" cannot be kept up to date: no memory'


class ScriptedReplicas:
    """An index i3 over a view u2 over a view u1, and replicas with scripted responses."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.compute = env.compute
        self.cluster = env.compute.clusters["c"]

    def add(self, name: str) -> None:
        link = cast("Link[Any]", SimpleNamespace(name=name))
        replica = Replica(name, link, self.cluster.instance)
        replica.task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
        self.cluster.replicas[name] = replica

    def reports_failure(self, name: str, *failing: str) -> None:
        statuses = (
            DataflowStatus(id_(id), "failed", 0, 0, 0.0, 0, "no memory", (), "53200", 3)
            for id in failing
        )
        self._deliver(name, Status(True, tuple(statuses), None))

    def lost(self, name: str) -> None:
        self.compute.clusters._lost(self.cluster, self.cluster.replicas[name])

    def connect(self, name: str) -> list[Any]:
        """Connect a replica; return the list of what it is sent."""
        sent: list[Any] = []
        connection = SimpleNamespace(
            send=lambda message, tables=(): sent.append(message),
            send_frame=sent.append,
            listen=lambda on: None,
        )
        self.cluster.connected(self.cluster.replicas[name], cast(Any, connection))
        return sent

    def reports_errors(
        self, name: str, view: str, upper: int, *found: str, number: int = 0
    ) -> None:
        """Report from a replica that a view has no rows, and the errors `found`, before `upper`.

        The report is of the dataflow that the command with a `number` created.
        """
        nothing = output_schema(T1.columns).empty_table()
        rows = [(text, upper - 1, 1) for text in found]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        schema = output_schema(ERRORS)
        errors = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
        self._deliver(name, SinkUpdates(id_(view), 0, upper, number, True), nothing, errors)

    async def number(self, view: str, sent: list[Any]) -> int:
        """Return the number of the last command that has created a view's dataflow."""
        await self.compute._dataflows[id_(view)].created
        commands = [each for each in sent if isinstance(each, CreateDataflow)]
        return [each.number for each in commands if each.description.id == view][-1]

    def replaced(self, name: str, view: str, lower: int, upper: int, *, number: int = 0) -> None:
        """Report from a replica that a view has no updates from `lower` to before `upper`."""
        message = SinkUpdates(id_(view), lower, upper, number)
        errors = output_schema(ERRORS).empty_table()
        self._deliver(name, message, output_schema(T1.columns).empty_table(), errors)

    def reports_upper(self, name: str, view: str, upper: int) -> None:
        """Report from a replica that it knows a view before `upper`."""
        self._deliver(name, Frontiers({id_(view): upper}))

    async def written(self, view: str, upper: int) -> None:
        """Wait until a view's shard has reached exactly `upper`."""
        async with asyncio.timeout(10):
            while self.env.storage.upper(id_(view)) < upper:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert self.env.storage.upper(id_(view)) == upper

    def _deliver(self, name: str, message: Any, *tables: pa.Table) -> None:
        self.compute._responses.deliver(self.cluster.replicas[name], message, tables)


async def outcome_of(asked: Awaitable[None], seconds: float = 10) -> str:
    """Return the outcome for a waiter, or that it is still waiting."""
    try:
        async with asyncio.timeout(seconds):
            await asked
    except DatabaseError as error:
        return error.message
    except TimeoutError:
        return "nothing yet"
    return "all is known"


@pytest.fixture
def run_scripted(tmp_path: Path) -> Callable[[Callable[[ScriptedReplicas], Awaitable[None]]], None]:
    def in_it(scenario: Callable[[ScriptedReplicas], Awaitable[None]]) -> None:
        async def main() -> None:
            async with environment(tmp_path) as env:
                await env.create("t1")
                await env.create("u1", "u2", schema=KV_SCHEMA)
                await env.write({"t1": [((1, "a"), 1)]}, step=8)
                env.compute.create_cluster("c")
                await env.maintain("c", "u1", T1, SinkExport(id_("u1")), as_of=1)
                await env.maintain("c", "u2", U1, SinkExport(id_("u2")), as_of=1)
                await env.maintain("c", "d3", U2, index_on("i3", 0, of=U2), as_of=1)
                scripted = ScriptedReplicas(env)
                scripted.add("r1")
                await scenario(scripted)

        run(main)

    return in_it


InHouse = Callable[[Callable[[ScriptedReplicas], Awaitable[None]]], None]


@pytest.mark.parametrize("asked", ["before", "after"])
def test_readers_of_dependents_fail_without_waiting(run_scripted: InHouse, asked: str) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        for read in ("u1", "u2", "i3"):
            scripted.reports_failure("r1")
            if asked == "after":
                scripted.reports_failure("r1", "u1")
            waiting = asyncio.ensure_future(
                outcome_of(scripted.compute.maintained.check_errors([id_(read)], 7))
            )
            await asyncio.sleep(0)
            scripted.reports_failure("r1", "u1")
            assert await waiting == NO_MEMORY, read

    run_scripted(scenario)


def test_waiters_fail_when_last_working_replica_ends(run_scripted: InHouse) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        scripted.add("r2")
        waiting = [
            asyncio.ensure_future(outcome_of(each, seconds))
            for each, seconds in (
                (scripted.compute.wait_upper(id_("i3"), 7, patient=False), 10),
                (scripted.compute.wait_upper(id_("i3"), 7), 0.2),
                (scripted.compute.maintained.check_errors([id_("i3")], 7), 10),
            )
        ]
        await asyncio.sleep(0)
        scripted.reports_failure("r1", "u1")
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        await scripted.compute.drop_replica("c", "r2")
        assert await asyncio.gather(*waiting) == [NO_MEMORY, "nothing yet", NO_MEMORY]

    run_scripted(scenario)


def test_restarted_dataflow_is_waited_for(run_scripted: InHouse) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        scripted.reports_failure("r1", "u1")
        assert (
            await outcome_of(scripted.compute.maintained.check_errors([id_("u1")], 7)) == NO_MEMORY
        )
        scripted.lost("r1")
        waiting = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("u1")], 7))
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        scripted.reports_errors("r1", "u1", 8)
        assert await waiting == "all is known"

    run_scripted(scenario)


def test_wait_for_errors_of_dropped_view_fails(run_scripted: InHouse) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        waiting = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("u1")], 7))
        )
        await asyncio.sleep(0)
        scripted.compute.drop_dataflow(id_("u1"))
        assert await waiting == 'collection "u1" was dropped'

    run_scripted(scenario)


def test_wait_for_errors_continues_after_handoff(
    run_scripted: InHouse,
) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        waiting = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("u1")], 7))
        )
        given_up = asyncio.ensure_future(scripted.compute.maintained.check_errors([id_("u1")], 7))
        await asyncio.sleep(0)
        scripted.compute.drop_dataflow(id_("u1"), replaced=True)
        await scripted.env.maintain("c", "u1", T1, SinkExport(id_("u1")), as_of=2)
        given_up.cancel()
        with suppress(asyncio.CancelledError, UndefinedObject):
            await given_up
        assert not waiting.done()
        scripted.reports_errors("r1", "u1", 8)
        assert await waiting == "all is known"

    run_scripted(scenario)


def test_late_output_is_not_attributed_to_next_dataflow(run_scripted: InHouse) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        sent = scripted.connect("r1")
        first = await scripted.number("u1", sent)
        scripted.reports_errors("r1", "u1", 4, number=first)
        await scripted.written("u1", 4)
        scripted.compute.drop_dataflow(id_("u1"), replaced=True)
        await scripted.env.maintain("c", "u1", T1, SinkExport(id_("u1")), as_of=2)
        second = await scripted.number("u1", sent)
        scripted.replaced("r1", "u1", 4, 6, number=first)
        scripted.reports_upper("r1", "u1", 7)
        await asyncio.sleep(0.05)
        assert scripted.env.storage.upper(id_("u1")) == 4
        scripted.reports_errors("r1", "u1", 5, number=second)
        scripted.replaced("r1", "u1", 5, 6, number=second)
        scripted.reports_upper("r1", "u1", 7)
        await scripted.written("u1", 7)

    run_scripted(scenario)


def test_late_beginning_is_not_attributed_to_next_dataflow(run_scripted: InHouse) -> None:
    """The next dataflow's snapshots stay leased until the replica has begun with that one."""

    async def scenario(scripted: ScriptedReplicas) -> None:
        sent = scripted.connect("r1")
        replica = scripted.cluster.replicas["r1"]
        first = await scripted.number("u1", sent)
        scripted.compute.drop_dataflow(id_("u1"), replaced=True)
        await scripted.env.maintain("c", "u1", T1, SinkExport(id_("u1")), as_of=2)
        second = await scripted.number("u1", sent)
        assert first != second
        scripted.reports_errors("r1", "u1", 4, "22012 division by zero", number=first)
        scripted.reports_upper("r1", "u1", 7)
        assert replica.leases[id_("u1")]
        assert "u1" not in replica.uppers
        (writer,) = (w for w, _ in scripted.compute.maintained.sinks_below([id_("u1")]))
        assert not writer.errors.is_known(3)
        scripted.reports_errors("r1", "u1", 4, number=second)
        scripted.reports_upper("r1", "u1", 7)
        assert "u1" not in replica.leases
        await scripted.written("u1", 7)

    run_scripted(scenario)


def test_drop_while_waiting_for_errors_is_harmless(
    run_scripted: InHouse,
) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        waiting = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("i3")], 7))
        )
        await asyncio.sleep(0)
        scripted.compute.drop_dataflow(id_("u1"))
        scripted.reports_errors("r1", "u2", 8)
        assert await waiting == "all is known"

    run_scripted(scenario)


def test_errors_of_unmaintained_view_are_not_waited_for(run_scripted: InHouse) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        waiting = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("i3")], 7))
        )
        await asyncio.sleep(0)
        await scripted.compute.drop_replica("c", "r1")
        assert await waiting == "all is known"

    run_scripted(scenario)


def test_errors_of_view_are_known_during_handoff(
    run_scripted: InHouse,
) -> None:
    async def scenario(scripted: ScriptedReplicas) -> None:
        scripted.reports_errors("r1", "u1", 4, "22012 division by zero")
        scripted.reports_errors("r1", "u2", 4)
        scripted.compute.drop_dataflow(id_("u1"), replaced=True)
        for reads in ("u1", "i3"):
            assert (
                await outcome_of(scripted.compute.maintained.check_errors([id_(reads)], 3))
                == "division by zero"
            )
        later = asyncio.ensure_future(
            outcome_of(scripted.compute.maintained.check_errors([id_("u1")], 5))
        )
        await asyncio.sleep(0)
        assert not later.done()
        await scripted.env.maintain("c", "u1", T1, SinkExport(id_("u1")), as_of=2)
        scripted.reports_errors("r1", "u1", 8)
        assert await later == "all is known"

    run_scripted(scenario)
