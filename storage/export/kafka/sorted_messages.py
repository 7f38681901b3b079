"""Many updates as messages: they are encoded as they come, and put in order on disk.

An interval has at most some 500,000 updates, unless a single time has more. Those need not fit in
memory: each is encoded in the moment it arrives, and waits in a file. `consolidate` then sorts
them by times and keys, in files where they are many, and messages are made of a few at a time.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.spill import Spill
from foreshore.storage.consolidate import consolidate
from foreshore.storage.export.kafka.messages import (
    Booleans,
    EncodedRows,
    Headers,
    Layout,
    Messages,
    assembled,
    batch_of,
    not_unique,
    null_key,
    paired,
    repeated,
    slices,
)
from foreshore.update import DIFF, DIFF_FIELD, T0, TIME, TIME_FIELD

# Messages are sorted by these columns. The last two are those of any updates: all are at one time
# there, so that updates of the same row are added up, but not a row before with the same row after.
_SCHEMA = pa.schema(
    [
        pa.field("time", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("is_after", pa.int8()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("hash", pa.binary()),
        TIME_FIELD,
        DIFF_FIELD,
    ]
)


class SortedMessages:
    """Takes the updates of an interval in parts, then returns their messages. Blocks."""

    def __init__(self, layout: Layout, scratch: Path) -> None:
        self._layout = layout
        self._scratch = scratch
        self._rows = Spill(scratch)
        self._types: tuple[pa.DataType | None, pa.DataType] | None = None  # of keys and values

    def add(self, part: pa.Table) -> None:
        """Take updates; raises OutOfDisk, and NotNullViolation if a key is null."""
        for rows in slices(part):
            self._rows.add(self._encoded(rows))

    def messages(self) -> Iterator[Messages]:
        """Yield all messages, by times and keys; raises UniqueViolation."""
        self._rows.flush()
        batches = (batch for table in self._rows.tables for batch in table.to_batches())
        left = _SCHEMA.empty_table()
        for found in consolidate(batches, _SCHEMA, T0, self._scratch):
            for piece in slices(pa.Table.from_batches([found])):
                rows = pa.concat_tables([left, piece]).combine_chunks()
                whole = _start_of_last_group(rows)
                left = rows.slice(whole)
                yield from self._messages(rows.slice(0, whole))
                if left.num_rows > 2:  # those of one time without keys, else this raises
                    yield from self._messages(left)
                    left = _SCHEMA.empty_table()
        yield from self._messages(left)

    def _encoded(self, rows: pa.Table) -> pa.Table:
        layout, batch = self._layout, batch_of(rows)
        keys = None if layout.key is None else layout.key.rows(batch)
        if keys is not None and keys.null_count:
            raise null_key(layout)
        values = layout.value.rows(batch)
        self._types = (None if keys is None else keys.type, values.type)
        headers = None
        if layout.headers is not None:
            headers = [msgspec.msgpack.encode(each) for each in layout.headers.of(batch)]
        count, diffs = rows.num_rows, batch.column(DIFF)
        nothing = pa.nulls(count, pa.binary())
        return pa.Table.from_arrays(
            [
                batch.column(TIME),
                nothing if keys is None else keys.cast(pa.binary()),
                pc.greater(diffs, 0).cast(pa.int8()),
                values.cast(pa.binary()),
                nothing if headers is None else pa.array(headers, pa.binary()),
                nothing if layout.hash is None else layout.hash.of(batch).cast(pa.binary()),
                pa.array(np.full(count, T0), pa.int64()),
                diffs,
            ],
            schema=_SCHEMA,
        )

    def _messages(self, rows: pa.Table) -> Iterator[Messages]:
        """Yield the messages of whole groups."""
        if not rows.num_rows:
            return
        assert self._types is not None
        layout, (key_type, value_type) = self._layout, self._types
        (batch,) = rows.combine_chunks().to_batches()
        diffs = batch.column(DIFF).to_numpy()
        keys = None if key_type is None else batch.column("key").cast(key_type)
        if keys is None:
            changes = repeated(np.arange(len(diffs)), diffs)
        else:
            changes, several = paired(_firsts(rows), diffs)
            if several is not None:
                raise not_unique(layout, keys[several])
        headers: list[Headers] | None = None
        if layout.headers is not None:
            packed = batch.column("headers").to_pylist()
            headers = [list(map(tuple, msgspec.msgpack.decode(each))) for each in packed]
        hashes = None if layout.hash is None else batch.column("hash")
        encoded = EncodedRows(keys, batch.column("value").cast(value_type), headers, hashes)
        yield assembled(layout, encoded, changes)


def _firsts(rows: pa.Table) -> Booleans:
    """Return which rows begin the group of a time and a key."""
    first = np.ones(rows.num_rows, np.bool_)
    for name in ("time", "key"):
        column = rows.column(name).combine_chunks()
        same = pc.fill_null(pc.equal(column.slice(1), column.slice(0, len(column) - 1)), True)
        differs = ~same.to_numpy(zero_copy_only=False)
        first[1:] = differs if name == "time" else first[1:] | differs
    return first


def _start_of_last_group(rows: pa.Table) -> int:
    """Return where the last group begins, which may go on in what follows."""
    return int(np.flatnonzero(_firsts(rows))[-1]) if rows.num_rows else 0
