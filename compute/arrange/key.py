"""Hashes of rows and keys, vectorized over columns and equal for equal values.

There are two kinds of equality. A *key* is hashed so that SQL-equal values have equal hashes: -0.0
and 0.0, NaN and NaN, '1 month' and '30 days', 1.0 and 1.00 in jsonb. A *row* is hashed by its
physical values, because rows that are displayed differently are different; only NaNs count as one.

Each value becomes one or more 64-bit words. The words of a row are folded into one with a secret
seed of the process, so clients cannot choose colliding values. Index lookups also compare the
values of keys. Rows are distinguished by their 64-bit hash alone.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import to_array
from foreshore.expr.equality import DAY, equal_column, has_one_form
from foreshore.types import NUMBER_PARTS, Datum, SqlType

Words = npt.NDArray[np.uint64]

SEED = secrets.randbits(64)
MASK = (1 << 64) - 1
_A = 0x9E3779B97F4A7C15
_B = 0xBF58476D1CE4E5B9
_C = 0x94D049BB133111EB
_NULL = 0x5851F42D4C957F2D
SHORT = 64  # bytes of a value up to which Python is as fast as NumPy


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_B)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_C)
    return words ^ (words >> np.uint64(31))


def _fold(hashes: Words, words: Words) -> Words:
    return _mix((hashes + np.uint64(_A)) ^ words) + hashes * np.uint64(_A)


def fold_one(hash: int, word: int) -> int:
    """Return the hash of a key from that of its words before this one, `SEED` for the first."""
    word = ((hash + _A) & MASK) ^ word
    word = ((word ^ (word >> 30)) * _B) & MASK
    word = ((word ^ (word >> 27)) * _C) & MASK
    return ((word ^ (word >> 31)) + hash * _A) & MASK


def hash_columns(columns: Sequence[pa.Array], types: Sequence[SqlType] | None, rows: int) -> Words:
    """Return a hash of each row of `columns`: as keys of SQL `types`, as rows if that is None."""
    if rows == 1:  # NumPy's calls cost more than the work
        row = (
            int(word[0])
            for i, column in enumerate(columns)
            for word in column_words(column, types[i] if types is not None else None)
        )
        return np.array([hash_words(row)], np.uint64)
    hashes = np.full(rows, SEED, np.uint64)
    with np.errstate(over="ignore"):
        for i, column in enumerate(columns):
            for words in column_words(column, types[i] if types is not None else None):
                hashes = _fold(hashes, words)
    return hashes


def key_words(key: Sequence[Datum], types: Sequence[SqlType]) -> tuple[int, ...] | None:
    """Return the words of a key; None if nothing equals it (NULL, or a value not of the type)."""
    words: tuple[int, ...] = ()
    for datum, type in zip(key, types, strict=True):
        if datum is None:
            return None
        try:
            words += datum_words(datum, type)
        except (pa.ArrowInvalid, OverflowError):
            return None
    return words


def hash_words(words: Iterable[int]) -> int:
    """Return the result of `hash_columns` for a key with these words."""
    hash = SEED
    for word in words:
        hash = fold_one(hash, word)
    return hash


def datum_words(datum: Datum, type: SqlType) -> tuple[int, ...]:
    """Return the words of one value as a key."""
    match type.name:
        case (
            "int2"
            | "int4"
            | "int8"
            | "oid"
            | "mz_timestamp"
            | "money"
            | "date"
            | "time"
            | "timestamp"
            | "timestamptz"
        ):
            assert isinstance(datum, int)
            return (datum & MASK,)
        case "text" | "varchar" | "bpchar" | "name" if isinstance(datum, str):
            data = datum.encode()
            if len(data) <= SHORT:
                return (_string_word(data),)
    words = column_words(to_array([datum], type), type)
    return tuple(int(word[0]) for word in words)


def _string_word(data: bytes) -> int:
    """Return the result of `_bytes_word` for one value."""
    total = 0
    for start in range(0, len(data), 8):
        part = data[start : start + 8]
        word = int.from_bytes(part, "little") << (64 - 8 * len(part)) & MASK
        total += fold_one(start // 8 * _C & MASK, word)
    return fold_one(total & MASK, len(data))


def column_words(column: pa.Array, type: SqlType | None) -> list[Words]:
    """Return 64-bit words for each value of the column; with `type`, as a key."""
    kind = column.type
    if pa.types.is_list(kind):
        words = [_list_word(column, type)]
    elif pa.types.is_struct(kind):
        words = _struct_words(column, type)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        words = [_bytes_word(_in_one_form(column, type))]
    else:
        words = [_float_word(column, type)] if pa.types.is_floating(kind) else _fixed_words(column)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        words[0] = np.where(null, np.uint64(_NULL), words[0])
        words[1:] = [np.where(null, np.uint64(0), word) for word in words[1:]]
    return words


def _in_one_form(column: pa.Array, type: SqlType | None) -> pa.Array:
    """Return strings that are identical where values are equal: as keys, or as rows."""
    return column if type is None or has_one_form(type) else equal_column(column, type)


def _fixed_words(column: pa.Array) -> list[Words]:
    kind = column.type
    if pa.types.is_boolean(kind):
        values = column.fill_null(False).to_numpy(zero_copy_only=False)
        return [values.astype(np.uint64)]
    if pa.types.is_decimal128(kind):
        pairs = _values(column, np.dtype([("low", np.uint64), ("high", np.uint64)]))
        return [np.ascontiguousarray(pairs["low"]), np.ascontiguousarray(pairs["high"])]
    width = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[kind.bit_width]
    return [_values(column, width).astype(np.int64, copy=False).view(np.uint64)]


def _float_word(column: pa.Array, type: SqlType | None) -> Words:
    values = _values(column, np.float32 if column.type.bit_width == 32 else np.float64)
    floats = values.astype(np.float64)
    if type is not None:
        floats += 0.0  # as a key, -0.0 is 0.0
    floats[np.isnan(floats)] = np.nan
    words: Words = floats.view(np.uint64)
    return words


def _values(column: pa.Array, dtype: Any) -> Any:
    """Return the values in memory; those of NULLs are arbitrary."""
    if not len(column):
        return np.empty(0, dtype)
    values = np.frombuffer(column.buffers()[1], dtype)
    return values[column.offset : column.offset + len(column)]


def _struct_words(column: pa.Array, type: SqlType | None) -> list[Words]:
    if column.type == NUMBER_PARTS:
        value, rest, scale = column.flatten()
        words = [*_fixed_words(value), _bytes_word(rest)]
        return words if type is not None else [*words, *_fixed_words(scale)]
    fields = [_fixed_words(field) for field in column.flatten()]
    if type is None or type.name != "interval":
        return [words for field in fields for words in field]
    months, days, micros = (words[0].view(np.int64) for words in fields)
    whole, rest = np.divmod(micros, np.int64(DAY))
    return [(months * 30 + days + whole).view(np.uint64), rest.view(np.uint64)]


def _bytes_word(column: pa.Array) -> Words:
    rows = len(column)
    if not rows:
        return np.empty(0, np.uint64)
    if rows == 1:
        value = column[0].as_py() or b""
        short = value.encode() if isinstance(value, str) else value
        if len(short) <= SHORT:
            return np.array([_string_word(short)], np.uint64)
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + rows + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)
    if last > first:
        data[:-8] = np.frombuffer(buffers[2], np.uint8)[first:last]
    counts = (lengths + 7) >> 3
    parts = int(counts.sum())
    row = np.repeat(np.arange(rows), counts)
    begins = np.cumsum(counts) - counts
    position = np.arange(parts) - begins[row]
    at = starts[row] - first + 8 * position
    words = data[at[:, None] + np.arange(8)].view(np.uint64).reshape(-1)
    remaining = np.minimum(lengths[row] - 8 * position, 8)
    words = words << (64 - 8 * remaining).astype(np.uint64)
    return _combine(words, position, counts, begins, lengths)


def _list_word(column: pa.Array, type: SqlType | None) -> Words:
    element = type.element if type is not None else None
    rows = len(column)
    filled = column.flatten()  # without values under NULLs
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    counts = counts.astype(np.int64)
    words = np.zeros(len(filled), np.uint64)
    for part in column_words(filled, element):
        words = _fold(words, part)
    begins = np.cumsum(counts) - counts
    row = np.repeat(np.arange(rows), counts)
    return _combine(words, np.arange(len(filled)) - begins[row], counts, begins, counts)


def _combine(words: Words, position: Any, counts: Any, begins: Any, lengths: Any) -> Words:
    """Return for each row one word of its `counts` consecutive ones, and its length."""
    with np.errstate(over="ignore"):
        mixed = _fold(position.astype(np.uint64) * np.uint64(_C), words)
        sums = np.zeros(len(counts), np.uint64)
        some = counts > 0
        if some.any():
            sums[some] = np.add.reduceat(mixed, begins[some])
        return _fold(sums, lengths.astype(np.uint64))


def keys_equal(column: pa.Array, datum: Datum, type: SqlType) -> npt.NDArray[np.bool_]:
    """Return where the column's values are SQL-equal to `datum`, which is not NULL."""
    sought = to_array([datum], type)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        column, sought = _in_one_form(column, type), _in_one_form(sought, type)
        found = pc.fill_null(pc.equal(column, sought[0]), False)
        return np.asarray(found.to_numpy(zero_copy_only=False))
    equal = column.is_valid().to_numpy(zero_copy_only=False)
    for words, word in zip(column_words(column, type), column_words(sought, type), strict=True):
        equal = equal & (words == word[0])
    return np.asarray(equal)


def pairs_equal(left: pa.Array, right: pa.Array, type: SqlType) -> npt.NDArray[np.bool_]:
    """Return where two columns of keys of `type` agree: SQL-equal, or both NULL."""
    if pa.types.is_string(left.type) or pa.types.is_binary(left.type):
        left, right = _in_one_form(left, type), _in_one_form(right, type)
        both = pc.and_(left.is_null(), right.is_null())
        equal = pc.or_(pc.fill_null(pc.equal(left, right), False), both)
        return np.asarray(equal.to_numpy(zero_copy_only=False))
    same = left.is_null().to_numpy(zero_copy_only=False) == right.is_null().to_numpy(
        zero_copy_only=False
    )
    for a, b in zip(column_words(left, type), column_words(right, type), strict=True):
        same = same & (a == b)
    return np.asarray(same)
