"""The environment's side of ingestion: its processes, and the commit of what they read.

A source has a process with the other sources of its cluster. What arrives while a commit is under
way becomes one commit: so a source that is faster than the log has larger commits, not a longer
queue, as it may have only a few batches on their way.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from foreshore import blocking
from foreshore.clock import Clock
from foreshore.errors import DatabaseError, FeatureNotSupported, OutOfDisk
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.processes.transport import Connection, Tables
from foreshore.sources.spec import SourceSpec
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.processes import ClusterProcesses
from foreshore.storage.external.retries import waits
from foreshore.storage.external.states import States
from foreshore.storage.ingest.messages import (
    CONTENTS_WINDOW,
    AskContents,
    AskFurthest,
    AskInput,
    Committed,
    Contents,
    ContentsTaken,
    Furthest,
    Ingested,
    IngestedPart,
    NextTry,
    OutputRelation,
    PartKept,
    Reported,
    Response,
    SourceState,
    StartSource,
    StopSource,
    TryNow,
)
from foreshore.storage.ingest.positions import covers, follows
from foreshore.storage.ingest.spool import Spool
from foreshore.storage.ingest.statuses import OutputStatus, SourceStatus
from foreshore.update import DIFF

logger = logging.getLogger(__name__)

ASK_SECONDS = 1.0  # until a source that could not say how far its system is, is asked again
DISK_FULL_SECONDS = 1.0  # between two tries to commit


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A source to run: where, what it reads, and the relations that it writes, by reference."""

    id: GlobalId
    cluster: str
    spec: SourceSpec
    outputs: Mapping[str, OutputRelation]
    progress: GlobalId  # the relation with its position
    accesses: Accesses
    obstacle: str | None = None  # why it cannot be started


@dataclass(frozen=True, slots=True)
class Stopped:
    """A source that does not run any more, and how far it was read."""

    description: SourceDescription
    position: Mapping[str, int]
    status: SourceStatus


@dataclass(frozen=True, slots=True)
class Progressed:
    """One commit of a source: updates of relations, and the positions before and after."""

    rows: Mapping[GlobalId, Sequence[pa.Table]]
    progress: GlobalId
    before: Mapping[str, int]  # of the parts that move; a new part is not there
    after: Mapping[str, int]


class Commit(Protocol):
    """Writes the rows of sources and their positions."""

    async def __call__(self, progressed: Progressed) -> None:
        """Make it durable, at one time; raises DatabaseError if nothing was written."""
        ...


class Read(Protocol):
    """Reads the relations of sources."""

    def __call__(self, output: GlobalId) -> AsyncGenerator[pa.Table, None]:
        """Yield all rows at the newest time, with `__diff`."""
        ...


class Inputs(Protocol):
    """Reads the relations that sources have as input."""

    async def known_through(self, source: GlobalId, frontier: int | None) -> int:
        """Wait for changes at `frontier` or later, None: for the beginning.

        Returns the time through which an interval may go. Raises DatabaseError.
        """
        ...

    def changes(
        self, source: GlobalId, frontier: int | None, through: int
    ) -> AsyncGenerator[pa.Table, None]:
        """Yield the updates with frontier <= time <= through; None: the contents at `through`."""
        ...


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a batch by outputs: those of its message, and those that came before in parts."""

    rows: Mapping[GlobalId, pa.Table]
    spool: Spool | None


@dataclass(slots=True)
class _Source:
    description: SourceDescription
    position: dict[str, int]  # durable
    status: SourceStatus
    started_by: Connection[Response] | None = None  # the process that reads it
    run: int = 0  # the number of its last start; 0 if what that sends counts for nothing
    waiting: list[tuple[Ingested, _Rows]] = field(default_factory=list)
    spool: Spool | None = None  # of the batch that comes in parts
    parts: deque[tuple[IngestedPart, Tables]] = field(default_factory=deque)  # to be kept
    keeping: asyncio.Task[None] | None = None
    committing: asyncio.Task[None] | None = None
    is_at_end: bool = False  # it has read all; it has finished when that is committed
    reading: asyncio.Task[None] | None = None  # what the process asked for
    untaken: dict[tuple[int, int], int] = field(default_factory=dict)  # by runs and requests
    ends: bool = False
    furthest: dict[int, Furthest | None] = field(default_factory=dict)  # by requests; None: asked
    awaited: set[asyncio.Future[None]] = field(default_factory=set)
    pauses: Iterator[float] = field(default_factory=waits)  # before the next starts after a failure
    next_start: asyncio.TimerHandle | None = None  # after a failure here

    def forget(self) -> None:
        """Drop what has arrived and is not being committed: it is read again."""
        self.waiting.clear()
        self.parts.clear()
        self.spool = None
        self.is_at_end = False

    def notify(self) -> None:
        """Wake who waits for a change."""
        for each in self.awaited:
            if not each.done():
                each.set_result(None)


class IngestController:
    """Runs the sources of one environment; owned by the event loop."""

    def __init__(
        self,
        launcher: Launcher,
        commit: Commit,
        read: Read,
        inputs: Inputs,
        clock: Clock,
        scratch: Path,
    ) -> None:
        self._scratch = scratch  # a directory for rows that have not arrived whole
        self._commit = commit
        self._read = read
        self._inputs = inputs
        self._clock = clock
        self.states = States(clock)
        self._processes: ClusterProcesses[_Source] = ClusterProcesses(
            launcher, self, Response, "ingestion process"
        )
        self.without_snapshot: set[GlobalId] = set()  # sources of which nothing is durable
        self._requests = self._runs = 0
        # Takes a source and an output that has ceased.
        self.ceased: Callable[[SourceDescription, GlobalId], None] = lambda source, output: None

    # --- what runs -----------------------------------------------------------------------------

    def start(
        self,
        description: SourceDescription,
        position: Mapping[str, int],
        before: Stopped | None = None,
    ) -> None:
        """Run a source from `position`, which is durable; counts go on from those `before`."""
        status = SourceStatus(since=self._clock.now(), position=(durable := dict(position)))
        if before is not None:
            ids = {
                output.id: now.id
                for reference, output in before.description.outputs.items()
                if (now := description.outputs.get(reference)) is not None
            }
            status.carry_on(before.status, ids)
        source = _Source(description, durable, status)
        if not durable:
            self.without_snapshot.add(description.id)
        self._processes.add(description.id, description.cluster, source)

    def description(self, id: GlobalId) -> SourceDescription | None:
        """Return what runs under an id; None if nothing does."""
        source = self._processes.get(id)
        return None if source is None else source.description

    async def stop(self, id: GlobalId) -> Stopped | None:
        """Stop a source, and return its durable position; None if it does not run."""
        source = self._processes.get(id)
        if source is None:
            return None
        source.ends = True
        self.without_snapshot.discard(id)
        source.notify()
        source.forget()
        if source.reading is not None:
            source.reading.cancel()
        await self._processes.remove(id, StopSource(id))
        if source.committing is not None:  # else the position would not be known
            await asyncio.wait([source.committing])
        return Stopped(source.description, source.position, source.status)

    async def close(self) -> None:
        """End all processes."""
        for id in self._processes.jobs():
            await self.stop(id)

    async def caught_up(self, id: GlobalId) -> bool:
        """Wait until all is durable here that the external system of a source has now.

        Returns whether it is; False if the source does not run, or is stopped meanwhile. One that
        stalls is waited for. Raises FeatureNotSupported if the source cannot say.
        """
        while (source := self._processes.get(id)) is not None:
            connection = source.started_by
            if source.status.state == "finished":
                return True
            if connection is None or source.status.state == "stalled":
                await self._changed(source)
                continue
            self._requests += 1
            request, run = self._requests, source.run
            source.furthest[request] = None
            try:
                connection.send(AskFurthest(id, request))
                while (
                    source.furthest[request] is None
                    and (source.started_by, source.run) == (connection, run)
                    and not source.ends  # what was stopped does not answer
                ):
                    await self._changed(source)
            finally:
                answer = source.furthest.pop(request)
            if answer is None:
                continue  # it was stopped or started anew meanwhile
            if answer.error is not None:
                if not answer.can_say:
                    raise FeatureNotSupported(f"real-time recency is not known: {answer.error}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASK_SECONDS):
                        await self._changed(source)
                continue
            while not covers(source.position, answer.position) and not source.ends:
                await self._changed(source)
            if not source.ends:
                return True
        return False

    def try_now(self, id: GlobalId) -> None:
        """Have a source tried at once that pauses after a failure, as somebody waits for it."""
        source = self._processes.get(id)
        if source is None or source.status.state != "stalled":
            return
        if source.next_start is not None:
            source.next_start.cancel()
            self._start_again(source)
        elif (connection := source.started_by) is not None:
            connection.send(TryNow(id))

    async def _changed(self, source: _Source) -> None:
        """Wait for a commit, an answer or another state of a source."""
        changed = asyncio.get_running_loop().create_future()
        source.awaited.add(changed)
        try:
            await changed
        finally:
            source.awaited.discard(changed)

    async def filled(self, id: GlobalId) -> None:
        """Wait until a source has its first snapshot, or does not run."""
        while (each := self._processes.get(id)) is not None and not each.status.is_filled:
            await self._changed(each)

    def statuses(self) -> Mapping[GlobalId, SourceStatus]:
        """Return what each source is doing."""
        return {id: source.status for id, source in self._processes.jobs().items()}

    # --- the process ---------------------------------------------------------------------------

    def connected(self, job: _Source, connection: Connection[Response]) -> None:
        """Let a new process read a source."""
        self._send_start(job)

    def lost(self, job: _Source) -> None:
        """Note that the process of a source has ended."""
        job.started_by = None
        job.notify()
        job.forget()
        if job.reading is not None:
            job.reading.cancel()
        self._set_state(job, "starting", None)

    def _send_start(self, source: _Source) -> None:
        """Let the process read a source from its durable position."""
        each = source.description
        connection = self._processes.connection(each.id)
        if connection is None or source.committing is not None or source.ends:
            return  # when there is a process, and the commit has ended
        if each.obstacle is not None:
            self._set_state(source, "stalled", each.obstacle)
            return
        source.started_by = connection
        source.forget()
        for output in source.status.outputs.values():
            output.earlier_messages = output.messages
            output.counts = msgspec.structs.replace(output.counts, messages=0)
        self._runs += 1
        source.run = self._runs
        position, outputs = dict(source.position), dict(each.outputs)
        start = StartSource(each.id, source.run, each.spec, position, outputs, each.accesses)
        connection.send(start)
        source.notify()

    def deliver(self, job: _Source, response: Response, tables: Tables) -> None:
        """Take what a process has read or asks for."""
        match response:
            case NextTry(seconds=seconds):
                if job.run:  # else it is started anew by `_stall`
                    self.states.set_next_try(job.status, seconds)
            case SourceState() if not self._is_news(job, response):
                pass
            case SourceState(state="finished") if job.committing is not None:
                job.is_at_end = True
            case SourceState(state=state, error=error):
                self._set_state(job, state, error)
            case Furthest():
                if response.request in job.furthest:
                    job.furthest[response.request] = response
                    job.notify()
            case (
                AskContents(run=run)
                | AskInput(run=run)
                | Ingested(run=run)
                | IngestedPart(run=run)
                | Reported(run=run)
            ) if run != job.run:
                pass  # it was started anew meanwhile
            case Reported():
                self._take_report(job, response)
            case ContentsTaken(run=run, request=request):
                if (run, request) in job.untaken:
                    job.untaken[run, request] -= 1
                    job.notify()
            case AskContents() | AskInput():
                assert job.started_by is not None, job
                if job.reading is not None:  # of a try before
                    job.reading.cancel()
                asked = self._send_contents(job, job.started_by, response)
                job.reading = asyncio.get_running_loop().create_task(asked)
            case IngestedPart():
                job.status.count_received(response.outputs, tables)
                job.parts.append((response, tables))
                if job.keeping is None:
                    job.keeping = asyncio.get_running_loop().create_task(self._keep_parts(job))
            case Ingested():
                job.status.count_received(response.outputs, tables)
                spool, job.spool = job.spool, None
                whole = (response.batch, response.parts)
                if response.parts and (spool is None or (spool.batch, spool.parts) != whole):
                    self._stall(job, "parts of a batch are missing")
                    return
                rows = dict(zip(response.outputs, tables, strict=True))
                job.waiting.append((response, _Rows(rows, spool if response.parts else None)))
                if job.committing is None:
                    committing = self._commit_waiting(job)
                    job.committing = asyncio.get_running_loop().create_task(committing)

    async def _keep_parts(self, source: _Source) -> None:
        """Write the parts that have come, until there are no more."""
        try:
            while source.parts:
                part, tables = source.parts.popleft()
                reads = source.started_by
                if source.spool is None or source.spool.batch != part.batch:
                    source.spool = Spool(self._scratch, part.batch)
                await blocking.run(None, source.spool.add, part, tables)
                if reads is not None and reads is source.started_by and part.run == source.run:
                    reads.send(PartKept(source.description.id, part.run))
        except DatabaseError as error:
            self._stall(source, error.message)
        except Exception:
            self._stall(source, "internal error")
            logger.exception("a source has failed", extra={"source": source.description.id})
        finally:
            source.keeping = None

    async def _send_contents(
        self, source: _Source, connection: Connection[Response], asked: AskContents | AskInput
    ) -> None:
        """Send the rows of a relation to the process that asked for them."""
        id, run, request = asked.id, asked.run, asked.request
        source.untaken[run, request] = 0
        try:
            tables, upper = await self._asked(asked)
            async with aclosing(tables):
                async for table in tables:
                    while source.untaken[run, request] >= CONTENTS_WINDOW:
                        if source.started_by is not connection:
                            return  # nobody waits for them
                        await self._changed(source)
                    source.untaken[run, request] += 1
                    if isinstance(asked, AskContents) and asked.columns is not None:
                        table = table.select([*table.column_names[: asked.columns], DIFF])
                    connection.send(Contents(id, run, request, False, upper=upper), (table,))
                    await connection.drained()
            connection.send(Contents(id, run, request, True, upper=upper))
        except DatabaseError as error:
            connection.send(Contents(id, run, request, True, error.message))
        except Exception:
            logger.exception("rows of a source cannot be read", extra={"source": id})
            connection.send(Contents(id, run, request, True, "internal error"))
        finally:
            del source.untaken[run, request]
            if source.reading is asyncio.current_task():
                source.reading = None

    async def _asked(
        self, asked: AskContents | AskInput
    ) -> tuple[AsyncGenerator[pa.Table, None], int]:
        """Return the tables that a process asked for, and of its input the time after them."""
        if isinstance(asked, AskContents):
            return self._read(asked.output), 0
        if asked.contents:
            assert asked.frontier is not None, asked
            return self._inputs.changes(asked.id, None, asked.frontier - 1), asked.frontier
        through = await self._inputs.known_through(asked.id, asked.frontier)
        return self._inputs.changes(asked.id, asked.frontier, through), through + 1

    def _is_news(self, source: _Source, said: SourceState) -> bool:
        """Whether a state that a process says is to be noted.

        A source is stalled until it gets on: what is said of each new try in between is left out.
        """
        if not source.run:
            return False  # it is started anew because of a failure here
        is_committing = source.committing is not None
        return source.status.state != "stalled" or not (
            said.state == "starting" or (said.state == "running" and is_committing)
        )

    def _set_state(self, source: _Source, state: str, error: str | None) -> None:
        self.states.set(source.description.id, source.status, state, error)
        source.notify()

    def _take_report(self, source: _Source, reported: Reported) -> None:
        """Note what a process knows; an output that has ceased has a state of its own."""
        if (warning := source.status.took(reported)) is not None:
            logger.warning("%s", warning, extra={"source": source.description.id})
        for id, counts in reported.outputs.items():
            output = source.status.output(id)
            state = (counts.waits or "running") if counts.ceased is None else "ceased"
            has_ceased = state == "ceased" != output.state
            if counts.ceased is None:
                output.refused = None
            output.take(counts)
            self.states.set(id, output, state, output.reason)
            source.notify()
            if has_ceased:
                self.ceased(source.description, id)

    def show_refusal(self, id: GlobalId, output: OutputStatus) -> None:
        """Show why the change of an output that has ceased is not applied."""
        self.states.set(id, output, output.state, output.reason)

    # --- commits -------------------------------------------------------------------------------

    async def _commit_waiting(self, source: _Source) -> None:
        """Commit what waits, until nothing does."""
        id = source.description.id
        try:
            while source.waiting:
                together, source.waiting = source.waiting, []
                reads, run = source.started_by, source.run
                progressed = await _together(source.description.progress, together)
                if not follows(source.position, progressed.before, progressed.after):
                    raise _OutOfPlace
                await self._commit_patiently(source, progressed)
                source.position |= progressed.after
                self.without_snapshot.discard(id)
                source.notify()
                if source.status.state in ("starting", "stalled"):
                    self._set_state(source, "running", None)
                source.pauses = waits()
                source.status.batches += len(together)
                source.status.committed_at = self._clock.now()
                source.status.count(progressed.rows)
                if reads is not None and reads is source.started_by:
                    for _ in together:
                        reads.send(Committed(id, run))
            if source.is_at_end:
                self._set_state(source, "finished", None)
        except _OutOfPlace:  # it was read by a process that did not know of a commit
            source.forget()
            source.started_by, source.run = None, 0
        except DatabaseError as error:
            self._stall(source, error.message)
            if not source.ends:
                logger.warning("a source stalls: %s", error, extra={"source": id})
        except Exception:
            self._stall(source, "internal error")
            logger.exception("a source has failed", extra={"source": id})
        finally:
            source.committing = None
            source.notify()
            if source.started_by is None and source.status.state != "stalled":
                self._send_start(source)

    def _stall(self, source: _Source, error: str) -> None:
        """Note that a commit has failed; the source is read again after a pause that grows."""
        source.forget()
        source.started_by, source.run = None, 0
        self._set_state(source, "stalled", error)
        self._start_later(source)

    def _start_later(self, source: _Source) -> None:
        if source.next_start is not None:
            source.next_start.cancel()
        loop, pause = asyncio.get_running_loop(), next(source.pauses)
        self.states.set_next_try(source.status, pause)
        source.next_start = loop.call_later(pause, self._start_again, source)

    def _start_again(self, source: _Source) -> None:
        source.next_start = None
        if source.committing is not None:  # where it begins is not known yet
            self._start_later(source)
        elif source.started_by is None:
            self._send_start(source)

    async def _commit_patiently(self, source: _Source, progressed: Progressed) -> None:
        """Commit, again and again while the disk is full."""
        while True:
            try:
                return await self._commit(progressed)
            except OutOfDisk as error:
                if source.ends:
                    raise
                self._set_state(source, "stalled", error.message)
            await asyncio.sleep(DISK_FULL_SECONDS)


class _OutOfPlace(Exception):
    """A batch does not follow the durable position."""


async def _together(progress: GlobalId, batches: Sequence[tuple[Ingested, _Rows]]) -> Progressed:
    """Return consecutive batches as one."""
    rows: dict[GlobalId, list[pa.Table]] = {}
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for message, arrived in batches:
        for part in message.after:
            known = message.before.get(part)
            if part in after and after[part] != known:
                raise _OutOfPlace
            if part not in after and known is not None:
                before[part] = known
        after |= message.after
        if arrived.spool is not None:
            for output, parts in (await blocking.run(None, arrived.spool.taken)).items():
                rows.setdefault(output, []).extend(parts)
        for output, table in arrived.rows.items():
            rows.setdefault(output, []).append(table)
    return Progressed(rows, progress, before, after)
