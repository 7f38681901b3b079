"""The changelog of one collection: its recent updates, kept once for all subscribers.

    shard, index or dataflow ──► Changelog ──► subscriber, subscriber, subscriber ...

A subscriber's place is a time: it was given all updates before it. An event is rendered once for
all subscribers that want the same rows. Events stay until every subscriber has taken them, and a
while longer for new ones, unless the log exceeds its bound. A subscriber whose place was dropped
reads the missing changes elsewhere or ends. No subscriber ever blocks another one.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.envelope import INLINE_ROWS, Pieces, Rendering
from foreshore.compute.inputs import times_of
from foreshore.errors import DatabaseError
from foreshore.update import EMPTY, Timestamp

LOG_BYTES = 64 << 20
EVENT_BYTES = 4_096  # size of an event beside its rows
COPIES = 3  # a row is kept as an update, as a statement's row and as bytes for clients
KEPT_MS = 2_000  # how long an event stays for new subscribers after all have taken it


@dataclass(frozen=True, slots=True)
class End:
    """The time before which a stream ends, with an error or without."""

    time: Timestamp
    error: DatabaseError | None = None


def earliest(first: End | None, second: End | None) -> End | None:
    """Return the end that comes first, `first` if both are at one time."""
    if first is None or second is None:
        return first or second
    return first if first.time <= second.time else second


class Event:
    """All updates with lower <= time < upper; there is at least one."""

    __slots__ = ("_rendered", "lower", "size", "updates", "upper")

    def __init__(self, lower: Timestamp, upper: Timestamp, updates: pa.Table) -> None:
        self.lower = lower
        self.upper = upper
        self.updates = updates
        self.size = EVENT_BYTES + COPIES * updates.nbytes
        self._rendered: dict[Rendering, asyncio.Future[Pieces]] = {}

    async def pieces(self, rendering: Rendering) -> Pieces:
        """Return the event's rows and progress row; they are made for the first caller only."""
        found = self._rendered.get(rendering)
        if found is None:
            loop = asyncio.get_running_loop()
            if self.updates.num_rows <= INLINE_ROWS:
                found = loop.create_future()
                found.set_result(rendering.rows(self.updates) + rendering.progress(self.upper))
            else:
                found = loop.create_task(rendering.render(self.updates, self.upper))
            self._rendered[rendering] = found
        return found.result() if found.done() else await asyncio.shield(found)

    def part(self, lower: Timestamp, upper: Timestamp) -> pa.Table | None:
        """Return the updates with lower <= time < upper; None if these are all of them."""
        if lower <= self.lower and self.upper <= upper:
            return None
        times = times_of(self.updates)
        wanted = pc.and_(pc.greater_equal(times, lower), pc.less(times, upper))
        return self.updates.filter(wanted)


class Reader(Protocol):
    """A subscriber, as far as a changelog is concerned."""

    @property
    def upper(self) -> Timestamp:
        """The time before which it needs no events."""
        ...


class Changelog:
    """The recent updates of a collection, and its subscribers.

    `first_error` returns the first time in [lower, upper) at which the collection has an error, and
    the error. A changelog of a dataflow begins `with_contents`: its first updates are the contents
    as of the time at which it begins.
    """

    def __init__(
        self,
        frontier: Timestamp,
        first_error: Callable[[Timestamp, Timestamp], tuple[Timestamp, DatabaseError] | None],
        *,
        with_contents: bool = False,
    ) -> None:
        self.frontier = frontier  # all updates before it were published
        self.end: End | None = None  # set when no more updates will be published
        self.subscribers: set[Reader] = set()
        self._first_error = first_error
        self._contents_at = frontier if with_contents else None
        self._start = frontier + with_contents  # changes from here on were published
        self._kept_from: Timestamp = 0  # events before it were dropped
        self._log: deque[Event] = deque()
        self._bytes = 0
        self._event_came = asyncio.Event()
        self._frontier_moved = asyncio.Event()

    # --- for the source

    def publish(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> None:
        """Add all updates in [lower, upper), where `lower` is the upper of the previous call.

        An error at a time in between ends the changelog there. Later updates are ignored, since
        subscribers could not tell that something is missing before them.
        """
        if self.end is not None:
            return
        failed = self._first_error(lower, upper)
        if failed is not None:
            upper, error = failed
            if updates is not None:
                updates = updates.filter(pc.less(times_of(updates), upper))
        if updates is not None and updates.num_rows:
            event = Event(lower, upper, updates)
            self._log.append(event)
            self._bytes += event.size
            self._trim(upper)
            _release_waiting(self._event_came)
        self.frontier = max(self.frontier, upper)
        _release_waiting(self._frontier_moved)
        if self.frontier == EMPTY:
            _release_waiting(self._event_came)
        if failed is not None:
            self.fail(error)

    def fail(self, error: DatabaseError) -> None:
        """End the changelog with `error`; subscribers get all that was published first."""
        if self.end is None:
            self.end = End(self.frontier, error)
        self.wake()

    def _trim(self, upper: Timestamp) -> None:
        """Drop events that exceed the bound, and old ones that all subscribers have taken."""
        slowest: Timestamp | None = None
        while len(self._log) > 1:
            head = self._log[0]
            if self._bytes <= LOG_BYTES:
                if head.upper + KEPT_MS > upper:
                    return
                if slowest is None:
                    slowest = min((each.upper for each in self.subscribers), default=upper)
                if head.upper > slowest:
                    return
            self._log.popleft()
            self._bytes -= head.size
            self._kept_from = head.upper

    # --- for subscribers

    def has_contents(self, as_of: Timestamp) -> bool:
        """Whether it begins with the contents as of that time, and still has them."""
        return as_of == self._contents_at and not self.has_dropped(as_of)

    def has_changes(self, after: Timestamp) -> bool:
        """Whether it has every change later than that time."""
        return after + 1 >= self._start and not self.has_dropped(after + 1)

    def has_dropped(self, upper: Timestamp) -> bool:
        """Whether it has dropped an event that a subscriber at `upper` has yet to take."""
        return upper < self._kept_from

    def event(self, upper: Timestamp) -> Event | None:
        """Return the first event that a subscriber at `upper` has yet to take, if there is one."""
        log = self._log
        if not log or log[-1].upper <= upper:
            return None
        if len(log) == 1 or log[-2].upper <= upper:  # so for all subscribers that keep up
            return log[-1]
        return log[bisect_right(log, upper, key=attrgetter("upper"))]

    def changed(self, *, frontier: bool) -> Awaitable[object]:
        """Wait for the next event or, with `frontier`, until the frontier moves."""
        return (self._frontier_moved if frontier else self._event_came).wait()

    async def passed(self, time: Timestamp) -> None:
        """Wait until all updates at `time` were published or the changelog has ended."""
        while self.frontier <= time and self.end is None:
            await self._frontier_moved.wait()

    def wake(self) -> None:
        """Let all waiting subscribers look again."""
        _release_waiting(self._event_came)
        _release_waiting(self._frontier_moved)


def _release_waiting(event: asyncio.Event) -> None:
    """Release the tasks that wait now, but none that come later."""
    event.set()
    event.clear()
