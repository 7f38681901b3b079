"""Buckets: by which rows of equal keys are in the same files, for Spark and for this process.

A row's bucket is Spark's xxhash64 of its key, modulo their number. Columns of the key are integers,
dates, truth values or texts, which are equal if and only if their hashed forms are; a text is
hashed by its CRC-32. The hash skips NULLs.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.types import BOOL, DATE, INT2, INT4, INT8, TEXT, ColumnType

_INTEGERS = (INT2, INT4, INT8)

_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(42)

Hashes = npt.NDArray[np.uint64]


def is_hashable(column: ColumnType) -> bool:
    """Whether equal values of a column's type have equal forms."""
    return column.type in (*_INTEGERS, DATE, BOOL, TEXT)


def bucket_select(columns: Sequence[tuple[str, ColumnType]], count: int) -> str:
    """Return Spark's expression of the bucket of a row by the key `columns`."""
    forms = ", ".join(_form(name, column) for name, column in columns)
    return f"CAST(pmod(xxhash64({forms}), {count}) AS INT)"


def _form(name: str, column: ColumnType) -> str:
    if column.type == TEXT:
        return f"crc32(CAST({name} AS BINARY))"
    if column.type == DATE:
        return f"CAST(unix_date({name}) AS BIGINT)"
    return f"CAST({name} AS BIGINT)"


def buckets_of(columns: Sequence[pa.ChunkedArray], count: int) -> frozenset[int]:
    """Return the buckets of rows with these columns of the key."""
    rows = len(columns[0])
    hashes = np.full(rows, _SEED)
    for column in columns:
        words, valid = _words(column)
        hashes = np.where(valid, _hash_words(words, hashes), hashes)
    found = np.unique(np.mod(hashes.view(np.int64), np.int64(count)))  # as pmod: never negative
    return frozenset(found.tolist())


def _words(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the hashed forms of values as words, and which are not NULL."""
    valid = pc.is_valid(column).to_numpy()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = column.to_pylist()
        return np.array([zlib.crc32((t or "").encode()) for t in texts], np.int64), valid
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    numbers = pc.fill_null(column.cast(pa.int64()), 0)
    return numbers.to_numpy(), valid


def _hash_words(words: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """Return Spark's XXH64.hashLong."""
    with np.errstate(over="ignore"):
        hashes = seeds + _PRIME5 + np.uint64(8)
        mixed = _rotated(words.view(np.uint64) * _PRIME2, 31) * _PRIME1
        hashes = _rotated(hashes ^ mixed, 27) * _PRIME1 + _PRIME4
        hashes ^= hashes >> np.uint64(33)
        hashes *= _PRIME2
        hashes ^= hashes >> np.uint64(29)
        hashes *= _PRIME3
        return hashes ^ (hashes >> np.uint64(32))


def _rotated(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
