"""Updates as messages: which there are, and in which order.

The messages of one time stay together. Of the updates of one time and key, those with a negative
multiplicity are the row before, and the others the row after.

    UPSERT     the row after, or null if there is none
    DEBEZIUM   {"before": row or null, "after": row or null}; without a key one for each update
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import (
    InvalidParameterValue,
    NotNullViolation,
    UniqueViolation,
)
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.sinks.spec import Envelope
from foreshore.storage.export.formats.encoder import Encoder, as_bytes, where
from foreshore.structured import pairs_of
from foreshore.types import SqlType
from foreshore.unsigned import numbers_of
from foreshore.update import DIFF, TIME

ROWS_AT_ONCE = 16_384
BYTES_AT_ONCE = 32 << 20
Headers = list[tuple[str, bytes | str | None]]
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Booleans: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
NONE = -1  # the place of a row that is not there


class Messages(NamedTuple):
    """Messages in their order; without keys, headers or hashes these are None.

    A hash is a number without sign, whose remainder is the partition.
    """

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None
    hashes: Sequence[int] | None = None


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


class HashColumn(NamedTuple):
    """PARTITION BY: an expression over a row, of type uint8."""

    expression: Scalar

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the hash of each row, as uint8 is stored; raises DatabaseError if one fails."""
        values, errors = outcome(self.expression, batch.columns, batch.num_rows)
        if errors is not None:
            _, _, why = errors.drop_null()[0].as_py().partition(" ")
            raise InvalidParameterValue(f"PARTITION BY fails for a row: {why}")
        return values


class Layout(NamedTuple):
    """How rows become messages. `shown` are the columns of keys, for errors."""

    envelope: Envelope
    value: Encoder
    key: Encoder | None
    shown: str
    headers: HeadersColumn | None
    hash: HashColumn | None = None


class EncodedRows(NamedTuple):
    """Rows as the parts of messages; keys, headers, hashes are None if messages have none."""

    keys: pa.Array | None
    values: pa.Array
    headers: Sequence[Headers] | None
    hashes: pa.Array | None = None  # as uint8 is stored


class Changes(NamedTuple):
    """The rows before and after of each message, as places in a table; -1: there is none."""

    before: Numbers
    after: Numbers


def messages_of_contents(layout: Layout, part: pa.Table) -> Iterator[Messages]:
    """Yield the messages of rows that are all new, at one time."""
    for rows in slices(part):
        diffs = rows.column(DIFF).to_numpy()
        places = np.arange(rows.num_rows)
        if layout.key is not None and (diffs != 1).any():
            row = rows.slice(int(np.argmax(diffs != 1)), 1)
            raise not_unique(layout, layout.key.rows(batch_of(row))[0])
        places = np.repeat(places, diffs)
        yield _encoded(layout, rows, Changes(np.full(len(places), NONE), places))


def messages_of_changes(layout: Layout, updates: pa.Table) -> Iterator[Messages]:
    """Yield the messages of updates, which must be all of their times."""
    if not updates.num_rows:
        return
    changes = _by_key(layout, updates) if layout.key is not None else _one_by_one(updates)
    size = _rows_at_once(updates)
    for start in range(0, len(changes.before), size):
        before = changes.before[start : start + size]
        after = changes.after[start : start + size]
        used = np.concatenate([before[before != NONE], after[after != NONE]])
        places, inverse = np.unique(used, return_inverse=True)
        new_before, new_after = np.full(len(before), NONE), np.full(len(after), NONE)
        split = int((before != NONE).sum())
        new_before[before != NONE] = inverse[:split]
        new_after[after != NONE] = inverse[split:]
        yield _encoded(layout, updates.take(places), Changes(new_before, new_after))


def _encoded(layout: Layout, rows: pa.Table, changes: Changes) -> Messages:
    """Return the messages of changes of these rows."""
    batch = batch_of(rows)
    keys = None if layout.key is None else layout.key.rows(batch)
    headers = None if layout.headers is None else layout.headers.of(batch)
    hashes = None if layout.hash is None else layout.hash.of(batch)
    encoded = EncodedRows(keys, layout.value.rows(batch), headers, hashes)
    return assembled(layout, encoded, changes)


def assembled(layout: Layout, rows: EncodedRows, changes: Changes) -> Messages:
    """Return the messages of changes of rows that are encoded; raises NotNullViolation."""
    before, after = map(_places, changes)
    either = pc.coalesce(after, before)
    encoded = rows.values
    if layout.envelope == "debezium":
        values = layout.value.messages(
            layout.value.changes(encoded.take(before), encoded.take(after))
        )
    else:
        values = where(after.is_valid(), layout.value.messages(encoded).take(after))
    keys, headers = None, None
    if layout.key is not None:
        keys = layout.key.messages(rows.keys).take(either)
        if keys.null_count:
            raise null_key(layout)
    if rows.headers is not None:
        headers = [rows.headers[each] for each in either.to_pylist()]
    hashes = None if rows.hashes is None else numbers_of(rows.hashes.take(either)).tolist()
    return Messages(None if keys is None else as_bytes(keys), as_bytes(values), headers, hashes)


def _by_key(layout: Layout, updates: pa.Table) -> Changes:
    """Return one change for each time and key, by times and then by keys.

    Raises UniqueViolation if a key has several rows.
    """
    assert layout.key is not None, layout
    encoded = [layout.key.rows(batch_of(rows)).cast(pa.large_binary()) for rows in slices(updates)]
    joined = pa.concat_arrays(encoded)
    if joined.null_count:
        raise null_key(layout)
    keys = joined.dictionary_encode().indices.to_numpy()
    times, diffs = updates.column(TIME).to_numpy(), updates.column(DIFF).to_numpy()
    order = np.lexsort((diffs, keys, times))
    times, keys, diffs = times[order], keys[order], diffs[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (times[1:] != times[:-1]) | (keys[1:] != keys[:-1])
    changes, several = paired(first, diffs)
    if several is not None:
        row = updates.slice(int(order[several]), 1)
        raise not_unique(layout, layout.key.rows(batch_of(row))[0])
    return Changes(*(np.where(each == NONE, NONE, order[each]) for each in changes))


def paired(first: Booleans, diffs: Numbers) -> tuple[Changes, int | None]:
    """Return a change for each group of updates: the row before and the one after.

    `first` says which updates begin a group. If a group has several rows before or after, one of
    them comes with it, else None.
    """
    group = np.cumsum(first) - 1
    count = int(group[-1]) + 1 if len(group) else 0
    changes = Changes(np.full(count, NONE), np.full(count, NONE))
    for found, chosen in ((changes.before, diffs < 0), (changes.after, diffs > 0)):
        total = np.bincount(group[chosen], np.abs(diffs[chosen]), count)
        if (total > 1).any():
            return changes, int(np.flatnonzero(chosen)[np.argmax(total[group[chosen]] > 1)])
        found[group[chosen]] = np.flatnonzero(chosen)
    return changes, None


def _one_by_one(updates: pa.Table) -> Changes:
    """Return a change for each update, as often as its multiplicity, by times."""
    times, diffs = updates.column(TIME).to_numpy(), updates.column(DIFF).to_numpy()
    order = np.lexsort((diffs, times))
    return repeated(order, diffs[order])


def repeated(places: Numbers, diffs: Numbers) -> Changes:
    """Return a change for each of these updates, as often as its multiplicity."""
    places, diffs = np.repeat(places, np.abs(diffs)), np.repeat(diffs, np.abs(diffs))
    return Changes(np.where(diffs < 0, places, NONE), np.where(diffs > 0, places, NONE))


def null_key(layout: Layout) -> NotNullViolation:
    """Return the error of a row without a key."""
    return NotNullViolation(f"the key ({layout.shown}) of a row is null")


def not_unique(layout: Layout, key: pa.Scalar) -> UniqueViolation:
    """Return the error of a key that several rows have."""
    found = key.as_py()
    shown = found if isinstance(found, str) else f"0x{bytes(found or b'').hex()}"
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


def slices(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in slices of which each is encoded at once."""
    size = _rows_at_once(rows)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def batch_of(rows: pa.Table) -> pa.RecordBatch:
    """Return a few rows in one piece."""
    columns = [_whole(each) for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _places(places: Numbers) -> pa.Array:
    return pa.array(places, mask=places == NONE)
