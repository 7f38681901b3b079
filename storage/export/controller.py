"""The environment's side of exports: their processes, and the changes that they get.

A sink has a process with the other sinks of its cluster. It asks for changes from the frontier of
its target on, gets an interval at a time, and confirms it. So however slow the target is, at most
one interval of a sink is on its way.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from foreshore.clock import Clock
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.processes.link import Link
from foreshore.processes.transport import Connection, Tables
from foreshore.storage.export.messages import (
    Changes,
    Export,
    Exported,
    Response,
    Resumes,
    SinkState,
    StartSink,
    StopSink,
)
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

STALLED_SECONDS = 1.0  # after a failure here, until the sink is started again


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """A sink to run: where, and what it writes; `obstacle` says why it cannot be started."""

    id: GlobalId
    cluster: str
    export: Export
    obstacle: str | None = None


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
    ) -> AsyncIterator[pa.Table]:
        """Yield the updates with frontier <= time <= through, or the contents at its beginning."""
        ...

    async def exported(self, sink: GlobalId, upper: Timestamp) -> None:
        """Note durably that the target has everything before `upper`."""
        ...


@dataclass(slots=True)
class SinkStatus:
    """The state of a sink, its time in milliseconds, and the amounts written so far."""

    state: str = "starting"
    error: str | None = None
    since: int = 0
    updates: int = 0
    bytes: int = 0
    commits: int = 0


@dataclass(slots=True)
class _Sink:
    description: SinkDescription
    status: SinkStatus
    run: int = 0  # the number of the last `Resumes`
    sending: asyncio.Task[None] | None = None
    confirmed: asyncio.Future[Timestamp] | None = None  # of the interval on its way


@dataclass(slots=True)
class _Process:
    sinks: dict[GlobalId, _Sink] = field(default_factory=dict)
    connection: Connection[Response] | None = None
    task: asyncio.Task[None] | None = None


class ExportController:
    """Runs the sinks of one environment; owned by the event loop."""

    def __init__(self, launcher: Launcher, exports: Exports, clock: Clock) -> None:
        self._launcher = launcher
        self._exports = exports
        self._clock = clock
        self._processes: dict[str, _Process] = {}
        self._cluster_of: dict[GlobalId, str] = {}

    # --- what runs -----------------------------------------------------------------------------

    def start(self, description: SinkDescription) -> None:
        """Run a sink."""
        id, cluster = description.id, description.cluster
        assert id not in self._cluster_of, id
        sink = _Sink(description, SinkStatus(since=self._clock.now()))
        self._cluster_of[id] = cluster
        process = self._processes.get(cluster)
        if process is None:
            process = self._processes[cluster] = _Process()
            link: Link[Response] = Link(
                cluster,
                self._launcher,
                Response,
                lambda connection: self._connected(process, connection),
                self._deliver,
                lambda: self._lost(process),
                kind="export process",
            )
            process.task = asyncio.get_running_loop().create_task(link.run())
        process.sinks[id] = sink
        self._send_start(process, sink)

    def description(self, id: GlobalId) -> SinkDescription | None:
        """Return what runs under an id; None if nothing does."""
        cluster = self._cluster_of.get(id)
        return None if cluster is None else self._processes[cluster].sinks[id].description

    async def stop(self, id: GlobalId) -> SinkDescription | None:
        """Stop a sink, and return what it was; None if it does not run."""
        cluster = self._cluster_of.pop(id, None)
        if cluster is None:
            return None
        process = self._processes[cluster]
        sink = process.sinks.pop(id)
        sending = self._end_run(sink)
        if process.connection is not None:
            process.connection.send(StopSink(id))
        if not process.sinks:
            del self._processes[cluster]
            assert process.task is not None
            process.task.cancel()
            await asyncio.gather(process.task, return_exceptions=True)
        if sending is not None:
            await asyncio.wait([sending])
        return sink.description

    async def close(self) -> None:
        """End all processes."""
        for id in list(self._cluster_of):
            await self.stop(id)

    def statuses(self) -> dict[GlobalId, SinkStatus]:
        """Return what each sink is doing."""
        return {
            id: sink.status
            for process in self._processes.values()
            for id, sink in process.sinks.items()
        }

    # --- the process ---------------------------------------------------------------------------

    def _connected(self, process: _Process, connection: Connection[Response]) -> None:
        process.connection = connection
        for sink in process.sinks.values():
            self._send_start(process, sink)

    def _lost(self, process: _Process) -> None:
        process.connection = None
        for sink in process.sinks.values():
            self._end_run(sink)
            self._set_state(sink, "starting", None)

    def _send_start(self, process: _Process, sink: _Sink) -> None:
        description = sink.description
        if description.obstacle is not None:
            self._set_state(sink, "stalled", description.obstacle)
        elif process.connection is not None:
            process.connection.send(StartSink(description.id, description.export))

    def _deliver(self, response: Response, tables: Tables) -> None:
        cluster = self._cluster_of.get(response.id)
        if cluster is None:
            return  # it was stopped meanwhile
        process = self._processes[cluster]
        sink = process.sinks[response.id]
        match response:
            case SinkState(state=state, error=error):
                self._set_state(sink, state, error)
            case Resumes(run=run):
                self._end_run(sink)
                sink.run = run
                sending = self._send_changes(process, sink, response)
                sink.sending = asyncio.get_running_loop().create_task(sending)
            case Exported(run=run, upper=upper):
                confirmed = sink.confirmed
                if run == sink.run and confirmed is not None and not confirmed.done():
                    confirmed.set_result(upper)

    def _end_run(self, sink: _Sink) -> asyncio.Task[None] | None:
        """Stop to send changes to a sink."""
        sending, sink.sending, sink.confirmed = sink.sending, None, None
        if sending is not None:
            sending.cancel()
        return sending

    def _set_state(self, sink: _Sink, state: str, error: str | None) -> None:
        status = sink.status
        if (status.state, status.error) != (state, error):
            status.state, status.error, status.since = state, error, self._clock.now()

    # --- changes -------------------------------------------------------------------------------

    async def _send_changes(self, process: _Process, sink: _Sink, resumes: Resumes) -> None:
        """Send one interval after another, each when the one before is confirmed."""
        id, connection = sink.description.id, process.connection
        assert connection is not None
        loop, least = asyncio.get_running_loop(), sink.description.export.spec.commit_ms / 1000
        try:
            frontier = self._exports.begin(id, resumes.frontier)
            while True:
                through = await self._exports.known_through(id, frontier)
                began = loop.time()
                sink.confirmed = loop.create_future()
                header = Changes(id, resumes.run, frontier, through + 1, complete=False)
                await self._send_interval(connection, sink, header, through)
                frontier = await sink.confirmed
                await self._exports.exported(id, frontier)
                sink.status.commits += 1
                await asyncio.sleep(began + least - loop.time())
        except DatabaseError as error:
            self._stall(process, sink, error.message)
            logger.warning("a sink stalls: %s", error, extra={"sink": id})
        except Exception:
            self._stall(process, sink, "internal error")
            logger.exception("a sink has failed", extra={"sink": id})

    async def _send_interval(
        self, connection: Connection[Response], sink: _Sink, header: Changes, through: Timestamp
    ) -> None:
        """Send all updates of an interval, as fast as the process reads them."""
        id, run, lower, upper = header.id, header.run, header.lower, header.upper
        async for table in self._exports.changes(id, lower, through):
            connection.send(header, (table,))
            sink.status.updates += table.num_rows
            sink.status.bytes += table.nbytes
            await connection.drained()
        connection.send(Changes(id, run, lower, upper, complete=True))

    def _stall(self, process: _Process, sink: _Sink, error: str) -> None:
        """Note a failure here; the sink is started again after a while."""
        self._set_state(sink, "stalled", error)
        id = sink.description.id

        def start_again() -> None:
            if process.sinks.get(id) is sink:
                self._send_start(process, sink)

        asyncio.get_running_loop().call_later(STALLED_SECONDS, start_again)
