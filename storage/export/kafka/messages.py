"""Updates as messages: which there are, and in which order.

The messages of one time stay together. Of the updates of one time and key, those with a negative
multiplicity are the row before, and the others the row after.

    UPSERT     the row after, or null if there is none
    DEBEZIUM   {"before": row or null, "after": row or null}; without a key one for each update
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import NotNullViolation, UniqueViolation
from foreshore.sinks.spec import Envelope
from foreshore.storage.export.formats.encoder import Encoder, as_bytes, where
from foreshore.structured import pairs_of
from foreshore.types import SqlType
from foreshore.update import DIFF, TIME

ROWS_AT_ONCE = 16_384
BYTES_AT_ONCE = 32 << 20
Headers = list[tuple[str, bytes | str | None]]
_NONE = -1  # the place of a row that is not there


class Messages(NamedTuple):
    """Messages in their order; without keys or headers these are None."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None


class HeadersColumn(NamedTuple):
    """The column that has the headers of messages."""

    place: int
    type: SqlType

    def of(self, batch: pa.RecordBatch) -> list[Headers]:
        """Return the headers of each row."""
        return [
            [] if each is None else list(pairs_of(each, self.type).items())  # type: ignore[arg-type]
            for each in batch.column(self.place).to_pylist()
        ]


class Layout(NamedTuple):
    """How rows become messages. `shown` are the columns of keys, for errors."""

    envelope: Envelope
    value: Encoder
    key: Encoder | None
    shown: str
    headers: HeadersColumn | None


class _Changes(NamedTuple):
    """The rows before and after of each message, as places in a table; -1: there is none."""

    before: "np.ndarray[Any, np.dtype[np.int64]]"
    after: "np.ndarray[Any, np.dtype[np.int64]]"


def messages_of_contents(layout: Layout, part: pa.Table) -> Iterator[Messages]:
    """Yield the messages of rows that are all new, at one time."""
    for rows in _slices(part):
        diffs = rows.column(DIFF).to_numpy()
        places = np.arange(rows.num_rows)
        if layout.key is not None and (diffs != 1).any():
            raise _not_unique(layout, rows, int(np.argmax(diffs != 1)))
        places = np.repeat(places, diffs)
        yield _encoded(layout, rows, _Changes(np.full(len(places), _NONE), places))


def messages_of_changes(layout: Layout, updates: pa.Table) -> Iterator[Messages]:
    """Yield the messages of updates, which must be all of their times."""
    if not updates.num_rows:
        return
    changes = _by_key(layout, updates) if layout.key is not None else _one_by_one(updates)
    size = _rows_at_once(updates)
    for start in range(0, len(changes.before), size):
        before = changes.before[start : start + size]
        after = changes.after[start : start + size]
        used = np.concatenate([before[before != _NONE], after[after != _NONE]])
        places, inverse = np.unique(used, return_inverse=True)
        new_before, new_after = np.full(len(before), _NONE), np.full(len(after), _NONE)
        split = int((before != _NONE).sum())
        new_before[before != _NONE] = inverse[:split]
        new_after[after != _NONE] = inverse[split:]
        yield _encoded(layout, updates.take(places), _Changes(new_before, new_after))


def _encoded(layout: Layout, rows: pa.Table, changes: _Changes) -> Messages:
    """Return the messages of changes of these rows."""
    batch = _batch(rows)
    before, after = map(_places, changes)
    either = pc.coalesce(after, before)
    encoded = layout.value.rows(batch)
    if layout.envelope == "debezium":
        values = layout.value.messages(
            layout.value.changes(encoded.take(before), encoded.take(after))
        )
    else:
        values = where(after.is_valid(), layout.value.messages(encoded).take(after))
    keys, headers = None, None
    if layout.key is not None:
        keys = layout.key.messages(layout.key.rows(batch)).take(either)
        if keys.null_count:
            raise _null_key(layout)
    if layout.headers is not None:
        of_rows = layout.headers.of(batch)
        headers = [of_rows[each] for each in either.to_pylist()]
    return Messages(None if keys is None else as_bytes(keys), as_bytes(values), headers)


def _by_key(layout: Layout, updates: pa.Table) -> _Changes:
    """Return one change for each time and key, by times and then by keys.

    Raises UniqueViolation if a key has several rows.
    """
    assert layout.key is not None, layout
    encoded = [layout.key.rows(_batch(rows)).cast(pa.large_binary()) for rows in _slices(updates)]
    joined = pa.concat_arrays(encoded)
    if joined.null_count:
        raise _null_key(layout)
    keys = joined.dictionary_encode().indices.to_numpy()
    times, diffs = updates.column(TIME).to_numpy(), updates.column(DIFF).to_numpy()
    order = np.lexsort((diffs, keys, times))
    times, keys, diffs = times[order], keys[order], diffs[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (times[1:] != times[:-1]) | (keys[1:] != keys[:-1])
    group = np.cumsum(first) - 1
    count = int(group[-1]) + 1 if len(group) else 0
    changes = _Changes(np.full(count, _NONE), np.full(count, _NONE))
    for found, chosen in ((changes.before, diffs < 0), (changes.after, diffs > 0)):
        total = np.bincount(group[chosen], np.abs(diffs[chosen]), count)
        if (total > 1).any():
            row = order[chosen][int(np.argmax(total[group[chosen]] > 1))]
            raise _not_unique(layout, updates, int(row))
        found[group[chosen]] = order[chosen]
    return changes


def _one_by_one(updates: pa.Table) -> _Changes:
    """Return a change for each update, as often as its multiplicity, by times."""
    times, diffs = updates.column(TIME).to_numpy(), updates.column(DIFF).to_numpy()
    order = np.lexsort((diffs, times))
    order = np.repeat(order, np.abs(diffs[order]))
    return _Changes(
        np.where(diffs[order] < 0, order, _NONE), np.where(diffs[order] > 0, order, _NONE)
    )


def _null_key(layout: Layout) -> NotNullViolation:
    return NotNullViolation(f"the key ({layout.shown}) of a row is null")


def _not_unique(layout: Layout, rows: pa.Table, row: int) -> UniqueViolation:
    assert layout.key is not None, layout
    key = layout.key.rows(_batch(rows.slice(row, 1)))[0].as_py()
    shown = key if isinstance(key, str) else f"0x{bytes(key or b'').hex()}"
    return UniqueViolation(
        f"several rows have the same key ({layout.shown})",
        detail=f"Key {shown}.",
        hint="A key that is NOT ENFORCED must be unique.",
    )


# --- parts -------------------------------------------------------------------------------------


def _rows_at_once(rows: pa.Table) -> int:
    """Return how many rows are encoded together, so that memory is bounded."""
    if not rows.num_rows:
        return ROWS_AT_ONCE
    return int(max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE * rows.num_rows // max(1, rows.nbytes))))


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    size = _rows_at_once(rows)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _batch(rows: pa.Table) -> pa.RecordBatch:
    """Return a few rows in one piece."""
    columns = [_whole(each) for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _places(places: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return pa.array(places, mask=places == _NONE)
