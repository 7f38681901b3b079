"""Dispatches the responses of replicas.

These are frontiers, updates for shards and subscribers, answers to peeks, and status reports.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

from foreshore import tracing
from foreshore.compute.controller import index_streams
from foreshore.compute.controller.cluster import Replica
from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.compute.controller.peeks import Peeks
from foreshore.compute.controller.step_spans import record_steps
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.protocol import (
    Checkpoints,
    Frontiers,
    PeekResponse,
    Response,
    SinkUpdates,
    Status,
    SubscribeResponse,
)
from foreshore.errors import DataCorrupted, OutOfMemory
from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.update import Timestamp

OFTEN = 3  # consecutive failures of a step before readers fail


class Responses:
    """Processes the responses of all replicas.

    `dataflows` are the live ones, `exporters` the same by export. `examine` is called for a
    dataflow for which a replica newly reports corruption.
    """

    def __init__(
        self,
        dataflows: Mapping[GlobalId, Dataflow],
        exporters: Mapping[GlobalId, Dataflow],
        maintained: Maintained,
        uppers: Uppers,
        peeks: Peeks,
        examine: Callable[[Dataflow], object],
    ) -> None:
        self._dataflows = dataflows
        self._exporters = exporters
        self._maintained = maintained
        self._uppers = uppers
        self._peeks = peeks
        self._examine = examine

    def deliver(self, replica: Replica, message: Response, tables: Tables) -> None:
        """Process one response."""
        match message:
            case PeekResponse():
                self._peeks.answered(replica, message, tables)
            case Frontiers(uppers=uppers):
                self._frontiers(replica, uppers)
            case SinkUpdates(id=id, lower=lower, upper=upper):
                dataflow = self._exporters.get(id)
                if dataflow is not None and id in dataflow.writers:
                    if message.number != replica.number_of(dataflow.description.id):
                        return  # of a dataflow that this one has replaced
                    if message.initial:
                        replica.begun.add(id)
                    writer = dataflow.writers[id]
                    writer.errors.add(lower, upper, tables[1], initial=message.initial)
                    writer.put(lower, upper, tables[0])
            case SubscribeResponse(id=id, lower=lower, upper=upper):
                dataflow = self._exporters.get(id)
                if dataflow is not None and (stream := dataflow.stream(id)) is not None:
                    if message.overflow:
                        stream.fail(OutOfMemory("there are too many updates"))
                    else:
                        stream.put(lower, upper, tables[0], tables[1])
            case Status():
                if tracing.is_on:
                    record_steps(replica.name, replica.status, message)
                replica.status = message
                replica.status_at = asyncio.get_running_loop().time()
                if message.arrangements is not None:
                    replica.arrangements = message.arrangements
                if message.operators is not None:
                    replica.operators = message.operators
                if message.stages is not None:
                    replica.stages = message.stages
                self._suspect(replica, message)
                self._note_failing(replica, message)
                self._restart_stalled(replica, message)
            case Checkpoints(dataflows=dataflows, begun=begun):
                replica.checkpoints = {each.id: each for each in dataflows}
                replica.saving = begun
            case _:
                assert_never(message)

    def _frontiers(self, replica: Replica, uppers: Mapping[GlobalId, Timestamp]) -> None:
        for id, upper in uppers.items():
            dataflow = self._exporters.get(id)
            if dataflow is None or (id in dataflow.writers and id not in replica.begun):
                continue
            if id not in replica.uppers:
                replica.release(dataflow.description.id)
            replica.uppers[id] = upper
            if id in dataflow.writers:
                writer = dataflow.writers[id]
                writer.errors.add(upper, upper, None, initial=False)
                writer.progress(upper)
            elif (stream := dataflow.stream(id)) is not None:
                stream.progress(upper)
            else:
                self._uppers.advance(id, upper)

    def _suspect(self, replica: Replica, status: Status) -> None:
        """Examine the shards that a replica newly reports as corrupt."""
        corrupted = DataCorrupted.sqlstate
        suspected = {each.id for each in status.dataflows if each.sqlstate == corrupted}
        for id in suspected - replica.suspected:
            if (dataflow := self._dataflows.get(id)) is not None:
                self._examine(dataflow)
        replica.suspected = suspected

    def _note_failing(self, replica: Replica, status: Status) -> None:
        """Fail readers when a replica newly reports repeated failures."""
        before = replica.failing.keys()
        replica.failing = {
            each.id: each
            for each in status.dataflows
            if each.failures >= OFTEN or each.state == "stalled"
        }
        if not replica.failing.keys() <= before:
            self.fail_readers()

    def _restart_stalled(self, replica: Replica, status: Status) -> None:
        """Start the stalled dataflows again whose limit is another one than they exceeded."""
        for each in status.dataflows:
            dataflow = self._dataflows.get(each.id)
            if each.state != "stalled":
                replica.restarted.discard(each.id)
            elif (
                dataflow is not None
                and each.id not in replica.restarted
                and each.memory_limit != dataflow.entry.description.memory_limit
                and replica in dataflow.cluster.replicas.values()
            ):
                index_streams.note_received(dataflow)
                dataflow.cluster.restart(replica, dataflow.entry)

    def fail_readers(self) -> None:
        """Fail the readers of collections for which all replicas fail."""
        for id in self._uppers.waited_for():
            if (error := self._maintained.failing([id])) is not None:
                self._uppers.fail(id, error, even_patient=False)
        for dataflow in self._dataflows.values():
            for id, writer in dataflow.writers.items():
                if (error := self._maintained.failing([id])) is not None:
                    writer.errors.fail(error)
            if dataflow.subscriptions and (status := dataflow.stalled) is not None:
                for subscription in dataflow.subscriptions.values():
                    subscription.fail(
                        OutOfMemory(
                            f"What SUBSCRIBE keeps exceeds its limit: {status.failure}.",
                            hint="Raise max_query_memory of the role, or MEMORY LIMIT of the"
                            " cluster.",
                        )
                    )
