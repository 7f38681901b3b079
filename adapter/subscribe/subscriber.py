"""A running subscription: carries out what its state decides, and gives the rows."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.services.changelogs import Source
from foreshore.adapter.services.tables import Tables
from foreshore.adapter.services.times import Times
from foreshore.adapter.services.views import Views
from foreshore.adapter.statement.result import all_rows
from foreshore.catalog.watch import Watch
from foreshore.compute.changelog import Changelog, End, earliest
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.envelope import Form
from foreshore.compute.inputs import times_of
from foreshore.compute.subscription_states import (
    Ended,
    Following,
    Reading,
    ReportProgress,
    Starting,
    State,
    TakeEvent,
    Wait,
    end_of_constant,
    interrupted,
    joined,
    limited,
    next_step,
)
from foreshore.errors import DatabaseError, InternalError, ObjectNotInPrerequisiteState, Unavailable
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.storage.controller import ListenEvent
from foreshore.storage.selection import ALL, Selection
from foreshore.update import EMPTY, Timestamp, insertions_at

PROGRESS_S = 1.0  # between progress rows while nothing changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What a SUBSCRIBE asks for: `relation` over the source's updates, in the form `form`.

    A shard is read by `selection`, and `rest` is `relation` over what that gives.
    """

    source: Source
    relation: Relation | None
    form: Form
    as_of: Timestamp
    until: Timestamp | None
    snapshot: bool
    progress_from: Timestamp  # the time of the first progress row
    constrained: frozenset[GlobalId]  # tables whose constraints the plan may need
    pid: int
    selection: Selection = ALL
    rest: Relation | None = None
    watch: Watch | None = None  # the rights that it needs as long as it runs


class Subscriber:
    """The rows of one subscription in the order of time; a `RowSource`."""

    streaming = True

    def __init__(self, times: Times, tables: Tables, views: Views, request: Request) -> None:
        self._times, self._tables, self._views = times, tables, views
        self._request = request
        self._progress = request.form.progress
        self._next_report = 0.0  # when the next progress row without a change is due, as loop time
        self._log: Changelog | None = None
        self._end = None if request.until is None else End(request.until)
        changelogs = views.changelogs
        self._rendering = changelogs.rendering(request.relation, request.form)
        self._rest = changelogs.rendering(request.rest, request.form)
        self._ready = deque(self._rendering.progress(request.progress_from))
        self._state: State = Starting(request.as_of, request.snapshot)
        self._revoked: DatabaseError | None = None
        changelogs.add(self)
        self._task = self._spawn(self._start, request.source.inputs, request.as_of)

    # --- for the client

    @property
    def has_ready(self) -> bool:
        """Whether `next` returns at once."""
        return bool(self._ready) or self._revoked is not None

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows when there are any, None at the end."""
        while not self._ready or self._revoked is not None:
            if self._revoked is not None:
                raise self._revoked
            match self._state:
                case Following():
                    await self._follow(self._state)
                case Starting() | Reading():
                    await asyncio.wait([self._task])
                    if not self._task.cancelled():
                        self._task.result()
                case Ended(error=error):
                    if error is not None:
                        raise error
                    return None
        first = self._ready.popleft()
        if first.num_rows <= limit:
            return first  # the same object for all subscribers: it is encoded once
        self._ready.appendleft(first.slice(limit))
        return first.slice(0, limit)

    async def park(self) -> None:
        """Go on: what is ready is shared with others, and bounded."""

    def close(self) -> None:
        """End the subscription."""
        self._become(Ended())

    # --- for the changelogs

    @property
    def source(self) -> Source:
        """The relation it subscribes to."""
        return self._request.source

    @property
    def watch(self) -> Watch | None:
        """The rights that it needs."""
        return self._request.watch

    @property
    def constrained(self) -> frozenset[GlobalId]:
        """The tables whose constraints its plan may need."""
        return self._request.constrained

    @property
    def upper(self) -> Timestamp:
        """The time before which it needs no events."""
        match self._state:
            case Following(upper=upper):
                return upper
            case Starting(as_of=as_of):
                return as_of
            case Reading(after=after):
                return after + 1
            case Ended():
                return EMPTY

    def limit(self, end: End) -> None:
        """End the stream at `end`, if it does not end before."""
        self._end = earliest(self._end, end)
        self._become(limited(self._state, end))
        if self._log is not None:
            self._log.wake()

    def interrupt(self, error: DatabaseError) -> None:
        """End the stream if it waits for what was dropped."""
        self._become(interrupted(self._state, error))

    def revoke(self, error: DatabaseError) -> None:
        """End the stream with the next call: its role has lost a right that it needs."""
        self._revoked = error
        self._ready.clear()
        if self._log is not None:
            self._log.wake()
        self._task.cancel()

    # --- transitions

    def _become(self, state: State) -> None:
        self._state = state
        if isinstance(state, Ended):
            self._task.cancel()
            self._views.changelogs.leave(self, self._log)

    def _spawn(
        self, work: Callable[[], Awaitable[None]], ids: frozenset[GlobalId], time: Timestamp
    ) -> asyncio.Task[None]:
        """Run `work` in a task during which `ids` stay readable at `time`."""
        hold = self._times.holds.acquire(ids, time, "subscription", self._request.pid)

        async def run() -> None:
            try:
                await work()
            except DatabaseError as error:
                self._become(Ended(error))
            except Exception:
                logger.exception("a subscription has failed", extra={"inputs": ids})
                self._become(Ended(InternalError("the subscription has failed")))
            finally:
                if isinstance(self._state, Starting | Reading):  # a shard was dropped meanwhile
                    ended = ObjectNotInPrerequisiteState("the subscription has ended")
                    self._become(Ended(ended))

        task = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(lambda _: hold.release())
        return task

    async def _start(self) -> None:
        """Join a changelog once the inputs are complete at AS OF."""
        source, as_of = self.source, self._request.as_of
        for id in source.inputs:
            await self._times.wait_readable(id, as_of)
        await self._views.compute.maintained.check_errors(source.inputs, as_of)
        while isinstance(self._state, Starting):
            self._log = self._views.changelogs.join(self, source, as_of)
            await self._log.passed(as_of)
            self._state = joined(self._state, self._log)
            if isinstance(self._state, Reading):
                await self._read(self._state, self._log)

    async def _follow(self, state: Following) -> None:
        """Take one step along the changelog."""
        log = self._log
        assert log is not None
        if log.frontier == EMPTY:
            self._end_as_constant(state.upper)
        step = next_step(state, log, self._end, progress=self._progress)
        # No pattern binds a field: each subscriber comes here twice for each event.
        match step:
            case TakeEvent():
                part = step.event.part(state.upper, step.until)
                if part is None:
                    pieces = await step.event.pieces(self._rendering)
                else:
                    upper = step.then.upper if step.then.upper > state.upper else None
                    pieces = await self._rendering.render(part, upper)
                self._ready.extend(pieces)
                self._state = step.then
            case Wait():
                await log.changed(frontier=step.frontier)
            case ReportProgress():
                await self._report_progress(step, log)
            case Reading():
                self._read_again(step, log)
            case Ended():
                self._become(step)

    async def _report_progress(self, step: ReportProgress, log: Changelog) -> None:
        """Report progress if it is due; else wait until it is, or an event or the end comes."""
        loop = asyncio.get_running_loop()
        wait_s = self._next_report - loop.time()
        is_last = self._end is not None and step.then.upper >= self._end.time
        if wait_s > 0 and self._progress and not is_last and log.end is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await log.changed(frontier=False)
            return
        self._next_report = loop.time() + PROGRESS_S
        self._ready.extend(self._rendering.progress(step.then.upper))
        self._state = step.then

    def _end_as_constant(self, upper: Timestamp) -> None:
        """End now: the collection will never change again."""
        now = self._times.oracle.read_ts()
        end = end_of_constant(self._request.as_of, now)
        self._end = earliest(self._end, End(max(upper, end)))

    # --- reading

    def _read_again(self, state: Reading, log: Changelog) -> None:
        """Read what the changelog has dropped from the shard, or end if that has it no longer."""
        holds, source = self._times.holds, self._request.source
        readable = [id for id in source.inputs & holds.collections.keys() if source.is_shard]
        if not any(holds.since(id) <= state.after for id in readable):
            late = Unavailable(
                "the subscriber does not keep up",
                sqlstate="53400",
                detail=f"The changes from {state.after + 1} on are not kept any more.",
            )
            self._become(Ended(late if log.end is None else log.end.error))
            return
        self._state = state
        self._task = self._spawn(partial(self._read, state, log), source.inputs, state.after)

    async def _read(self, state: Reading, log: Changelog) -> None:
        """Send what the changelog does not have, then follow it."""
        if self._request.source.is_shard:
            updates, upper = await self._read_shard(state)
            pieces = await self._rest.render(updates, upper)
        else:
            updates, upper = await self._peek(state.after), state.after + 1
            pieces = await self._rendering.render(updates, upper)
        self._ready.extend(pieces)
        self._become(Following(upper))

    async def _peek(self, as_of: Timestamp) -> pa.Table:
        """Return the contents as of a time, as the answer of a query."""
        source = self._request.source
        assert source.cluster is not None
        imports = () if source.index is not None else tuple(sorted(source.inputs))
        request = PeekRequest(as_of, source.relation, imports=imports, index=source.index)
        result = await self._views.compute.peek(source.cluster, request)
        return insertions_at(pa.Table.from_batches([await all_rows(result)]), as_of)

    async def _read_shard(self, state: Reading) -> tuple[pa.Table | None, Timestamp]:
        """Return the shard's updates later than `state.after`, and the time that they reach.

        The stream ends at an error in between, after the updates before it.
        """
        (shard,) = self._request.source.inputs
        events: list[ListenEvent] = []
        read, _ = self._tables.capabilities[shard]
        listen = self._tables.storage.subscribe_at(
            read,
            state.after,
            events.append,
            snapshot=state.snapshot,
            selection=self._request.selection,
        )
        assert listen.task is not None
        try:
            await listen.task
        finally:
            listen.cancel()
        event = events[0]
        if event.upper == EMPTY:
            self._end_as_constant(state.after + 1)
        upper = event.upper if self._end is None else min(event.upper, self._end.time)
        maintained = self._views.compute.maintained
        await maintained.errors_known([shard], upper - 1)
        failed = maintained.first_error([shard], state.after, upper)
        if failed is not None:
            upper, error = failed
            self._end = earliest(self._end, End(upper, error))
        updates = event.updates
        if updates is not None and upper < event.upper:
            updates = updates.filter(pc.less(times_of(updates), upper))
        return updates, upper
