"""Outputs of several replicas become one: each update once, whichever replica says it first.

All replicas compute the same updates, in windows of their own. Of what [lower, upper) brings, the
part at or beyond the upper reached so far is new; nothing may be missing in between.

    SinkWriter     appends a materialised view's updates to its shard
    Subscription   hands a client's updates to who reads them, never more than a bound
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.controller.error_log import ErrorLog, Errors
from foreshore.compute.controller.windows import new_part
from foreshore.compute.replica.inputs import conform, times_of
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
    lower: Timestamp | None  # None: what precedes `upper` has been said before
    upper: Timestamp
    updates: pa.Table | None


class SinkWriter:
    """Writes one materialised view's shard, alone, by the write capability `write`.

    The shard comes as far as a time when `errors`, the view's, are durable up to there. They are
    kept from when on the view, or what is made of it, is `readable`.
    What waits for it is kept once, whichever replica has said it. Where that is much, as storage
    holds appends back, the writer is `behind`, and `pressed` is called when it becomes so or is so
    no more: it is on the caller to take no more from the replicas meanwhile.
    """

    def __init__(
        self,
        write: WriteCapability,
        errors: ErrorLog,
        storage: StorageController,
        readable: Callable[[], Timestamp],
        pressed: Callable[[], None],
    ) -> None:
        self.id = write.id
        self.behind = False
        self.stopped = False  # after a fault: nothing will be written any more
        self.fenced: Fenced | None = None  # the fault, if the data is another's
        self.failure: str | None = None  # why nothing is written now
        self.errors = errors
        self._storage = storage
        self._token = write.token
        self._found = storage.upper(self.id)
        self._readable = readable
        self._pressed = pressed
        self._items: list[_Item] = []
        self._bytes = 0  # of what waits and of what is being written
        self._upper = self._found  # all before has been taken
        self._wake = asyncio.Event()

    @property
    def corrected(self) -> bool:
        """Whether what the shard holds is known to be right: what is wrong is corrected first.

        A shard that is complete is right for good: nothing can be appended any more.
        """
        upper = self._storage.upper(self.id)
        return upper > self._found or upper == EMPTY

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table) -> None:
        """Take the updates in [lower, upper) from some replica."""
        reached = max(self._upper, self._storage.upper(self.id))
        if lower <= reached:  # else a gap, which is the end of the writing
            fresh = new_part(lower, upper, rows, reached)
            if fresh is None:
                self.progress(upper)
                return
            rows = fresh
        self._take(_Item(lower, upper, rows))

    def progress(self, upper: Timestamp) -> None:
        """Hear that a replica has said all before `upper`."""
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
        """Take nothing any more."""
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
                lower = reached if item.lower is None else item.lower
                fresh = new_part(lower, item.upper, item.updates, reached)
                if fresh is not None:
                    tables.append(conform(fresh, schema))
                reached = max(reached, item.upper)
            try:
                await self.errors.store(reached)
                if not tables:
                    if reached > upper:  # else another was first, maybe with all there is
                        self._storage.advance([self.id], reached, token=self._token)
                    self.failure = None
                    break
                write = ShardWrite(self.id, upper, reached, pa.concat_tables(tables), self._token)
                outcome = await self._storage.append([write])
            except OutOfDisk as error:  # the rows are still here, and nobody else has them
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
        self.errors.compact(self._readable)


@dataclass(frozen=True, slots=True)
class SubscribeBatch:
    """All updates in [lower, upper); the first batch begins with the contents at as_of."""

    lower: Timestamp
    upper: Timestamp
    updates: pa.Table | None


class Subscription:
    """The updates of one dataflow on their way to one reader: `async for batch in subscription`.

    What the reader has not taken yet is one batch that grows; beyond a bound the subscription
    fails. So it does where something is missing. An error in the data is behind all that came
    before it.
    """

    def __init__(self, id: GlobalId, as_of: Timestamp) -> None:
        self.id = id
        self.upper = 0  # all before has been taken in
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
        """Whether nothing is taken in any more."""
        return self._failure is not None

    @property
    def since(self) -> Timestamp:
        """From when what it follows has to be readable for another replica to go on."""
        return max(self._as_of, self.upper - 1)

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table, errors: pa.Table) -> None:
        """Take the updates in [lower, upper) from some replica."""
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
                return time, DataError.parse(text)
        return None

    def progress(self, upper: Timestamp) -> None:
        """Hear that a replica has said all before `upper`."""
        if upper > self.upper and self._failure is None:
            self.upper = upper
            self._news.set()

    def fail(self, error: DatabaseError) -> None:
        """Let the reader have `error` next, unless it has failed before."""
        if self._failure is not None:
            return
        self._failure = error
        self._pending, self._bytes, self._taken = [], 0, self.upper
        self._news.set()

    def __aiter__(self) -> "Subscription":
        """Return the subscription, which can be read once."""
        return self

    async def __anext__(self) -> SubscribeBatch:
        """Return all that is new, as soon as anything is."""
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
