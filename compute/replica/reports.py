"""Reports of a replica to its controller: responses, frontiers and its status."""

import asyncio
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import msgspec

from foreshore import blocking
from foreshore.compute.engine import HydratingEngine, StagedEngine
from foreshore.compute.protocol import (
    STATUS_SECONDS,
    ArrangementStatus,
    Command,
    DataflowStatus,
    Frontiers,
    OperatorStatus,
    Response,
    StageStatus,
    Status,
)
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.error_counts import ErrorCounts
from foreshore.compute.replica.indexes import arrangement_status
from foreshore.compute.replica.instance import Instance
from foreshore.compute.replica.registry import Registry
from foreshore.ids import GlobalId
from foreshore.processes.messages import Message
from foreshore.processes.transport import Connection, Tables
from foreshore.update import Timestamp
from foreshore.upkeep import goes_on


class Reports:
    """Sends to `connection`: a controller whose history is complete, or nobody.

    A controller with an incomplete history gets no messages about earlier dataflows.
    """

    def __init__(self, instance: Instance, registry: Registry) -> None:
        self.connection: Connection[Command] | None = None
        self._instance = instance
        self._dataflows = registry.dataflows
        self._moved: dict[GlobalId, Timestamp] = {}
        self._flushing = False
        self._stages: tuple[StageStatus, ...] = ()
        self._errors: WeakKeyDictionary[DataflowState, ErrorCounts] = WeakKeyDictionary()

    async def run(self) -> None:
        """Report the status every few seconds."""
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            await goes_on(self._send_details, "a replica does not report its status")

    async def _send_details(self) -> None:
        self.send_status(detailed=True)

    async def watch_stages(self) -> None:
        """Ask every few seconds what Spark works on, which may take long."""
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            await goes_on(self._look_at_stages, "what Spark works on is not known")

    async def _look_at_stages(self) -> None:
        engine = self._instance.engine
        if isinstance(engine, StagedEngine):
            self._stages = await blocking.run(None, engine.stages)

    def send(self, message: Response | Message, tables: Tables = ()) -> None:
        """Send a message, if there is a controller for it."""
        if self.connection is not None:
            self.connection.send(message, tables)

    # --- frontiers

    def frontier_moved(self, dataflow: DataflowState, exports: Iterable[GlobalId]) -> None:
        """Report the frontier for `exports` of a dataflow soon, together with others."""
        for export in exports:
            self._moved[export] = dataflow.frontier
        if not self._flushing:
            self.flush_soon()

    def forget(self, exports: Iterable[GlobalId]) -> None:
        """Report nothing of these exports, which were dropped."""
        for export in exports:
            self._moved.pop(export, None)

    def forget_all(self) -> None:
        """Report no frontier that was noted so far."""
        self._moved = {}

    def flush_soon(self) -> None:
        """Send the noted frontiers in the next turn of the loop."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the noted frontiers."""
        self._flushing = False
        if self._moved and self.connection is not None:
            self.send(Frontiers(self._moved))
            self._moved = {}

    # --- status

    def send_status(self, *, detailed: bool = False) -> None:
        """Send the status of all dataflows, and if `detailed` of what they hold."""
        dataflows = tuple(map(self._dataflow, self._dataflows.values()))
        status = Status(self._instance.engine is not None, dataflows, self._instance.failure)
        if detailed:
            status = msgspec.structs.replace(
                status,
                arrangements=self._arrangements(),
                operators=self._operators(),
                stages=self._stages,
            )
        self.send(status)

    def _dataflow(self, dataflow: DataflowState) -> DataflowStatus:
        """Return the status of a dataflow, with its errors, and how it was hydrated."""
        status, engine = dataflow.status(), self._instance.engine
        if dataflow.indexes:
            counts = self._errors.setdefault(dataflow, ErrorCounts())
            error_rows, errors = counts.count(dataflow.errors)
            status = msgspec.structs.replace(status, errors=errors, error_rows=error_rows)
        if isinstance(engine, HydratingEngine):
            return msgspec.structs.replace(status, hydrations=engine.hydrations(dataflow.id))
        return status

    def _arrangements(self) -> tuple[ArrangementStatus, ...]:
        """Return the sizes of all arrangements."""
        engine = self._instance.engine
        shared = engine.sizes() if engine is not None else ()
        own = (dataflow.arrangement_status() for dataflow in list(self._dataflows.values()))
        return (
            *(arrangement_status(size, None) for size in shared),
            *(each for statuses in own for each in statuses),
        )

    def _operators(self) -> tuple[OperatorStatus, ...]:
        """Return what the operators of all dataflows have done."""
        return tuple(
            each
            for dataflow in list(self._dataflows.values())
            for each in dataflow.operator_status()
        )
