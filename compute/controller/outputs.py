"""Merges the outputs of several replicas: each update counts once, from the fastest replica.

All replicas compute the same updates, in windows of their own. The part of [lower, upper) at or
beyond the upper reached so far is new; there must be no gap.

    SinkWriter     appends a materialized view's updates to its shard
    Subscription   passes a client's updates to their reader, within a size limit
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.controller.error_log import ErrorLog, Errors
from foreshore.compute.controller.windows import new_part
from foreshore.compute.inputs import conform, times_of
from foreshore.errors import (
    DatabaseError,
    DataError,
    Fenced,
    ObjectNotInPrerequisiteState,
    OutOfDisk,
    Unavailable,
)
from foreshore.ids import GlobalId
from foreshore.storage.controller import (
    Appended,
    ShardWrite,
    StorageController,
    UpperMismatch,
    WriteCapability,
)
from foreshore.update import EMPTY, Timestamp, update_schema

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
MAX_PENDING_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Item:
    lower: Timestamp | None  # None: everything before `upper` has been received
    upper: Timestamp
    updates: pa.Table | None


class SinkWriter:
    """Writes the shard of one materialized view, by the write capability `write`.

    The shard advances only as far as the view's `errors` are durable. Errors are kept from the time
    that the view or its dependents are `readable`, and those in force at earlier times that are
    `pinned`. Pending updates are held once, whichever replica
    sent them. If there are too many, because storage delays appends, the writer is `behind`.
    `backpressure` is called when `behind` changes; the caller then stops or resumes reading from
    the replicas.
    """

    def __init__(
        self,
        write: WriteCapability,
        errors: ErrorLog,
        storage: StorageController,
        readable: Callable[[], Timestamp],
        backpressure: Callable[[], None],
        pinned: Callable[[Timestamp], Collection[Timestamp]] = lambda _: (),
    ) -> None:
        self.id = write.id
        self.behind = False
        self.stopped = False  # set by a fault, which ends all writing
        self.fenced: Fenced | None = None  # the fault, if another environment owns the data
        self.failure: str | None = None  # why writing is paused
        self.errors = errors
        self._storage = storage
        self._token = write.token
        self._found = storage.upper(self.id)
        self._readable = readable
        self._pinned = pinned
        self._pressed = backpressure
        self._items: list[_Item] = []
        self._bytes = 0  # of pending updates, including those being written
        self._upper = self._found  # all updates before it have been received
        self._wake = asyncio.Event()

    @property
    def corrected(self) -> bool:
        """Whether the shard's contents are known to be correct; errors are corrected first.

        A complete shard is correct for good, because nothing can be appended to it.
        """
        upper = self._storage.upper(self.id)
        return upper > self._found or upper == EMPTY

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table) -> None:
        """Receive the updates in [lower, upper) from a replica."""
        reached = max(self._upper, self._storage.upper(self.id))
        if lower <= reached:  # a gap ends the writing
            fresh = new_part(lower, upper, rows, reached)
            if fresh is None:
                self.progress(upper)
                return
            rows = fresh
        self._take(_Item(lower, upper, rows))

    def progress(self, upper: Timestamp) -> None:
        """Record that a replica has sent all updates before `upper`."""
        if self._items:
            last = self._items[-1]
            if upper > last.upper:
                self._items[-1] = replace(last, upper=upper)
                self._upper = max(self._upper, upper)
                self._hold(0)
        elif upper > self._storage.upper(self.id):
            self._take(_Item(None, upper, None))

    def _take(self, item: _Item) -> None:
        if not self.stopped:
            self._items.append(item)
            self._upper = max(self._upper, item.upper)
            self._hold(item.updates.nbytes if item.updates is not None else 0)
            self._wake.set()

    def _hold(self, more: int) -> None:
        self._bytes += more
        waits = self._bytes > MAX_PENDING_BYTES or self.errors.is_full
        behind = waits and not self.stopped
        if behind != self.behind:
            self.behind = behind
            self._pressed()

    def stop(self) -> None:
        """Stop receiving."""
        self.stopped = True
        self.failure = "its writer has stopped; the server's log has the details"
        self._items = []
        self._hold(-self._bytes)

    async def run(self) -> None:
        """Write until cancelled."""
        schema = update_schema(self._storage.schema(self.id))
        while True:
            await self._wake.wait()
            self._wake.clear()
            items, self._items = self._items, []
            held = self._bytes
            if items:
                await self._write(items, schema)
                self._hold(-held)

    async def _write(self, items: list[_Item], schema: pa.Schema) -> None:
        upper = self._storage.upper(self.id)
        waited = False
        while True:
            reached = upper
            tables = []
            for item in items:
                if item.updates is not None:
                    lower = reached if item.lower is None else item.lower
                    fresh = new_part(lower, item.upper, item.updates, reached)
                    if fresh is not None:
                        tables.append(conform(fresh, schema))
                reached = max(reached, item.upper)
            try:
                await self.errors.store(reached)
                if not tables:
                    # Otherwise another writer was first, perhaps with everything.
                    if reached > upper:
                        self._storage.advance([self.id], reached, token=self._token)
                    self.failure = None
                    break
                write = ShardWrite(self.id, upper, reached, pa.concat_tables(tables), self._token)
                outcome = await self._storage.append([write])
            except OutOfDisk as error:  # the rows are kept, because there is no other copy
                if not waited:
                    logger.warning("a sink waits: %s", error, extra={"shard": self.id})
                waited, self.failure = True, error.message
                await asyncio.sleep(RETRY_SECONDS)
                continue
            match outcome:
                case Appended():
                    self.failure = None
                    break
                case UpperMismatch(upper=upper):
                    logger.warning("sink upper mismatch", extra={"shard": self.id, "upper": upper})
        if self.errors.upper is not None:  # else dataflows that ask for errors may be unknown yet
            self.errors.compact(self._readable, self._pinned)


@dataclass(frozen=True, slots=True)
class SubscribeBatch:
    """All updates in [lower, upper). The first batch starts with the contents at as_of."""

    lower: Timestamp
    upper: Timestamp
    updates: pa.Table | None


class Subscription:
    """The updates of one dataflow for one reader: `async for batch in subscription`.

    Updates that the reader has not taken are combined into one batch. If it exceeds a size limit,
    or if there is a gap, the subscription fails. An error in the data follows all earlier updates.
    It is of an `index`, if not None.
    """

    def __init__(self, id: GlobalId, as_of: Timestamp, index: GlobalId | None = None) -> None:
        self.id = id
        self._index = index
        self.upper = 0  # all updates before it have been received
        self._as_of = as_of
        self._taken = as_of
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._errors = Errors()
        self._failure: DatabaseError | None = None
        self._news = asyncio.Event()
        self.closed = False

    @property
    def failed(self) -> bool:
        """Whether it has stopped receiving."""
        return self._failure is not None

    @property
    def since(self) -> Timestamp:
        """Return the time from which its input must be readable for another replica to continue."""
        return max(self._as_of, self.upper - 1)

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table, errors: pa.Table) -> None:
        """Receive the updates in [lower, upper) from a replica."""
        if self._failure is not None:
            return
        if lower > self.upper:
            gap = f"what changed from {self.upper} to {lower} is not known any more"
            self.fail(ObjectNotInPrerequisiteState(gap))
            return
        failed = self._first_error(lower, upper, errors)
        if failed is not None:
            upper = failed[0]
        fresh = new_part(lower, upper, rows, self.upper)
        if fresh is not None:
            if failed is not None:
                fresh = fresh.filter(pc.less(times_of(fresh), upper))
            self._pending.append(fresh)
            self._bytes += fresh.nbytes
        self.progress(upper)
        if failed is not None:
            self._failure = failed[1]
            self._news.set()
        elif self._bytes > MAX_PENDING_BYTES:
            self.fail(Unavailable("the subscriber does not keep up", sqlstate="53400"))

    def _first_error(
        self, lower: Timestamp, upper: Timestamp, errors: pa.Table
    ) -> tuple[Timestamp, DatabaseError] | None:
        fresh = new_part(lower, upper, errors, self.upper)
        for time, text in self._errors.take(fresh) if fresh is not None else ():
            if text is not None:
                return time, DataError.parse(text, self._index)
        return None

    def progress(self, upper: Timestamp) -> None:
        """Record that a replica has sent all updates before `upper`."""
        if upper > self.upper and self._failure is None:
            self.upper = upper
            self._news.set()

    def fail(self, error: DatabaseError) -> None:
        """Give the reader `error` next, unless it has failed before."""
        if self._failure is not None:
            return
        self._failure = error
        self._pending, self._bytes, self._taken = [], 0, self.upper
        self._news.set()

    def __aiter__(self) -> "Subscription":
        """Return the subscription, which can be read once."""
        return self

    async def __anext__(self) -> SubscribeBatch:
        """Return all pending updates as soon as there are any."""
        await self._news.wait()
        self._news.clear()
        if self._failure is not None:
            self._news.set()
            if self.upper <= self._taken:
                raise self._failure
        updates = pa.concat_tables(self._pending) if self._pending else None
        batch = SubscribeBatch(self._taken, self.upper, updates)
        self._pending, self._bytes, self._taken = [], 0, self.upper
        return batch
