"""A replica: a process that runs a cluster's dataflows and answers peeks for a controller.

    loop      the socket; queues and frontiers of dataflows; index lookups
    scheduler the dataflows' work, on threads of its own (`scheduler.py`)
    queries   a few threads: peeks evaluated by the engine, and catching up kept dataflows

It stores nothing and writes to no shard. A replica started by an environment ends with it, when its
standard input closes. One that was started by hand waits for the next controller and is reconciled.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from foreshore import blocking
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.inputs import arrived
from foreshore.compute.protocol import (
    AddRefresh,
    AllowCompaction,
    Awaited,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    Feed,
    InitializationComplete,
    LimitMemory,
    MergeTimes,
    Peek,
    PeekPartTaken,
    SubscribeIndex,
)
from foreshore.compute.replica.checkpoints import Pace
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.instance import EngineFactory, Instance
from foreshore.compute.replica.pending_peeks import PendingPeeks
from foreshore.compute.replica.pools import Pool
from foreshore.compute.replica.reconcile import Wanted, catch_up, fits, missed
from foreshore.compute.replica.registry import Registry
from foreshore.compute.replica.reports import Reports
from foreshore.compute.replica.scheduler import Scheduler
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello
from foreshore.processes.transport import (
    Connection,
    Tables,
)
from foreshore.storage.local_files import LocalFiles

logger = logging.getLogger(__name__)

QUERY_THREADS = 4


class Replica:
    """The state of one replica; all of it belongs to the event loop."""

    def __init__(self, engines: Mapping[str, EngineFactory], scratch: Path) -> None:
        self._connection: Connection[Command] | None = None
        self._instance = Instance(engines, scratch)
        self._history: list[tuple[CreateDataflow, Tables]] | None = []
        self._compactions: list[AllowCompaction] = []
        self._requested: list[SubscribeIndex] = []
        self._backlog: list[tuple[Command, Tables]] | None = (
            None  # commands received during reconciliation
        )
        self._registry = Registry()
        self._dataflows = self._registry.dataflows
        self._exporters = self._registry.exporters
        self._queries = Pool(QUERY_THREADS, "queries")
        self._tasks = asyncio.TaskGroup()
        self._name = ""
        self._scratch = scratch
        self._reports = Reports(self._instance, self._registry)
        self._peeks = PendingPeeks(
            self._instance, self._exporters, self._queries, self._tasks, self._reports.send
        )
        self._scheduler = Scheduler(
            self._instance, self._registry, self._reports, self._peeks, self._tasks, self._queries
        )
        self._checkpoints = self._scheduler.checkpoints

    async def run(self) -> None:
        """Work until cancelled, or until a task fails unexpectedly."""
        try:
            async with self._tasks:
                self._scheduler.start()
                self._tasks.create_task(self._reports.run())
                self._tasks.create_task(self._reports.watch_stages())
        finally:
            self._peeks.forget()
            self._scheduler.close()
            self._queries.shutdown(wait=False, cancel_futures=True)

    # --- connections

    def accept(self, connection: Connection[Command]) -> None:
        """Accept commands from this controller, which has shown the secret, and no other."""
        if self._connection is not None:
            self._connection.abort()
        self._connection = connection
        self._history = []
        self._compactions = []
        self._requested = []
        self._backlog = None
        self._reports.connection = None
        self._reports.forget_all()  # kept dataflows note it again
        for dataflow in self._dataflows.values():
            for id in dataflow.subscribers.ids:
                dataflow.allow_compaction(id, None)
                self._exporters.pop(id, None)
        self._peeks.forget()

    def lost(self, connection: Connection[Command]) -> None:
        """Note that a connection has ended."""
        if connection is self._connection:
            logger.info("controller disconnected")
            self._connection = self._reports.connection = None
            self._backlog = None
            self._peeks.forget()

    def deliver(self, connection: Connection[Command], command: Command, tables: Tables) -> None:
        """Execute a command."""
        if isinstance(command, Hello):
            self._name = command.replica
            self.accept(connection)
            return
        if connection is not self._connection:
            return
        if self._backlog is not None:
            self._backlog.append((command, tables))
            return
        match command:
            case Feed():
                self._feed(command, tables)
            case Peek():
                self._peeks.ask(command, tables)
            case CancelPeek(number=number):
                self._peeks.cancel(number)
            case PeekPartTaken(number=number):
                self._peeks.part_taken(number)
            case MergeTimes(id=id, lower=lower, upper=upper):
                if (dataflow := self._exporters.get(id)) is not None:
                    dataflow.merge_times(lower, upper)
            case AllowCompaction():
                self._compact(command)
            case LimitMemory():
                self._limit_memory(command)
            case CreateDataflow():
                if self._history is not None:
                    self._history.append((command, tables))
                else:
                    self._create(_wanted(command, tables, self._instance.files))
            case AddRefresh(dataflow=id, time=time):
                # The description of one that is created later has it.
                if self._history is None and (found := self._dataflows.get(id)) is not None:
                    found.add_refresh(time)
            case Awaited(dataflow=id, time=time):
                if (found := self._dataflows.get(id)) is not None:
                    found.awaited = max(found.awaited, time)
                    self._scheduler.wake()
            case SubscribeIndex():
                if self._history is not None:
                    self._requested.append(command)
                else:
                    self._follow(command)
            case CreateInstance():
                self._create_instance(command)
            case InitializationComplete():
                self._backlog = []
                self._tasks.create_task(self._reconcile(connection))
            case _:
                assert_never(command)

    # --- the instance

    def _create_instance(self, command: CreateInstance) -> None:
        before = self._instance.command
        if before is None:
            if command.engine == "embedded":
                self._scheduler.memory.limit(command.memory_limit)
            self._instance.create(command)
            self._checkpoints.serve(command.database)
            self._tasks.create_task(self._start_engine())
        elif (before.engine, before.options) != (command.engine, command.options):
            logger.error("another engine was requested, restarting")
            os._exit(3)  # the engine's threads run, so it cannot be replaced
        elif before.database != command.database:
            logger.warning("serving another database, nothing is kept")
            self._instance.move(command)
            self._checkpoints.serve(command.database)
            for dataflow in list(self._dataflows.values()):
                self._drop(dataflow)
            if self._instance.engine is not None:  # else it is being started
                self._tasks.create_task(self._open_checkpoints())

    async def _start_engine(self) -> None:
        await self._instance.start(self._scheduler.hydration, self._engine_tried)
        await self._open_checkpoints()

    async def _open_checkpoints(self) -> None:
        """Load the newest checkpoint of the database, then hydrate what it does not have."""
        engine, command = self._instance.engine, self._instance.command
        assert engine is not None
        assert command is not None
        cluster, _, name = self._name.rpartition(".")
        instance = self._instance
        store = CheckpointStore(instance.blob, instance.files, self._scratch, cluster, name)
        pace = Pace.of(command.options, command.engine)
        thread = self._scheduler.hydration
        await self._checkpoints.open(engine, store, command.database, pace, thread)
        self._scheduler.wake_hydration()

    def _engine_tried(self) -> None:
        self._reports.send_status()
        self._peeks.wake_waiters()

    # --- dataflows

    async def _reconcile(self, connection: Connection[Command]) -> None:
        """Reconcile the running dataflows with the history; commands are queued meanwhile."""
        assert self._history is not None, "history ends twice"
        wanted = {c.description.id: _wanted(c, t, self._instance.files) for c, t in self._history}
        for id, dataflow in list(self._dataflows.items()):
            if id not in wanted or not fits(dataflow, wanted[id]):
                self._drop(dataflow)
        for id, dataflow in list(self._dataflows.items()):
            try:
                found = await blocking.run(self._queries, missed, dataflow, wanted[id])
            except Exception:
                logger.exception("dataflow restarted", extra={"dataflow": id})
                found = None
            if connection is not self._connection:
                return  # another controller connected, or this one disconnected
            if found is None:
                self._drop(dataflow)
            else:
                logger.info("dataflow kept", extra={"dataflow": id})
                catch_up(dataflow, wanted.pop(id), found)
                self._reports.frontier_moved(dataflow, dataflow.exports)
        self._history = None
        self._reports.connection = connection
        self._checkpoints.report()
        for each in wanted.values():
            self._create(each)
        for command in self._compactions:
            self._compact(command)
        for subscribe_index in self._requested:
            self._follow(subscribe_index)
        self._compactions, self._requested = [], []
        self._scheduler.wake()
        self._reports.flush_soon()
        self._reports.send_status()
        backlog, self._backlog = self._backlog or [], None
        for waiting, tables in backlog:
            self.deliver(connection, waiting, tables)

    def _create(self, wanted: Wanted) -> None:
        before = self._dataflows.get(wanted.description.id)
        if before is not None:
            if before.state != "stalled":
                return
            self._drop(before)
        dataflow = DataflowState(
            wanted.description, wanted.imports, wanted.persisted, wanted.number
        )
        self._registry.add(dataflow)
        self._scheduler.wake_hydration()

    def _drop(self, dataflow: DataflowState) -> None:
        dataflow.dropped = True
        self._reports.forget(self._registry.remove(dataflow))
        self._scheduler.end(dataflow)

    def _compact(self, command: AllowCompaction) -> None:
        if self._history is not None:
            self._compactions.append(command)
            return
        dataflow = self._exporters.get(command.id)
        if dataflow is None:
            return
        dataflow.allow_compaction(command.id, command.since)
        if command.since is None:
            self._exporters.pop(command.id, None)
            self._reports.forget([command.id])
            self._peeks.wake_waiters({command.id})
        if dataflow.dropped:
            self._drop(dataflow)
            self._reports.send_status()

    def _follow(self, command: SubscribeIndex) -> None:
        dataflow = self._exporters.get(command.index)
        if dataflow is not None:
            dataflow.subscribers.request(command)
            self._exporters[command.id] = dataflow
            self._scheduler.wake()

    def _feed(self, command: Feed, tables: Tables) -> None:
        rest = iter(tables)
        touched: dict[GlobalId, DataflowState] = {}
        for id, lower, upper, changed in command.shards:
            updates = next(rest) if changed else None
            for dataflow in self._registry.importers.get(id, ()):
                dataflow.queues[id].feed(lower, upper, updates)
                touched[dataflow.id] = dataflow
        self._scheduler.advance_all(touched.values())

    def _limit_memory(self, command: LimitMemory) -> None:
        dataflow = self._dataflows.get(command.id)
        if dataflow is not None:
            dataflow.limit_memory(command.limit)
            self._reports.send_status()


def _wanted(command: CreateDataflow, tables: Tables, files: LocalFiles) -> Wanted:
    rest = iter(tables)
    imports = {c.snapshot.id: c for c in arrived(command.snapshots, rest, files)}
    persisted = {c.snapshot.id: c for c in arrived(command.persisted, rest, files)}
    return Wanted(command.description, imports, persisted, command.number)
