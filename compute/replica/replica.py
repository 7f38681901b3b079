"""A replica: a process that runs a cluster's dataflows and answers peeks for a controller.

    loop      the socket; queues and frontiers of dataflows; index lookups
    steps     two threads: the engine's steps, insertion into arrangements, merging; a
              dataflow is on at most one of them
    hydration one thread: one dataflow at a time, which bounds the peak of memory
    queries   a few threads: peeks evaluated by the engine, and catching up kept dataflows

It stores nothing and writes to no shard. A replica started by an environment ends with it, when its
standard input closes. One that was started by hand waits for the next controller and is reconciled.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_never

import msgspec

from foreshore import blocking
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.peek import failure_of
from foreshore.compute.protocol import (
    STATUS_SECONDS,
    AddRefresh,
    AllowCompaction,
    ArrangementStatus,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    Feed,
    Frontiers,
    Hello,
    InitializationComplete,
    LimitMemory,
    Message,
    OperatorStatus,
    Peek,
    PeekPartTaken,
    Response,
    Status,
    SubscribeIndex,
)
from foreshore.compute.replica.checkpoints import Checkpointer, Pace
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.export_messages import Sent
from foreshore.compute.replica.indexes import arrangement_status
from foreshore.compute.replica.inputs import arrived
from foreshore.compute.replica.instance import EngineFactory, Instance
from foreshore.compute.replica.memory import MemoryWatch
from foreshore.compute.replica.pending_peeks import PendingPeeks
from foreshore.compute.replica.reconcile import Wanted, catch_up, fits, missed
from foreshore.compute.transport import (
    Connection,
    Tables,
)
from foreshore.ids import GlobalId
from foreshore.memory import give_back
from foreshore.storage.local_files import LocalFiles

logger = logging.getLogger(__name__)

QUERY_THREADS = 4
STEP_THREADS = 2
INLINE_SECONDS = 0.005  # for small steps on the loop, in one turn of it
RETRY_SECONDS = (0.2, 1.0, 5.0, 30.0)


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
        self._dataflows: dict[GlobalId, DataflowState] = {}
        self._exporters: dict[GlobalId, DataflowState] = {}
        self._importers: dict[GlobalId, list[DataflowState]] = {}
        self._moved: dict[GlobalId, int] = {}
        self._flushing = False
        self._steps = ThreadPoolExecutor(STEP_THREADS, "steps")
        self._step_slots = asyncio.Semaphore(STEP_THREADS)
        self._hydration = ThreadPoolExecutor(1, "hydration")
        self._queries = ThreadPoolExecutor(QUERY_THREADS, "queries")
        self._memory = MemoryWatch(self._dataflows, self._stall)
        self._work = asyncio.Event()
        self._hydrations = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._name = ""
        self._scratch = scratch
        self._checkpoints = Checkpointer(self._dataflows, self._steps, self._freed, self._send)
        self._peeks = PendingPeeks(
            self._instance, self._exporters, self._queries, self._tasks, self._send
        )

    async def run(self) -> None:
        """Work until cancelled, or until a task fails unexpectedly."""
        try:
            async with self._tasks:
                self._tasks.create_task(self._step_dataflows())
                self._tasks.create_task(self._hydrate_dataflows())
                self._tasks.create_task(self._report())
                self._tasks.create_task(self._checkpoints.run())
                self._tasks.create_task(self._watch_engine())
                self._tasks.create_task(self._memory.run())
        finally:
            self._peeks.forget()
            for pool in (self._steps, self._hydration, self._queries):
                pool.shutdown(wait=False, cancel_futures=True)

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
        self._moved = {}  # for the previous controller; kept dataflows note it again
        for dataflow in self._dataflows.values():
            for id in dataflow.subscribers.ids:
                dataflow.allow_compaction(id, None)
                self._exporters.pop(id, None)
        self._peeks.forget()

    def lost(self, connection: Connection[Command]) -> None:
        """Note that a connection has ended."""
        if connection is self._connection:
            logger.info("controller disconnected")
            self._connection = None
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

    def _send(self, message: Response | Message, tables: Tables = ()) -> None:
        # a controller whose history is incomplete gets no messages about earlier dataflows
        if self._connection is not None and self._history is None:
            self._connection.send(message, tables)

    # --- the instance

    def _create_instance(self, command: CreateInstance) -> None:
        before = self._instance.command
        if before is None:
            if command.engine == "embedded":
                self._memory.limit(command.memory_limit)
            self._instance.create(command)
            self._tasks.create_task(self._start_engine())
        elif (before.engine, before.options) != (command.engine, command.options):
            logger.error("another engine was requested, restarting")
            os._exit(3)  # the engine's threads run, so it cannot be replaced
        elif before.database != command.database:
            logger.warning("serving another database, nothing is kept")
            self._instance.move(command)
            self._checkpoints.forget()
            for dataflow in list(self._dataflows.values()):
                self._drop(dataflow)

    async def _start_engine(self) -> None:
        await self._instance.start(self._hydration, self._engine_tried)
        engine, command = self._instance.engine, self._instance.command
        assert engine is not None
        assert command is not None
        cluster, _, name = self._name.rpartition(".")
        instance = self._instance
        store = CheckpointStore(instance.blob, instance.files, self._scratch, cluster, name)
        pace = Pace.of(command.options)
        await self._checkpoints.open(engine, store, command.database, pace, self._hydration)
        self._hydrations.set()

    def _engine_tried(self) -> None:
        self._send_status()
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
                self._moved.update(dict.fromkeys(dataflow.exports, dataflow.frontier))
        self._history = None
        self._checkpoints.report()
        for each in wanted.values():
            self._create(each)
        for command in self._compactions:
            self._compact(command)
        for subscribe_index in self._requested:
            self._follow(subscribe_index)
        self._compactions, self._requested = [], []
        self._work.set()
        self._flush_soon()
        self._send_status()
        backlog, self._backlog = self._backlog or [], None
        for waiting, tables in backlog:
            self.deliver(connection, waiting, tables)

    def _create(self, wanted: Wanted) -> None:
        before = self._dataflows.get(wanted.description.id)
        if before is not None:
            if before.state != "stalled":
                return
            self._drop(before)
        dataflow = DataflowState(wanted.description, wanted.imports, wanted.persisted)
        self._dataflows[dataflow.id] = dataflow
        for export in dataflow.exports:
            self._exporters[export] = dataflow
        for id in dataflow.queues:
            self._importers.setdefault(id, []).append(dataflow)
        self._hydrations.set()

    def _drop(self, dataflow: DataflowState) -> None:
        dataflow.dropped = True
        if self._dataflows.get(dataflow.id) is dataflow:
            del self._dataflows[dataflow.id]
        for export in [e for e, r in self._exporters.items() if r is dataflow]:
            del self._exporters[export]
            self._moved.pop(export, None)
        self._end_imports(dataflow)
        if dataflow.busy:
            dataflow.cancel()
        else:
            self._close(dataflow)

    def _end_imports(self, dataflow: DataflowState) -> None:
        for id in dataflow.queues:
            importers = self._importers.get(id, [])
            if dataflow in importers:
                importers.remove(dataflow)
            if not importers:
                self._importers.pop(id, None)

    def _close(self, dataflow: DataflowState) -> None:
        dataflow.busy = True
        self._tasks.create_task(blocking.run(self._steps, dataflow.close))

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
            self._moved.pop(command.id, None)
            self._peeks.wake_waiters({command.id})
        if dataflow.dropped:
            self._drop(dataflow)
            self._send_status()

    def _follow(self, command: SubscribeIndex) -> None:
        dataflow = self._exporters.get(command.index)
        if dataflow is not None:
            dataflow.subscribers.request(command)
            self._exporters[command.id] = dataflow
            self._work.set()

    def _feed(self, command: Feed, tables: Tables) -> None:
        rest = iter(tables)
        touched: dict[GlobalId, DataflowState] = {}
        for id, lower, upper, changed in command.shards:
            updates = next(rest) if changed else None
            for dataflow in self._importers.get(id, ()):
                dataflow.queues[id].feed(lower, upper, updates)
                touched[dataflow.id] = dataflow
        loop = asyncio.get_running_loop()
        patience = loop.time() + INLINE_SECONDS
        for dataflow in touched.values():
            self._advance(dataflow, inline=loop.time() < patience)

    def _advance(self, dataflow: DataflowState, *, inline: bool = False) -> None:
        """Advance the frontier of a dataflow to its imports', by a step if any has changed.

        A small step is made at once if `inline`, because a thread takes longer to begin.
        """
        if dataflow.busy or dataflow.state != "running":
            return
        upper = dataflow.importable
        if upper <= dataflow.frontier:
            return
        if dataflow.progress(upper):
            self._frontier_moved(dataflow)
        elif inline and not self._instance.tick_seconds and dataflow.is_small_step:
            self._step_inline(dataflow)
        else:
            self._work.set()

    def _step_inline(self, dataflow: DataflowState) -> None:
        dataflow.busy = True
        dataflow.begin_step()
        try:
            sent = dataflow.step()
        except Exception as error:
            self._tasks.create_task(self._step_failed(dataflow, error))
            return
        if sent is None:
            self._retry_smaller(dataflow)
        else:
            self._went_well(dataflow, sent)
        self._work.set()

    async def _step_failed(self, dataflow: DataflowState, error: Exception) -> None:
        await self._instance.check()
        self._failed(dataflow, error, "running")
        self._work.set()

    def _frontier_moved(self, dataflow: DataflowState) -> None:
        for export in (*dataflow.exports, *dataflow.subscribers.current):
            self._moved[export] = dataflow.frontier
        if dataflow.subscription_due:
            self._work.set()
        self._flush_soon()
        self._peeks.wake_waiters(dataflow.indexes)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._moved and self._history is None:
            self._send(Frontiers(self._moved))
            self._moved = {}

    # --- work

    async def _hydrate_dataflows(self) -> None:
        while True:
            self._hydrations.clear()
            while dataflow := self._to_hydrate():
                engine = self._instance.engine
                assert engine is not None
                dataflow.busy = True
                dataflow.begin_hydration()
                self._send_status()
                try:
                    sent = await blocking.run(
                        self._hydration, dataflow.hydrate, engine, self._checkpoints.resume
                    )
                except Exception as error:
                    await self._instance.check()
                    self._failed(dataflow, error, "pending")
                else:
                    self._went_well(dataflow, sent)
                self._send_status(detailed=self._to_hydrate() is None)
            await self._hydrations.wait()

    def _to_hydrate(self) -> DataflowState | None:
        if self._instance.engine is None or not self._checkpoints.opened:
            return None
        return next((r for r in self._dataflows.values() if r.state == "pending"), None)

    async def _step_dataflows(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._work.clear()
            wait: float | None = None
            for dataflow in list(self._dataflows.values()):
                if self._is_free(dataflow) and dataflow.subscription_due:
                    dataflow.busy = True
                    self._tasks.create_task(self._begin_subscriptions(dataflow))
                    continue
                due = dataflow.times.stepped_at + self._instance.tick_seconds
                if not self._is_free(dataflow) or dataflow.importable <= dataflow.frontier:
                    continue
                if self._instance.tick_seconds and due > loop.time():
                    wait = min(wait or due, due)
                    continue
                dataflow.busy = True
                self._tasks.create_task(self._step(dataflow))
            if self._work.is_set():
                continue
            if not self._step_slots.locked() and await self._maintain():
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wait):
                    await self._work.wait()

    @staticmethod
    def _is_free(dataflow: DataflowState) -> bool:
        return dataflow.state == "running" and not dataflow.busy and not dataflow.dropped

    async def _step(self, dataflow: DataflowState) -> None:
        async with self._step_slots:
            dataflow.begin_step()  # now, to include the updates received meanwhile
            await self._on_worker(dataflow, dataflow.step)
        self._work.set()

    async def _begin_subscriptions(self, dataflow: DataflowState) -> None:
        async with self._step_slots:
            dataflow.subscribers.begin(dataflow.frontier)
            await self._on_worker(dataflow, dataflow.beginnings)
        self._work.set()

    async def _on_worker(self, dataflow: DataflowState, work: Callable[[], Sent | None]) -> None:
        try:
            sent = await blocking.run(self._steps, work)
        except Exception as error:
            await self._step_failed(dataflow, error)
        else:
            if sent is not None:
                self._went_well(dataflow, sent)
            else:
                self._retry_smaller(dataflow)

    async def _maintain(self) -> bool:
        """Do a slice of merging for some arrangement; return whether there was any."""
        for dataflow in list(self._dataflows.values()):
            if dataflow.state == "running" and not dataflow.busy and dataflow.merging_due:
                dataflow.busy = True
                try:
                    dataflow.merging_due = await blocking.run(self._steps, dataflow.maintain)
                except MemoryError as error:
                    await self._step_failed(dataflow, error)
                    return True
                dataflow.busy = False
                if dataflow.dropped:
                    self._close(dataflow)
                else:
                    self._advance(dataflow)
                return True
        return False

    def _went_well(self, dataflow: DataflowState, sent: Sent) -> None:
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)
            return
        dataflow.state = "running"
        dataflow.failures = 0
        if dataflow.failure is not None:
            dataflow.failure = None
            self._send_status()
        dataflow.merging_due = dataflow.maintenance_due
        self._flush()  # what a window begins at must have been reported before its updates
        for message, tables in dataflow.wanted(sent):
            self._send(message, tables)
        self._frontier_moved(dataflow)
        self._advance(dataflow)

    def _freed(self, dataflow: DataflowState) -> None:
        """Go on with a dataflow whose state was captured."""
        if dataflow.dropped:
            self._close(dataflow)
        else:
            self._advance(dataflow)
            self._work.set()

    def _retry_smaller(self, dataflow: DataflowState) -> None:
        """Retry a step at once with a smaller window; this is not a failure."""
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)

    def _failed(self, dataflow: DataflowState, error: Exception, again: str) -> None:
        """Record that a dataflow failed, and retry it later from where it was."""
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)
            return
        if dataflow.budget.refusal is not None or isinstance(error, MemoryError):
            self._stall(dataflow)
            return
        failure = failure_of(error)
        logger.error(
            "dataflow failed",
            extra={"dataflow": dataflow.id, "state": dataflow.state, "error": failure.message},
        )
        seconds = RETRY_SECONDS[min(dataflow.failures, len(RETRY_SECONDS) - 1)]
        dataflow.state = "failed"
        dataflow.failure = failure
        dataflow.failures += 1
        self._send_status()
        asyncio.get_running_loop().call_later(seconds, self._retry, dataflow, again)
        self._peeks.wake_waiters()

    def _retry(self, dataflow: DataflowState, state: str) -> None:
        if dataflow.state == "failed" and not dataflow.dropped:
            dataflow.state = state
            self._work.set()
            self._hydrations.set()

    # --- memory

    def _limit_memory(self, command: LimitMemory) -> None:
        dataflow = self._dataflows.get(command.id)
        if dataflow is not None:
            dataflow.limit_memory(command.limit)
            self._send_status()

    def _stall(self, dataflow: DataflowState) -> None:
        """Free what a dataflow has, and let it stand still."""
        dataflow.failure = failure_of(self._memory.refusal_of(dataflow))
        dataflow.state = "stalled"
        logger.error(
            "dataflow stalled", extra={"dataflow": dataflow.id, "why": dataflow.failure.message}
        )
        self._end_imports(dataflow)
        dataflow.busy = True
        self._tasks.create_task(self._free(dataflow))
        self._send_status()
        self._peeks.wake_waiters()

    async def _free(self, dataflow: DataflowState) -> None:
        await blocking.run(self._steps, dataflow.free)
        await blocking.run(self._steps, give_back)
        dataflow.busy = False

    # --- status

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            self._send_status(detailed=True)

    async def _watch_engine(self) -> None:
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            await self._instance.check()

    def _send_status(self, *, detailed: bool = False) -> None:
        dataflows = tuple(dataflow.status() for dataflow in self._dataflows.values())
        status = Status(self._instance.engine is not None, dataflows, self._instance.failure)
        if detailed:
            status = msgspec.structs.replace(
                status, arrangements=self._arrangements(), operators=self._operators()
            )
        self._send(status)

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


def _wanted(command: CreateDataflow, tables: Tables, files: LocalFiles) -> Wanted:
    rest = iter(tables)
    imports = {c.snapshot.id: c for c in arrived(command.snapshots, rest, files)}
    persisted = {c.snapshot.id: c for c in arrived(command.persisted, rest, files)}
    return Wanted(command.description, imports, persisted)
