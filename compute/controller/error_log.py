"""The errors of a materialized view over time, and where they are stored.

    Errors       counts errors, and reports when the least error changes
    ErrorLog     the least errors of a materialized view, as steps: each holds until the next one
    ErrorStore   keeps the steps beyond the dataflow's life; they are durable before the
                 view's shard advances past them

Before the time at which a view's dataflow starts, the store has the errors; from then on the
dataflow reports them. Its reports replace stored steps at the same times. They differ only if the
environment ended between storing errors and advancing the shard.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush, nlargest
from itertools import groupby, islice
from operator import itemgetter
from typing import Protocol

import pyarrow as pa

from foreshore.compute.controller.error_policy import FAILS, ErrorPolicy
from foreshore.compute.controller.windows import new_part
from foreshore.compute.protocol import MOST_ERRORS, ErrorCount
from foreshore.errors import CollectionCorrupted, DatabaseError
from foreshore.failpoint import reached
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

COMPACTED_STEPS = 64
MAX_STEPS = 4_096
MOST_COMPARED = 10_000  # errors of which the most frequent ones are shown
LOST = "22023 what a view was at this time is not known: nobody maintained it"

Steps = Mapping[Timestamp, str | None]  # the least error from each time on; None: no error
Marks = Callable[[Timestamp, Timestamp, bool], Collection[Timestamp]]  # of lower, upper, initial


class ErrorStore(Protocol):
    """Stores the error steps of materialized views."""

    def load(self, id: GlobalId) -> Steps:
        """Return all stored steps of a view.

        Raises CollectionCorrupted if the steps may exist and cannot be read.
        """
        ...

    async def store(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> None:
        """Make durable that a view has `steps`, and no others, at `times`.

        Raises OutOfDisk if nothing was written.
        """
        ...

    async def settled(self, id: GlobalId) -> None:
        """Wait for writes that are pending for an ended dataflow of the view."""
        ...


class NothingKept:
    """A store without contents, for views that do not outlive their process."""

    def load(self, id: GlobalId) -> Steps:
        """Return no steps."""
        return {}

    async def store(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> None:
        """Discard the steps."""

    async def settled(self, id: GlobalId) -> None:
        """Return at once."""


class Errors:
    """The count of each error and the least error; `least` is None if there is none.

    A heap finds the least error. Errors that are gone are removed when they reach its top.
    """

    def __init__(self) -> None:
        self.least: str | None = None
        self.total = 0
        self._counts: Counter[str] = Counter()
        self._heap: list[str] = []
        self._queued: set[str] = set()  # the contents of the heap

    def take(self, updates: pa.Table) -> list[tuple[Timestamp, str | None]]:
        """Add updates, none of which is earlier than previous ones.

        Returns the times at which the least error changed, with the new one.
        """
        changes = []
        columns = (column.to_pylist() for column in updates.columns)
        rows = sorted(zip(*columns, strict=True), key=itemgetter(1))
        for time, group in groupby(rows, key=itemgetter(1)):
            for text, _, diff in group:
                self._counts[text] += diff
                self.total += diff
                if not self._counts[text]:
                    del self._counts[text]
                elif text not in self._queued:
                    self._queued.add(text)
                    heappush(self._heap, text)
            while self._heap and self._counts.get(self._heap[0], 0) <= 0:
                self._queued.discard(heappop(self._heap))
            least = self._heap[0] if self._heap else None
            if least != self.least:
                self.least = least
                changes.append((time, least))
        return changes

    def most_frequent(self) -> list[ErrorCount]:
        """Return the most frequent errors, of the first `MOST_COMPARED` ones."""
        compared = islice(self._counts.items(), MOST_COMPARED)
        found = nlargest(MOST_ERRORS, compared, key=itemgetter(1))
        return [ErrorCount(text, rows) for text, rows in found]


class ErrorLog:
    """The least errors over time of a materialized view whose dataflow starts at `as_of`.

    Errors before `upper` are known from the dataflow; None: it has not reported any yet. At times
    at which the `policy` is to skip rows with errors, these do not make reads of the view fail.

    A view with a schedule has `marks`: refreshes at which there has to be a step. The function
    returns those in a window, with `initial` the last one before its end (`read_errors.py`).
    """

    def __init__(
        self,
        id: GlobalId,
        as_of: Timestamp,
        store: ErrorStore,
        *,
        policy: ErrorPolicy = FAILS,
        marks: Marks | None = None,
    ) -> None:
        self.policy = policy
        self.upper: Timestamp | None = None
        self._id = id
        self._as_of = as_of
        self._store = store
        self._marks = marks
        self._corruption: CollectionCorrupted | None = None
        earlier: Steps = {}
        try:
            earlier = store.load(id)
        except CollectionCorrupted as corruption:
            self._corruption = corruption
        self._times = sorted(earlier)
        self._texts = [earlier[time] for time in self._times]
        self._compacted = COMPACTED_STEPS  # the number of steps at which to compact again
        self._unstored: set[Timestamp] = set()  # times at which the store may differ
        self._errors = Errors()
        # The time that each waiter waits for.
        self._waiting: dict[asyncio.Future[None], Timestamp] = {}

    @property
    def is_full(self) -> bool:
        """Whether too many steps are waiting to be stored."""
        return len(self._unstored) > MAX_STEPS

    def mark_unknown(self, lower: Timestamp) -> None:
        """Report an error from `lower` until the dataflow starts, because contents are unknown."""
        if lower < self._as_of:
            self._replace(lower, self._as_of + 1, [(lower, LOST), (self._as_of, None)])

    # --- what the dataflow says

    def add(
        self, lower: Timestamp, upper: Timestamp, errors: pa.Table | None, *, initial: bool
    ) -> None:
        """Add the errors' updates in [lower, upper), or if `initial` all errors before upper."""
        if self.upper is None and not initial:
            return
        if self.upper is None or (initial and upper > self.upper):
            # A replica that begins at a refresh has all errors of a time that is not known yet.
            self._errors = Errors()
            self._begin(upper - 1, errors)
            self._mark(upper - 1, upper, initial=True)
        elif upper > self.upper:
            fresh = None
            if errors is not None:
                fresh = new_part(min(lower, self.upper), upper, errors, self.upper)
            self._replace(self.upper, upper, self._errors.take(fresh) if fresh is not None else [])
            if self._marks is not None:
                self._mark(self.upper, upper, initial=False)
        self.upper = max(self.upper or 0, upper)
        if self._waiting:
            self._wake()

    def _begin(self, as_of: Timestamp, errors: pa.Table | None) -> None:
        """Append the errors at `as_of` to the stored steps of earlier times."""
        if errors is not None:
            self._errors.take(errors)
        before = bisect_left(self._times, as_of)
        is_new = self._errors.least != (self._texts[before - 1] if before else None)
        self._replace(as_of, as_of + 1, [(as_of, self._errors.least)] if is_new else [])

    def _replace(
        self, lower: Timestamp, upper: Timestamp, steps: Sequence[tuple[Timestamp, str | None]]
    ) -> None:
        """Replace all steps in [lower, upper) by `steps`."""
        start, end = bisect_left(self._times, lower), bisect_left(self._times, upper)
        if start == end and not steps:
            return
        self._unstored.update(self._times[start:end], (time for time, _ in steps))
        self._times[start:end] = [time for time, _ in steps]
        self._texts[start:end] = [text for _, text in steps]

    def _mark(self, lower: Timestamp, upper: Timestamp, *, initial: bool) -> None:
        """Add steps at the refreshes in [lower, upper) that need one."""
        for time in () if self._marks is None else self._marks(lower, upper, initial):
            place = bisect_left(self._times, time)
            if place == len(self._times) or self._times[place] != time:
                self._times.insert(place, time)
                self._texts.insert(place, self._texts[place - 1] if place else None)
                self._unstored.add(time)

    def fail(self, error: DatabaseError) -> None:
        """Fail the waiters for unknown errors with `error`."""
        for passed in self._waiting:
            if not passed.done():
                passed.set_exception(error)

    def wake_waiters(self) -> None:
        """Wake the waiters, since errors may never become known."""
        for passed in self._waiting:
            if not passed.done():
                passed.set_result(None)

    def take_over_waiters(self, before: "ErrorLog") -> None:
        """Take over the waiters of the error log of the view's previous dataflow."""
        self._waiting = before._waiting
        self._wake()

    def _wake(self) -> None:
        for passed, time in self._waiting.items():
            if self.is_known(time) and not passed.done():
                passed.set_result(None)

    # --- queries

    @property
    def count(self) -> int:
        """Return the number of errors at the newest time that the dataflow has reported."""
        return self._errors.total

    def most_frequent(self) -> list[ErrorCount]:
        """Return the most frequent errors at that time."""
        return self._errors.most_frequent()

    def is_known(self, time: Timestamp) -> bool:
        """Whether the errors at `time` are known."""
        return time < self._as_of or (self.upper is not None and time < self.upper)

    async def known(self, time: Timestamp) -> None:
        """Wait until errors are known at `time`, or until woken; raises the error of `fail`."""
        if self.is_known(time):
            return
        waiting = self._waiting
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[passed] = time
        try:
            await passed
        finally:
            del waiting[passed]

    def first(self, lower: Timestamp, upper: Timestamp) -> tuple[Timestamp, str] | None:
        """Return the first time in [lower, upper) at which reads fail, and the error, or None.

        Raises CollectionCorrupted if the store should know and cannot be read.
        """
        if self._corruption is not None and (lower < self._as_of or self.upper is None):
            raise self._corruption
        start = max(bisect_right(self._times, lower) - 1, 0)
        end = bisect_left(self._times, upper)
        for place in range(start, end):
            text = self._texts[place]
            if text is None:
                continue
            begins = max(self._times[place], lower)
            ends = self._times[place + 1] if place + 1 < end else upper
            fails = begins if text == LOST else self.policy.first_failing(begins, ends)
            if fails is not None:
                return fails, text
        return None

    def changes(self, lower: Timestamp, upper: Timestamp, *, steps: bool = True) -> list[Timestamp]:
        """Return the times in [lower, upper) of `steps`, if wanted, and changes of the policy."""
        found = [time for time in self.policy.changes if lower <= time < upper]
        if steps:
            found += self._times[bisect_left(self._times, lower) : bisect_left(self._times, upper)]
        return found

    def last_step(self, time: Timestamp) -> Timestamp:
        """Return the time of the step that is in force at `time`, -1 if there is none."""
        place = bisect_right(self._times, time) - 1
        return self._times[place] if place >= 0 else -1

    def fails(self, text: str, time: Timestamp) -> bool:
        """Whether an error with this text makes reads at a time fail."""
        return text == LOST or self.policy.first_failing(time, time + 1) is not None

    # --- storage

    async def store(self, before: Timestamp) -> None:
        """Make the changed steps before a time durable.

        Raises OutOfDisk if nothing was written.
        """
        times = {time for time in self._unstored if time < before} if self._unstored else None
        if not times:
            return
        places = ((time, bisect_left(self._times, time)) for time in times)
        steps = {
            time: self._texts[place]
            for time, place in places
            if place < len(self._times) and self._times[place] == time
        }
        await self._store.store(self._id, times, steps)
        self._unstored -= times
        reached("view.errors")

    def compact(
        self,
        readable: Callable[[], Timestamp],
        pinned: Callable[[Timestamp], Collection[Timestamp]] = lambda _: (),
    ) -> None:
        """Forget steps from before the view and its dependents are readable, if there are many.

        The steps that are in force at `pinned` times before that stay, and all if 0 is one. If more
        than `MAX_STEPS` remain, the older half of those after them becomes one step with its least
        error. The view is then unreadable at more times, but never read wrongly.
        """
        if len(self._times) < self._compacted:
            return
        since = readable()
        pins = pinned(since)
        since = 0 if 0 in pins else since  # all are asked for
        held = {bisect_right(self._times, time) - 1 for time in (since, *pins)} - {-1}
        kept = [(self._times[place], self._texts[place]) for place in sorted(held)]
        if kept:
            is_needed = kept[0][1] is not None or self._marks is not None
            self._replace(0, since + 1, kept if is_needed else kept[1:])
        if len(self._times) >= MAX_STEPS:
            begin = bisect_right(self._times, since)
            half = (begin + len(self._times)) // 2
            texts = [text for text in self._texts[begin:half] if text is not None]
            is_lost = LOST in texts or self._marks is not None  # also when it was refreshed
            least = LOST if is_lost else min(texts)  # which no policy skips
            self._replace(self._times[begin], self._times[half], [(self._times[begin], least)])
        self._compacted = min(max(2 * len(self._times), COMPACTED_STEPS), MAX_STEPS)
