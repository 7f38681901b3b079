"""Shards in memory: the state of a durable TVC while its environment runs.

    since ......... sealed ............ upper ........ reserved
      |   batches     |      tail         |   in flight   |

Batches are files. The tail holds updates that are in the log but not yet in a batch. Updates in
flight are accepted but not yet durable. Readers see up to `upper`; writers append at `reserved`.

Shards with the same writer may share a `SharedUpper`. Advancing it advances every attached shard
that has nothing in flight, and costs time only for shards that have listens.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from math import inf
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from foreshore.errors import InternalError
from foreshore.few_updates import FewUpdates, together
from foreshore.ids import GlobalId
from foreshore.storage.capability import Capabilities
from foreshore.storage.consolidate import canonical_nans, holds_floats
from foreshore.storage.listen import Listen
from foreshore.storage.record import ShardWrite
from foreshore.storage.trace import Batch
from foreshore.update import T0, Timestamp, encode_schema

TABLES_KEPT_APART = 8
PARTS_KEPT_APART = 256  # of a tail that nobody reads
ROWS_PUT_TOGETHER = 1 << 16
FEW_TOGETHER = 512  # rows as tuples, before columns are made of them: half a millisecond
QUIET_SECONDS = 0.01  # until listens hear that their shards have not changed
SOON_MS = 1_000  # a wait for a time further ahead is not hurried
FEW_ROWS = 16  # at or below this count, Python is faster than a columnar kernel


@dataclass(slots=True)
class TailPart:
    """Updates up to `upper`. The last of them is in log segment `segment`."""

    segment: int
    upper: Timestamp
    updates: pa.Table
    bytes: int = field(init=False)  # of `updates`, which takes a while to add up

    def __post_init__(self) -> None:
        self.bytes = int(self.updates.nbytes)


class SharedUpper:
    """An upper that several shards share: no update before it follows, except those in flight.

    Listens hear at once that it has advanced if updates are published, or if somebody waits for
    it; otherwise `QUIET_SECONDS` later.
    """

    def __init__(self) -> None:
        """Start with no shards attached."""
        self.upper: Timestamp = T0
        self.has_news = False  # whether updates were published since it last advanced
        self._awaited: Timestamp = T0  # listens hear at once of all before it
        self._quiet: asyncio.TimerHandle | None = None  # which notifies listens
        self._listened: set[Shard] = set()  # attached shards that have, or had, listens

    def advance(self, upper: Timestamp) -> None:
        """Advance to `upper`; the listens of attached shards are notified now or a little later."""
        if upper <= self.upper:
            return
        is_awaited = self.upper < self._awaited
        self.upper = upper
        if self.has_news or is_awaited:
            self.has_news = False
            self.notify()
        elif self._listened and self._quiet is None:
            self._quiet = asyncio.get_running_loop().call_later(QUIET_SECONDS, self.notify)

    def hurry(self, upper: Timestamp) -> None:
        """Notify listens at once of all advances up to `upper`, as somebody waits for it."""
        upper = min(upper, self.upper + SOON_MS)
        if upper > self._awaited:
            self._awaited = upper
            if self._quiet is not None:
                self.notify()

    def notify(self) -> None:
        """Notify the listens of attached shards."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        for shard in tuple(self._listened):
            shard.catch_up()
            if not shard.listens:
                self._listened.discard(shard)

    def watch(self, shard: "Shard") -> None:
        """Notify the listens of this attached shard from now on."""
        self._listened.add(shard)

    def forget(self, shard: "Shard") -> None:
        """Stop notifying the listens of a shard."""
        self._listened.discard(shard)


class Shard:
    """One shard, owned by the storage controller."""

    def __init__(self, id: GlobalId, schema: pa.Schema) -> None:
        """Create an empty shard. `schema` is the schema of its updates."""
        self.id = id
        self.schema = schema
        self.encoded_schema = encode_schema(schema)
        self.capabilities = Capabilities(id)
        self.since: Timestamp = T0
        self.durable_since: Timestamp = T0  # the limit of compaction
        self.logged_upper: Timestamp = T0
        self.sealed: Timestamp = T0
        self.changed: Timestamp = T0  # all updates are before it
        self.batches: tuple[Batch, ...] = ()
        self.in_flight = 0
        self.dropping = False
        self._tail: list[TailPart] = []
        self._most_parts = PARTS_KEPT_APART  # of the tail, from which on small ones are merged
        self._few: list[FewUpdates] = []  # after the tail, of one segment
        self._putting_few = Lock()  # threads that plan ask for the tail's size
        self._few_segment = 0
        self._few_rows = 0
        self.listens: list[Listen] = []
        self._upper: Timestamp = T0
        self._published: Timestamp = T0  # the upper that listens were last told
        self._reserved: Timestamp = T0
        self._shared: SharedUpper | None = None
        self._to_publish: deque[tuple[Timestamp, pa.Table | FewUpdates | None]] = deque()
        self._same_schema = schema  # as the last few updates have it
        self._floats = [i for i, type in enumerate(schema.types) if holds_floats(type)]
        self._required = [i for i, field in enumerate(schema) if not field.nullable]

    @property
    def shared(self) -> SharedUpper | None:
        """Return the upper that it shares with others, if it does."""
        return self._shared

    @property
    def upper(self) -> Timestamp:
        """Return the time before which all updates are known and durable."""
        if self._shared is None or self.in_flight:
            return self._upper
        return max(self._upper, self._shared.upper)

    @property
    def reserved(self) -> Timestamp:
        """Return the time before which no writer may append."""
        return self._reserved if self._shared is None else max(self._reserved, self._shared.upper)

    def set_upper(self, upper: Timestamp) -> None:
        """Set the uppers to `upper`, as recovered from disk."""
        self._upper = self._reserved = self.changed = upper

    def advance(self, upper: Timestamp) -> None:
        """Forbid appends before `upper`. The readable upper follows when nothing is in flight."""
        if upper > self.reserved:
            self._reserved = upper
            self.catch_up()

    def reserve(self, upper: Timestamp) -> None:
        """Reserve the interval up to `upper` for a write that is now in flight."""
        self._upper = self.upper
        self._reserved = max(self.reserved, upper)
        self.in_flight += 1

    def share_upper(self, shared: SharedUpper) -> None:
        """Advance together with the other shards of `shared`, which has the same writer."""
        self._shared = shared
        if self.listens:
            shared.watch(self)
        self.catch_up()

    def unshare_upper(self) -> None:
        """Advance independently again."""
        if self._shared is not None:
            self.catch_up()
            self._upper, self._reserved = self.upper, self.reserved
            self._shared.forget(self)
            self._shared = None

    def add_listen(self, listen: Listen) -> None:
        """Publish to `listen` from now on."""
        self._upper = self.upper  # the upper that the listen was given
        self.listens.append(listen)
        if self._shared is not None:
            self._shared.watch(self)

    def checked(self, write: ShardWrite) -> ShardWrite:
        """Return the write with exactly the shard's schema and canonical NaNs.

        Raises InternalError if the write does not fit the shard.
        """
        if not write.lower < write.upper:
            raise InternalError(f"append to {self.id} from {write.lower} to {write.upper}")
        updates = write.updates
        if isinstance(updates, FewUpdates):
            if self._takes(updates) and write.lower <= updates.time < write.upper:
                return write
            updates = updates.table
            write = replace(write, updates=updates)
        if not updates.schema.equals(self.schema):
            if (
                updates.schema.names != self.schema.names
                or updates.schema.types != self.schema.types
            ):
                raise InternalError(
                    f"append to {self.id} of {updates.schema.names} {updates.schema.types}"
                    f" instead of {self.schema.names} {self.schema.types}"
                )
            updates = pa.Table.from_arrays(updates.columns, schema=self.schema)
            write = replace(write, updates=updates)
        if updates.num_rows:
            for i in self._required:
                if updates.column(i).null_count:
                    name = self.schema.names[i]
                    raise InternalError(f'append to {self.id} of null in column "{name}"')
            least, greatest = time_range(updates)
            if not (write.lower <= least and greatest < write.upper):
                raise InternalError(
                    f"append to {self.id} from {write.lower} to {write.upper} of updates"
                    f" at {least} to {greatest}"
                )
            for i in self._floats:
                chunks = updates.column(i).chunks
                same = list(map(canonical_nans, chunks))
                if any(one is not chunk for one, chunk in zip(same, chunks, strict=True)):
                    column = pa.chunked_array(same, self.schema.types[i])
                    updates = updates.set_column(i, self.schema.field(i), column)
                    write = replace(write, updates=updates)
        return write

    def _takes(self, updates: FewUpdates) -> bool:
        """Whether updates that fit their schema fit that of the shard."""
        if updates.schema is not self._same_schema:
            if not updates.schema.equals(self.schema):
                return False
            self._same_schema = updates.schema
        return True

    def add(self, segment: int, upper: Timestamp, updates: pa.Table | FewUpdates) -> None:
        """Add durable updates to the tail."""
        assert upper >= self._upper, (self.id, self._upper, upper)
        self._upper = upper
        if updates.num_rows:
            self.changed = upper
        if isinstance(updates, FewUpdates):
            if segment != self._few_segment or self._few_rows >= FEW_TOGETHER:
                self._put_few()
            with self._putting_few:
                self._few.append(updates)
                self._few_segment = segment
                self._few_rows += updates.num_rows
        elif updates.num_rows:
            self.tail.append(TailPart(segment, upper, updates))
            if len(self._tail) >= self._most_parts:
                self.coalesce_tail()
                self._most_parts = max(PARTS_KEPT_APART, 2 * len(self._tail))

    @property
    def tail(self) -> list[TailPart]:
        """The updates that are in the log but not yet in a batch."""
        if self._few:
            self._put_few()
        return self._tail

    @tail.setter
    def tail(self, parts: list[TailPart]) -> None:
        assert not self._few, self.id
        self._tail = parts

    def _put_few(self) -> None:
        """Put updates that came as tuples into the tail, once if several threads do."""
        with self._putting_few:
            if self._few:
                part = TailPart(self._few_segment, self._few[-1].time + 1, together(self._few))
                self._tail.append(part)
                self._few, self._few_rows = [], 0

    def count_tail(self) -> int:
        """Return how many updates the tail has, about so many while it changes."""
        rows: int = sum(part.updates.num_rows for part in tuple(self._tail))
        return self._few_rows + rows

    def coalesce_tail(self) -> None:
        """Merge small tables of the tail, so that reading it costs in proportion to its rows."""
        if len(self.tail) <= TABLES_KEPT_APART:
            return
        parts: list[TailPart] = []
        for part in self.tail:
            parts.append(part)
            while len(parts) > 1 and _should_coalesce(*parts[-2:]):
                last = parts.pop()
                rows = pa.concat_tables([parts[-1].updates, last.updates]).combine_chunks()
                parts[-1] = TailPart(last.segment, last.upper, rows)
        self.tail = parts

    def publish(self, upper: Timestamp, updates: pa.Table | FewUpdates | None) -> None:
        """Publish to all listens, in order even if a listener causes another publication."""
        self._published = upper
        self._to_publish.append((upper, updates))
        if len(self._to_publish) > 1:
            return  # called from a listener; the outer call continues
        while self._to_publish:
            for listen in tuple(self.listens):
                if listen.cancelled:
                    self.listens.remove(listen)
                else:
                    listen.publish(*self._to_publish[0])
            self._to_publish.popleft()

    def size_bytes(self) -> int:
        """Return the size of the batch files plus that of the tail in memory."""
        return self.tail_bytes() + sum(batch.bytes for batch in self.batches)

    def tail_bytes(self, through: float = inf) -> int:
        """Return the size in memory of the tail up to log segment `through`."""
        return sum(part.bytes for part in self.tail if part.segment <= through)

    def update_since(self) -> None:
        """Advance since to the meet of the read capabilities."""
        self.since = max(self.since, self.capabilities.meet("read", self.since))

    def write_frontier(self) -> Timestamp:
        """Return the time before which no holder of a write capability will write."""
        return self.capabilities.meet("write", self.upper)

    def cancel_write(self) -> None:
        """Cancel a write in flight, and with it all writes accepted after it."""
        self.in_flight -= 1
        self._reserved = max(self._upper, self.write_frontier())

    def catch_up(self) -> None:
        """Advance upper to `reserved` if nothing is in flight, and tell the listens."""
        if self.in_flight:
            return
        self._upper = max(self._upper, self.reserved)
        if self.listens and self._upper > self._published:
            self.publish(self._upper, None)


def _should_coalesce(one: TailPart, next: TailPart) -> bool:
    return (
        one.segment == next.segment
        and one.updates.num_rows <= 2 * next.updates.num_rows
        and one.updates.num_rows + next.updates.num_rows <= ROWS_PUT_TOGETHER
    )


def time_range(updates: pa.Table) -> tuple[Timestamp, Timestamp]:
    """Return the least and the greatest time of `updates`, which must not be empty."""
    column = updates.column(updates.num_columns - 2)
    if len(column) <= FEW_ROWS:
        few = column.to_pylist()
        return min(few), max(few)
    if column.num_chunks == 1:
        times = column.chunk(0).to_numpy()
        return int(times.min()), int(times.max())
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]
