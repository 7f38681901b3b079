"""Tails: what changes in a collection, heard once for all who follow it.

    shard, index or dataflow ──► Tail: a log of events ──► cursor, cursor, cursor ...

A tail keeps the latest events in a log; who follows has a place in it and goes at a pace of its
own. What an event looks like in some statement's form is made once and shared. Nobody waits for
anybody: an event stays for those who have yet to take it, until the log is larger than its bound;
who is then still behind finds `Behind` where the event was, and has to read it elsewhere or end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.read.result import BATCH_ROWS
from foreshore.adapter.subscribe.envelope import Shape
from foreshore.compute.engine import output_schema
from foreshore.compute.replica.inputs import times_of
from foreshore.compute.replica.linear import Rows, apply
from foreshore.errors import DatabaseError
from foreshore.expr.ir import Relation, columns_of
from foreshore.ids import GlobalId
from foreshore.update import EMPTY, Timestamp

LOG_BYTES = 64 << 20
EVENT_BYTES = 4_096  # what an event takes beside its rows
FORMS = 3  # a row is there as it came, in a statement's form, and as bytes for clients
KEPT_MS = 2_000  # how long an event stays that all have taken, for those who come
INLINE_ROWS = 2_048  # up to which rows are brought into form on the event loop

Pieces = tuple[pa.RecordBatch, ...]


class Rendering:
    """From a collection's updates to a statement's rows; one object for all that say the same.

    `relation` is Map, Filter and Project over the collection; None: its columns as they are.
    """

    def __init__(self, relation: Relation | None, shape: Shape) -> None:
        self.relation = relation
        self.shape = shape
        self._mark: tuple[Timestamp, Pieces] = (-1, ())

    def rows(self, updates: pa.Table) -> Pieces:
        """Return the rows, in pieces that are sent as they are."""
        if self.relation is not None:
            found = apply(self.relation, lambda _: Rows.of_updates(updates))
            columns = columns_of(self.relation)
            updates = pa.Table.from_arrays(
                [*found.columns, *found.along], schema=output_schema(columns)
            )
        if not updates.num_rows:
            return ()
        rows = self.shape.rows(updates)
        return tuple(rows.slice(i, BATCH_ROWS) for i in range(0, rows.num_rows, BATCH_ROWS))

    def mark(self, time: Timestamp) -> Pieces:
        """Return the row of PROGRESS, if the statement wants it."""
        if not self.shape.progress:
            return ()
        if self._mark[0] != time:
            self._mark = time, (self.shape.mark(time),)
        return self._mark[1]

    async def made_of(self, updates: pa.Table) -> Pieces:
        """Return the rows; of many updates they are made on a thread."""
        if updates.num_rows <= INLINE_ROWS:
            return self.rows(updates)
        return await blocking.run(None, self.rows, updates)


class Event:
    """All updates in [lower, upper), of which there are some."""

    __slots__ = ("lower", "number", "rendered", "size", "updates", "upper")

    def __init__(self, number: int, lower: Timestamp, upper: Timestamp, updates: pa.Table) -> None:
        self.number = number
        self.lower = lower
        self.upper = upper
        self.updates = updates
        self.size = EVENT_BYTES + FORMS * updates.nbytes
        self.rendered: dict[Rendering, asyncio.Future[Pieces]] = {}

    async def pieces(self, rendering: Rendering) -> Pieces:
        """Return the event in a statement's form, made when it is first asked for."""
        found = self.rendered.get(rendering)
        if found is None:
            loop = asyncio.get_running_loop()
            if self.updates.num_rows <= INLINE_ROWS:
                found = loop.create_future()
                found.set_result(rendering.rows(self.updates) + rendering.mark(self.upper))
            else:
                found = loop.create_task(self._made(rendering))
            self.rendered[rendering] = found
        return found.result() if found.done() else await asyncio.shield(found)

    async def _made(self, rendering: Rendering) -> Pieces:
        return await rendering.made_of(self.updates) + rendering.mark(self.upper)

    def within(self, beyond: Timestamp, until: Timestamp | None) -> pa.Table | None:
        """Return the updates with beyond < time < until; None if these are all."""
        if beyond < self.lower and (until is None or self.upper <= until):
            return None
        times = self.updates.column(self.updates.num_columns - 2)
        wanted = pc.greater(times, beyond)
        if until is not None:
            wanted = pc.and_(wanted, pc.less(times, until))
        return self.updates.filter(wanted)


class Behind(Exception):
    """The event that comes next has left the log."""


class Cursor(Protocol):
    """A place in a tail's log."""

    number: int  # of the event that it takes next
    rests_on: frozenset[GlobalId]  # the tables on whose promises what it makes of events may rest

    def end(self, at: Timestamp, error: DatabaseError) -> None:
        """Tell what comes before `at`, and then `error`."""
        ...


class Tail:
    """What has been heard of one collection, and who follows it.

    `name` is what it is called in errors; `first_error` says when in [lower, upper) the collection
    has an error first, and which.
    """

    def __init__(
        self,
        name: str,
        frontier: Timestamp,
        first_error: Callable[[Timestamp, Timestamp], tuple[Timestamp, DatabaseError] | None],
    ) -> None:
        self.name = name
        self.frontier = frontier  # all before it has been heard
        self.heard_from = frontier  # from here on, all of it is in the log
        self.failure: DatabaseError | None = None
        self.failed_at: Timestamp | None = None  # from when on the data have the failure
        self.cursors: set[Cursor] = set()
        self._first_error = first_error
        self._log: deque[Event] = deque()
        self._bytes = 0
        self._next = 0
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        self._renderings: WeakValueDictionary[tuple[Relation | None, Shape], Rendering] = (
            WeakValueDictionary()
        )

    @property
    def next(self) -> int:
        """The number of the event that is heard next."""
        return self._next

    def rendering(self, relation: Relation | None, shape: Shape) -> Rendering:
        """Return the one rendering of the relation in the shape."""
        key = relation, shape
        found = self._renderings.get(key)
        if found is None:
            found = self._renderings[key] = Rendering(relation, shape)
        return found

    # --- what is heard

    def publish(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> None:
        """Hear of all updates in [lower, upper), which begins where the last one ended.

        An error in between ends it there: what comes before can be taken. Nothing is heard behind
        a failure: those who follow are told of it, and would believe to know what lies between.
        """
        if self.failure is not None:
            return
        failed = self._first_error(lower, upper)
        if failed is not None:
            upper, error = failed
            if updates is not None:
                updates = updates.filter(pc.less(times_of(updates), upper))
        if updates is not None and updates.num_rows:
            event = Event(self._next, lower, upper, updates)
            self._next += 1
            self._log.append(event)
            self._bytes += event.size
            self._trim(upper)
            _wake(self._changed)
        self.frontier = max(self.frontier, upper)
        _wake(self._moved)
        if self.frontier == EMPTY:  # that is the end
            _wake(self._changed)
        if failed is not None:
            self.fail(error, at=upper)

    def _trim(self, upper: Timestamp) -> None:
        """Drop what the log has no room for, and what is old and all have taken."""
        slowest: int | None = None
        while len(self._log) > 1:
            head = self._log[0]
            if self._bytes <= LOG_BYTES:
                if head.upper + KEPT_MS > upper:
                    return
                if slowest is None:
                    slowest = min((each.number for each in self.cursors), default=self._next)
                if head.number >= slowest:
                    return
            self._log.popleft()
            self._bytes -= head.size
            self.heard_from = head.upper

    def fail(self, error: DatabaseError, *, at: Timestamp | None = None) -> None:
        """End it: all who follow get `error` when they have taken all that was heard.

        `at` is from when on the data have it: to who begins later it says nothing.
        """
        if self.failure is None:
            self.failure, self.failed_at = error, at
        self.wake()

    # --- who follows

    def place(self, after: Timestamp) -> int | None:
        """Return the number of the first event with updates later than `after`.

        None: some of these have left the log, or came before it.
        """
        if after + 1 < self.heard_from:
            return None
        return next((each.number for each in self._log if each.upper > after + 1), self._next)

    def event(self, number: int) -> Event | None:
        """Return an event, None if it is still to come; raises Behind if it has been dropped."""
        if number >= self._next:
            return None
        first = self._log[0].number
        if number < first:
            raise Behind
        return self._log[number - first]

    async def news(self, *, idle: bool) -> None:
        """Wait for an event; if `idle` also for the frontier to move without one."""
        await (self._moved if idle else self._changed).wait()

    def wake(self) -> None:
        """Let those look again who wait: what one of them waits for is something else."""
        _wake(self._changed)
        _wake(self._moved)


def _wake(event: asyncio.Event) -> None:
    """Let all go on who wait now, and nobody who comes later."""
    event.set()
    event.clear()


def insertions_named(
    rows: pa.RecordBatch | pa.Table, time: Timestamp, names: Sequence[str]
) -> pa.Table:
    """Return rows, each once, as updates at `time`."""
    count = rows.num_rows
    along = [pa.repeat(pa.scalar(value, pa.int64()), count) for value in (time, 1)]
    return pa.table([*rows.columns, *along], names=[*names, "__time", "__diff"])
