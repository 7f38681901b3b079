"""Conversion between Arrow columns and words."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol
from typing import Literal as OneOf

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels.rows import find_nulls
from foreshore.compute.flow.layout import Layout, Place, kind_of
from foreshore.datum import from_array, to_array
from foreshore.expr.equality import (
    DAY,
    equal_column,
    has_many_forms,
    has_one_form,
    has_signed_zeros,
    key_column,
    shown_column,
    with_one_zero,
)
from foreshore.types import SqlType, arrow_type

Bits = npt.NDArray[np.bool_]
# Values as they are; the same for all that SQL considers equal; bytes that are ordered as values
# are; and what orders values that are equal but do not look it (`expr/equality.py`).
Form = OneOf["row", "key", "order", "shown"]
_WIDTHS: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


class Numbering(Protocol):
    """Gives strings their numbers: an interner, or a view of one that adds nothing."""

    def numbers(self, column: pa.Array) -> Ints:
        """Return the numbers of a column of strings, 0 for NULL."""
        ...


def batch_of(updates: pa.Table, picked: Sequence[int], layout: Layout, interner: Interner) -> Batch:
    """Return the columns at `picked` of Arrow updates, with times and diffs, as a batch."""
    columns = [flat(updates.column(i)) for i in picked]
    words = words_of(columns, updates.num_rows, layout, interner)
    times, diffs = (np.array(integers(flat(updates.column(i)))) for i in (-2, -1))
    return Batch(words, times, diffs)


def words_of(columns: Sequence[pa.Array], rows: int, layout: Layout, interner: Numbering) -> Words:
    """Return the rows of Arrow columns as words."""
    words = np.zeros((rows, layout.words), np.int64)
    if rows:
        fill_words(words, columns, layout, interner)
    return words


def fill_words(
    words: Words, columns: Sequence[pa.Array], layout: Layout, interner: Numbering
) -> None:
    """Write the rows of Arrow columns into words that are 0.

    A NULL where the layout has none becomes 0. Rows from before a SET NOT NULL have some; at times
    at which a plan reads the column they cancel out.
    """
    for place, column in zip(layout.places, columns, strict=True):
        _put(words, place, column, interner)


def _put(words: Words, place: Place, column: pa.Array, interner: Numbering) -> None:
    values = words_of_values(column, place.type, "row", interner)
    for offset, value in enumerate(values):
        words[:, place.word + offset] = value
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        for offset in range(len(values)):
            words[null, place.word + offset] = 0
        if place.bit >= 0:
            word, bit = divmod(place.bit, 64)
            words[null, word] |= np.int64(1) << np.int64(bit)


@cache
def is_direct(type: SqlType) -> bool:
    """Whether values of `type` have the same words in both forms."""
    return kind_of(type) in ("int", "wide", "uuid") or (
        kind_of(type) == "bytes" and has_one_form(type)
    )


def words_of_values(
    column: pa.Array, type: SqlType, form: Form, interner: Numbering
) -> tuple[Any, ...]:
    """Return the word or the two words of each value; those of NULLs are arbitrary."""
    kind = kind_of(type)
    if form == "order":
        return (interner.numbers(key_column(column, type)),)
    if form == "shown":
        return _shown_words(column, type, interner)
    if form == "key" and not is_direct(type):
        return _key_words(column, type, interner)
    match kind:
        case "int" if pa.types.is_decimal(column.type):
            return (_buffer(column, np.int64, 2)[::2],)
        case "int":
            return (integers(column),)
        case "float":
            return (float_bits(column),)
        case "wide":
            pairs = _buffer(column, np.int64, 2)
            return pairs[::2], pairs[1::2]
        case "uuid":
            strings = column.cast(pa.binary(16)) if column.null_count == 0 else _padded(column)
            pairs = _buffer(strings, np.int64, 2)
            return pairs[::2], pairs[1::2]
        case "interval":
            months, days, micros = (integers(field.fill_null(0)) for field in column.flatten())
            return (months << 32) | (days & np.int64(0xFFFFFFFF)), micros
        case "bytes":
            return (interner.numbers(column),)
        case "value":
            encoded = [
                None if datum is None else msgspec.msgpack.encode(datum)
                for datum in from_array(column, type)
            ]
            return (interner.numbers(pa.array(encoded, pa.binary())),)


def _key_words(column: pa.Array, type: SqlType, interner: Numbering) -> tuple[Any, ...]:
    if kind_of(type) == "interval":
        months, days, micros = (integers(field.fill_null(0)) for field in column.flatten())
        whole, rest = np.divmod(micros, np.int64(DAY))
        return months * 30 + days + whole, rest
    if has_many_forms(type):
        return (interner.numbers(equal_column(column, type)),)
    same = with_one_zero(column) if has_signed_zeros(type) else column
    return words_of_values(same, type, "row", interner)


def _shown_words(column: pa.Array, type: SqlType, interner: Numbering) -> tuple[Any, ...]:
    if kind_of(type) == "interval":
        months, days, micros = (integers(field.fill_null(0)) for field in column.flatten())
        return (months << 32) | ((days & np.int64(0xFFFFFFFF)) ^ np.int64(1 << 31)), micros
    return (interner.numbers(shown_column(column, type)),)


def integers(column: pa.Array) -> Ints:
    """Return the values of a column of integers, booleans, dates or times as int64."""
    if pa.types.is_boolean(column.type):
        values = column.fill_null(False).to_numpy(zero_copy_only=False)
    else:
        values = _buffer(column, _WIDTHS[column.type.bit_width], 1)
    integers: Ints = values.astype(np.int64, copy=False)
    return integers


def float_bits(column: pa.Array) -> Ints:
    """Return the bits of floats as float8; all NaNs are one."""
    narrow = column.type.bit_width == 32
    floats = _buffer(column, np.float32 if narrow else np.float64, 1).astype(np.float64)
    floats[np.isnan(floats)] = np.nan
    bits: Ints = floats.view(np.int64)
    return bits


def _buffer(column: pa.Array, dtype: Any, each: int) -> Any:
    """Return the values in memory, `each` for a row."""
    if not len(column):
        return np.empty(0, dtype)
    values = np.frombuffer(column.buffers()[1], dtype)
    return values[each * column.offset : each * (column.offset + len(column))]


def _padded(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, pa.scalar(bytes(16), column.type)).cast(pa.binary(16))


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# --- to Arrow ------------------------------------------------------------------------------


def columns_of(words: Words, layout: Layout, interner: Interner) -> list[pa.Array]:
    """Return rows in words as Arrow columns."""
    null = np.empty((len(layout.places), len(words)), np.bool_)
    some = np.zeros(len(layout.places), np.bool_)
    find_nulls(words, layout.null_bits, null, some)
    return [
        array_of(
            words[:, place.word],
            words[:, place.word + 1] if place.width == 2 else None,
            null[i] if some[i] else None,
            place,
            interner,
        )
        for i, place in enumerate(layout.places)
    ]


def column_at(words: Words, place: Place, interner: Interner) -> pa.Array:
    """Return one column of rows in words."""
    null = nulls_at(words, place)
    low = words[:, place.word]
    high = words[:, place.word + 1] if place.width == 2 else None
    return array_of(low, high, null, place, interner)


def int64_array(values: Ints) -> pa.Array:
    """Return integers as an Arrow array, faster than `pa.array` does."""
    return pa.Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def nulls_at(words: Words, place: Place) -> Bits | None:
    """Return where a column is NULL, None if it is nowhere."""
    if place.bit < 0:
        return None
    word, bit = divmod(place.bit, 64)
    null: Bits = (words[:, word] >> np.int64(bit)) & 1 != 0
    return null if null.any() else None


def array_of(
    low: Ints, high: Ints | None, null: Bits | None, place: Place, interner: Interner
) -> pa.Array:
    """Return values in words, with where they are NULL, as an Arrow array."""
    rows, arrow = len(low), arrow_type(place.type)
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    data: Any
    match place.kind:
        case "int" if pa.types.is_boolean(arrow):
            data = np.packbits(low != 0, bitorder="little")
        case "int" if pa.types.is_decimal(arrow):
            data = np.empty((rows, 2), np.int64)
            data[:, 0], data[:, 1] = low, low >> np.int64(63)
        case "int":
            data = low.astype(_WIDTHS[arrow.bit_width])
        case "float":
            floats = np.ascontiguousarray(low).view(np.float64)
            data = floats.astype(np.float32) if arrow.bit_width == 32 else floats
        case "wide":
            data = np.empty((rows, 2), np.int64)
            data[:, 0], data[:, 1] = low, high
        case "uuid":
            data = np.empty((rows, 2), np.int64)
            data[:, 0], data[:, 1] = low, high
            offsets = np.arange(0, 16 * rows + 1, 16, dtype=np.int32)
            return pa.Array.from_buffers(
                arrow, rows, [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
            )
        case "interval":
            days = (low << np.int64(32)) >> np.int64(32)
            parts = (low >> np.int64(32)).astype(np.int32), days.astype(np.int32), high
            fields = [pa.array(part) for part in parts]
            mask = None if null is None else pa.array(null)
            return pa.StructArray.from_arrays(fields, fields=list(arrow), mask=mask)
        case "bytes":
            return interner.strings(low, arrow, valid)
        case "value":
            encoded = interner.strings(low, pa.binary(), valid).to_pylist()
            decoded = [None if e is None else _datum(msgspec.msgpack.decode(e)) for e in encoded]
            return to_array(decoded, place.type)
    return pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(np.ascontiguousarray(data))])


def _datum(value: Any) -> Any:
    return tuple(map(_datum, value)) if isinstance(value, list) else value
