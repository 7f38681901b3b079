"""Shards in memory: what is known of a durable TVC while its environment runs.

    since ......... sealed ............ upper ........ reserved
      |   batches     |      tail         |   in flight   |

Batches are files; the tail is what the log has and no batch; in flight is what has been accepted
and is being made durable. A reader sees up to `upper`, a writer appends at `reserved`.

Shards that one writer writes at the same times may follow a `SharedUpper`: it advances all of them
that have nothing in flight, at the cost of those that somebody listens to.
"""

from collections import deque
from dataclasses import dataclass, replace
from math import inf

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.storage.capability import Capabilities
from foreshore.storage.consolidate import holds_floats, one_nan
from foreshore.storage.listen import Listen
from foreshore.storage.record import ShardWrite
from foreshore.storage.trace import Batch
from foreshore.update import T0, Timestamp, encode_schema

TABLES_KEPT_APART = 8
ROWS_PUT_TOGETHER = 1 << 16
FEW_ROWS = 16  # up to which Python is faster than setting out to compute on columns


@dataclass(slots=True)
class TailPart:
    """Updates up to `upper`, of which the log's segment `segment` has the last."""

    segment: int
    upper: Timestamp
    updates: pa.Table


class SharedUpper:
    """Up to where nothing comes any more to the shards that follow it, but what is in flight."""

    def __init__(self) -> None:
        """Begin with no followers."""
        self.upper: Timestamp = T0
        self._heard: set[Shard] = set()  # followers that have listens, or had

    def advance(self, upper: Timestamp) -> None:
        """Go on to `upper`, and tell those who listen to followers."""
        if upper <= self.upper:
            return
        self.upper = upper
        for shard in tuple(self._heard):
            shard.catch_up()
            if not shard.listens:
                self._heard.discard(shard)

    def hear(self, shard: "Shard") -> None:
        """Tell from now on who listens to a follower."""
        self._heard.add(shard)

    def forget(self, shard: "Shard") -> None:
        """Have a follower less."""
        self._heard.discard(shard)


class Shard:
    """One shard; the controller owns it."""

    def __init__(self, id: GlobalId, schema: pa.Schema) -> None:
        """Make an empty shard; `schema` is that of its updates."""
        self.id = id
        self.schema = schema
        self.encoded_schema = encode_schema(schema)
        self.capabilities = Capabilities(id)
        self.since: Timestamp = T0
        self.durable_since: Timestamp = T0  # compaction goes no further
        self.logged_upper: Timestamp = T0
        self.sealed: Timestamp = T0
        self.batches: tuple[Batch, ...] = ()
        self.in_flight = 0
        self.dropping = False
        self.tail: list[TailPart] = []
        self.listens: list[Listen] = []
        self._upper: Timestamp = T0
        self._reserved: Timestamp = T0
        self._shared: SharedUpper | None = None
        self._to_publish: deque[tuple[Timestamp, pa.Table | None]] = deque()
        self._floats = [i for i, type in enumerate(schema.types) if holds_floats(type)]
        self._required = [i for i, field in enumerate(schema) if not field.nullable]

    @property
    def upper(self) -> Timestamp:
        """Before which a reader knows everything."""
        if self._shared is None or self.in_flight:
            return self._upper
        return max(self._upper, self._shared.upper)

    @property
    def reserved(self) -> Timestamp:
        """Before which no writer may append any more."""
        return self._reserved if self._shared is None else max(self._reserved, self._shared.upper)

    def begin(self, upper: Timestamp) -> None:
        """Let it be known up to `upper`, as it comes from disk."""
        self._upper = self._reserved = upper

    def advance(self, upper: Timestamp) -> None:
        """Let nothing more be appended before `upper`; what is known follows what is in flight."""
        if upper > self.reserved:
            self._reserved = upper
            self.catch_up()

    def take(self, upper: Timestamp) -> None:
        """Let something be in flight, up to `upper`."""
        self._upper = self.upper
        self._reserved = max(self.reserved, upper)
        self.in_flight += 1

    def follow(self, shared: SharedUpper) -> None:
        """Advance with others; this shard's own writer is theirs."""
        self._shared = shared
        if self.listens:
            shared.hear(self)
        self.catch_up()

    def unfollow(self) -> None:
        """Advance alone again."""
        if self._shared is not None:
            self._upper, self._reserved = self.upper, self.reserved
            self._shared.forget(self)
            self._shared = None

    def add_listen(self, listen: Listen) -> None:
        """Publish to one more from now on."""
        self._upper = self.upper  # as the listen knows it
        self.listens.append(listen)
        if self._shared is not None:
            self._shared.hear(self)

    def conform(self, write: ShardWrite) -> ShardWrite:
        """Return the write with exactly the shard's schema, and one NaN.

        Raises InternalError if it is amiss.
        """
        if not write.lower < write.upper:
            raise InternalError(f"append to {self.id} from {write.lower} to {write.upper}")
        updates = write.updates
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
                same = list(map(one_nan, chunks))
                if any(one is not chunk for one, chunk in zip(same, chunks, strict=True)):
                    column = pa.chunked_array(same, self.schema.types[i])
                    updates = updates.set_column(i, self.schema.field(i), column)
                    write = replace(write, updates=updates)
        return write

    def add(self, segment: int, upper: Timestamp, updates: pa.Table) -> None:
        """Take up updates that are durable."""
        assert upper >= self._upper, (self.id, self._upper, upper)
        self._upper = upper
        if updates.num_rows:
            self.tail.append(TailPart(segment, upper, updates))

    def put_together(self) -> None:
        """Make few tables of many small ones, so that reading the tail costs what its rows do."""
        if len(self.tail) <= TABLES_KEPT_APART:
            return
        parts: list[TailPart] = []
        for part in self.tail:
            parts.append(part)
            while len(parts) > 1 and _belong_together(*parts[-2:]):
                last = parts.pop()
                rows = pa.concat_tables([parts[-1].updates, last.updates]).combine_chunks()
                parts[-1] = TailPart(last.segment, last.upper, rows)
        self.tail = parts

    def publish(self, upper: Timestamp, updates: pa.Table | None) -> None:
        """Tell those who listen; whoever acts on it at once is not heard of out of turn."""
        self._to_publish.append((upper, updates))
        if len(self._to_publish) > 1:
            return  # from within a delivery
        while self._to_publish:
            self.listens = [listen for listen in self.listens if not listen.cancelled]
            for listen in tuple(self.listens):
                listen.publish(*self._to_publish[0])
            self._to_publish.popleft()

    def size_bytes(self) -> int:
        """Return the bytes of its batches' files, and in memory of its updates in none yet."""
        return self.tail_bytes() + sum(batch.bytes for batch in self.batches)

    def tail_bytes(self, through: float = inf) -> int:
        """Return the bytes in memory of its updates in no batch, up to segment `through`."""
        return sum(int(part.updates.nbytes) for part in self.tail if part.segment <= through)

    def update_since(self) -> None:
        """Let since follow the meet of the read capabilities."""
        self.since = max(self.since, self.capabilities.meet("read", self.since))

    def write_frontier(self) -> Timestamp:
        """Return up to where no holder of a write capability will write any more."""
        return self.capabilities.meet("write", self.upper)

    def refuse(self) -> None:
        """Let a write that was in flight be as if it had not been; so are all behind it."""
        self.in_flight -= 1
        self._reserved = max(self._upper, self.write_frontier())

    def catch_up(self) -> None:
        """Let upper be where writers are, if nothing of theirs is in flight."""
        if not self.in_flight and self.reserved > self._upper:
            self._upper = self.reserved
            if self.listens:
                self.publish(self._upper, None)


def _belong_together(one: TailPart, next: TailPart) -> bool:
    return (
        one.segment == next.segment
        and one.updates.num_rows <= 2 * next.updates.num_rows
        and one.updates.num_rows + next.updates.num_rows <= ROWS_PUT_TOGETHER
    )


def time_range(updates: pa.Table) -> tuple[Timestamp, Timestamp]:
    """Return the least and the greatest time of updates, of which there are some."""
    column = updates.column(updates.num_columns - 2)
    if len(column) <= FEW_ROWS:
        few = column.to_pylist()
        return min(few), max(few)
    if column.num_chunks == 1:
        times = column.chunk(0).to_numpy()
        return int(times.min()), int(times.max())
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]
