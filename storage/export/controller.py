"""The environment's side of exports: their processes, and the changes that they get.

A sink has a process with the other sinks of its cluster. It asks for changes from the frontier of
its target on, gets an interval at a time, and confirms it. So however slow the target is, at most
one interval of a sink is on its way, and of that a few tables in memory.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import pyarrow as pa

from foreshore.clock import Clock
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.processes.transport import Connection, Tables
from foreshore.storage.export.messages import (
    Changes,
    Export,
    Exported,
    NextTry,
    Response,
    Resumes,
    SinkState,
    StartSink,
    StopSink,
    Taken,
    TryNow,
)
from foreshore.storage.external.processes import ClusterProcesses
from foreshore.storage.external.retries import is_lasting, is_lost, waits
from foreshore.storage.external.states import States, Status
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

TABLES_AHEAD = 8  # that a process may have, beside the one that it writes


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """A sink to run: where, and what it writes; `obstacle` says why it cannot be started.

    One that is `paused` must not be started before a user says so.
    """

    id: GlobalId
    cluster: str
    export: Export
    obstacle: str | None = None
    paused: bool = False


class Exports(Protocol):
    """The changes of the relations that sinks write, and how far these have come here."""

    def begin(self, sink: GlobalId, frontier: Timestamp | None) -> Timestamp:
        """Return the time before which a sink has everything, when its target has `frontier`.

        Raises ObjectNotInPrerequisiteState if the target is behind the history that is kept.
        """
        ...

    async def known_through(self, sink: GlobalId, frontier: Timestamp) -> Timestamp:
        """Wait for changes at `frontier` or later; return a time through which to go."""
        ...

    def changes(
        self, sink: GlobalId, frontier: Timestamp, through: Timestamp
    ) -> AsyncGenerator[pa.Table, None]:
        """Yield the updates with frontier <= time <= through, or the contents at its beginning."""
        ...

    async def exported(self, sink: GlobalId, upper: Timestamp) -> None:
        """Note durably that the target has everything before `upper`."""
        ...


@dataclass(slots=True)
class SinkStatus(Status):
    """The state of a sink, what was sent, and of that what its target has confirmed.

    `failed_try` is the number of the last try that has failed; `is_lasting` says that later ones
    fail, too, until somebody acts, `is_lost` that the sink has to be created anew, `is_blocked`
    that there are none.
    """

    tries: int = 0
    failed_try: int = 0
    is_lasting: bool = False
    is_lost: bool = False
    is_blocked: bool = False
    commits: int = 0
    committed_updates: int = 0
    committed_bytes: int = 0


class _Step(IntEnum):
    """The steps of a sink, in their order."""

    RESUMES = 0  # its process asks the target how far it has come
    BEGINS = 1
    WAITS = 2  # for changes
    WRITES = 3
    HAS_WRITTEN = 4


@dataclass(slots=True)
class _Sink:
    description: SinkDescription
    status: SinkStatus
    run: int = 0  # the number of the last `Resumes`
    sending: asyncio.Task[None] | None = None
    confirmed: asyncio.Future[Timestamp] | None = None  # of the interval on its way
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TABLES_AHEAD))
    pauses: Iterator[float] = field(default_factory=waits)  # before the next starts after a failure
    step: _Step = _Step.RESUMES
    failed: _Step | None = None  # the step in which it has stalled
    next_start: asyncio.TimerHandle | None = None  # after a failure here


class ExportController:
    """Runs the sinks of one environment; owned by the event loop."""

    def __init__(self, launcher: Launcher, exports: Exports, clock: Clock) -> None:
        self._exports = exports
        self._clock = clock
        self.states = States(clock)
        self._processes: ClusterProcesses[_Sink] = ClusterProcesses(
            launcher, self, Response, "export process"
        )

    # --- what runs -----------------------------------------------------------------------------

    def start(self, description: SinkDescription) -> None:
        """Run a sink."""
        sink = _Sink(description, SinkStatus(since=self._clock.now()))
        self._processes.add(description.id, description.cluster, sink)

    def description(self, id: GlobalId) -> SinkDescription | None:
        """Return what runs under an id; None if nothing does."""
        sink = self._processes.get(id)
        return None if sink is None else sink.description

    async def stop(self, id: GlobalId) -> SinkDescription | None:
        """Stop a sink, and return what it was; None if it does not run."""
        sink = self._processes.get(id)
        if sink is None:
            return None
        sending = self._end_run(sink)
        await self._processes.remove(id, StopSink(id))
        if sending is not None:
            await asyncio.wait([sending])
        return sink.description

    async def close(self) -> None:
        """End all processes."""
        for id in self._processes.jobs():
            await self.stop(id)

    def statuses(self) -> dict[GlobalId, SinkStatus]:
        """Return what each sink is doing."""
        return {id: sink.status for id, sink in self._processes.jobs().items()}

    def try_now(self, id: GlobalId) -> None:
        """Have a sink tried at once that pauses after a failure, as somebody waits for it."""
        sink = self._processes.get(id)
        if sink is None or sink.status.state != "stalled":
            return
        if sink.next_start is not None:
            sink.next_start.cancel()
            self._start_again(sink)
        elif (connection := self._processes.connection(id)) is not None:
            connection.send(TryNow(id))

    # --- the process ---------------------------------------------------------------------------

    def connected(self, job: _Sink, connection: Connection[Response]) -> None:
        """Let a new process write a sink."""
        description = job.description
        if description.obstacle is not None:
            state = "paused" if description.paused else "stalled"
            job.status.is_blocked = True
            self._set_state(job, state, description.obstacle)
        else:
            connection.send(StartSink(description.id, description.export))

    def lost(self, job: _Sink) -> None:
        """Note that the process of a sink has ended."""
        self._end_run(job)
        job.failed = None
        self._set_state(job, "starting", None)

    def deliver(self, job: _Sink, response: Response, tables: Tables) -> None:
        """Take what a process has written or asks for."""
        match response:
            case SinkState(state="stalled", error=error, is_lasting=lasting, is_lost=lost):
                self._set_stalled(job, error, lasting, lost)
            case SinkState(state=state, error=error):
                job.status.tries += state == "starting"
                if job.failed is None:  # else it is stalled until it gets on (`_take_step`)
                    self._set_state(job, state, error)
            case NextTry(seconds=seconds):
                self.states.set_next_try(job.status, seconds)
            case Resumes(run=run):
                self._end_run(job)
                job.run = run
                job.room = asyncio.Semaphore(TABLES_AHEAD)
                sending = self._send_changes(job, response)
                job.sending = asyncio.get_running_loop().create_task(sending)
            case Taken(run=run):
                if run == job.run:
                    job.room.release()
            case Exported(run=run, upper=upper):
                confirmed = job.confirmed
                if run == job.run and confirmed is not None and not confirmed.done():
                    confirmed.set_result(upper)

    def _end_run(self, sink: _Sink) -> asyncio.Task[None] | None:
        """Stop to send changes to a sink."""
        sending, sink.sending, sink.confirmed = sink.sending, None, None
        sink.step = _Step.RESUMES
        if sending is not None:
            sending.cancel()
        return sending

    def _set_state(self, sink: _Sink, state: str, error: str | None) -> None:
        self.states.set(sink.description.id, sink.status, state, error)

    def _take_step(self, sink: _Sink, step: _Step) -> None:
        """Note what a sink does next; it runs again once it is past the step that has failed."""
        sink.step = step
        if sink.failed is None or step > sink.failed:
            sink.failed = None
            self._set_state(sink, "running", None)

    def _set_stalled(self, sink: _Sink, error: str | None, lasting: bool, lost: bool) -> None:
        sink.failed = sink.step
        sink.status.failed_try = sink.status.tries
        sink.status.is_lasting, sink.status.is_lost = lasting, lost
        self._set_state(sink, "stalled", error)

    # --- changes -------------------------------------------------------------------------------

    async def _send_changes(self, sink: _Sink, resumes: Resumes) -> None:
        """Send one interval after another, each when the one before is confirmed."""
        id = sink.description.id
        connection = self._processes.connection(id)
        assert connection is not None
        loop, least = asyncio.get_running_loop(), sink.description.export.spec.commit_ms / 1000
        try:
            self._take_step(sink, _Step.BEGINS)
            frontier = self._exports.begin(id, resumes.frontier)
            while True:
                self._take_step(sink, _Step.WAITS)
                through = await self._exports.known_through(id, frontier)
                self._take_step(sink, _Step.WRITES)
                began = loop.time()
                sink.confirmed = loop.create_future()
                header = Changes(id, resumes.run, frontier, through + 1, complete=False)
                rows, size = await self._send_interval(connection, sink, header, through)
                frontier = await sink.confirmed
                await self._exports.exported(id, frontier)
                self._take_step(sink, _Step.HAS_WRITTEN)
                sink.pauses = waits()
                sink.status.commits += 1
                sink.status.committed_updates += rows
                sink.status.committed_bytes += size
                await asyncio.sleep(began + least - loop.time())
        except DatabaseError as error:
            self._stall(sink, error.message, is_lasting(error), is_lost(error))
            logger.warning("a sink stalls: %s", error, extra={"sink": id})
        except Exception:
            self._stall(sink, "internal error", False, False)
            logger.exception("a sink has failed", extra={"sink": id})

    async def _send_interval(
        self, connection: Connection[Response], sink: _Sink, header: Changes, through: Timestamp
    ) -> tuple[int, int]:
        """Send all updates of an interval, as fast as the process reads them.

        Returns how many there are, and their bytes.
        """
        id, run, lower, upper = header.id, header.run, header.lower, header.upper
        rows = size = 0
        async with aclosing(self._exports.changes(id, lower, through)) as tables:
            async for table in tables:
                await sink.room.acquire()
                connection.send(header, (table,))
                rows, size = rows + table.num_rows, size + table.nbytes
                sink.status.updates += table.num_rows
                sink.status.bytes += table.nbytes
                await connection.drained()
        connection.send(Changes(id, run, lower, upper, complete=True))
        return rows, size

    def _stall(self, sink: _Sink, error: str, lasting: bool, lost: bool) -> None:
        """Note a failure here; the sink is started again after a pause that grows."""
        self._set_stalled(sink, error, lasting, lost)
        if sink.next_start is not None:
            sink.next_start.cancel()
        loop, pause = asyncio.get_running_loop(), next(sink.pauses)
        self.states.set_next_try(sink.status, pause)
        sink.next_start = loop.call_later(pause, self._start_again, sink)

    def _start_again(self, sink: _Sink) -> None:
        sink.next_start = None
        id = sink.description.id
        connection = self._processes.connection(id)
        if connection is not None and self._processes.get(id) is sink:
            self.connected(sink, connection)
