"""Hashes of rows of Arrow arrays: 128 bits each, seeded anew in each process.

Rows that are equal bit for bit have the same hash, also where their arrays are sliced. Others have
the same one by chance only, once in 2**128 pairs, and nobody outside of the process can choose them
so. All work is done on whole columns.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Words: TypeAlias = Any  # an array of uint64

_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FIXED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal, pa.types.is_decimal)
_SALTS = 4  # words of randomness for each half: of NULL, places, lengths, and the start
_RANDOM = np.frombuffer(os.urandom(2 * _SALTS * 8), np.uint64).reshape(2, _SALTS)


def row_hashes(arrays: Sequence[pa.Array]) -> tuple[Words, Words] | None:
    """Return the two halves of the hash of each row; None if a type is not known."""
    halves = []
    for half in range(2):
        salts = _RANDOM[half]
        found = np.full(len(arrays[0]), salts[3], np.uint64)
        for array in arrays:
            of_array = _hashes(array, salts)
            if of_array is None:
                return None
            found = _mixed(found * _FIRST + of_array)
        halves.append(found)
    return halves[0], halves[1]


def _mixed(words: Words) -> Words:
    """Return words whose bits all depend on all of the bits of those given."""
    words = words ^ (words >> _SHIFT)
    words *= _FIRST
    words ^= words >> _SHIFT
    words *= _SECOND
    words ^= words >> _SHIFT
    return words


def _hashes(array: pa.Array, salts: Words) -> Words | None:
    found = _of_values(array, salts)
    if found is not None and array.null_count:
        found = np.where(array.is_valid().to_numpy(zero_copy_only=False), found, salts[0])
    return found


def _of_values(array: pa.Array, salts: Words) -> Words | None:
    """Return a hash for each value, an arbitrary one for NULL."""
    type = array.type
    if pa.types.is_null(type):
        return np.zeros(len(array), np.uint64)
    if pa.types.is_boolean(type):
        array = array.cast(pa.uint8())
        type = array.type
    if pa.types.is_struct(type):
        found = np.full(len(array), salts[3], np.uint64)
        for field in array.flatten():
            of_field = _hashes(field, salts)
            if of_field is None:
                return None
            found = _mixed(found * _FIRST + of_field)
        return found
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        starts, ends = _offsets(array, pa.types.is_large_list(type))
        low, high = (int(starts[0]), int(ends[-1])) if len(array) else (0, 0)
        items = _hashes(array.values.slice(low, high - low), salts)
        return None if items is None else _of_parts(items, starts - low, ends - low, salts)
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _of_bytes(array, *_offsets(array, False), salts)
    if pa.types.is_large_string(type) or pa.types.is_large_binary(type):
        return _of_bytes(array, *_offsets(array, True), salts)
    return _of_fixed(array, salts)


def _of_fixed(array: pa.Array, salts: Words) -> Words | None:
    type = array.type
    if not any(each(type) for each in _FIXED):
        return None
    data, width = array.buffers()[1], type.bit_width // 8
    if data is None or width not in (*_WIDTHS, 16):
        return None
    if width == 16:
        words = np.frombuffer(data, np.uint64).reshape(-1, 2)
        words = words[array.offset : array.offset + len(array)]
        return _mixed(_mixed(words[:, 0] ^ salts[3]) * _FIRST + words[:, 1])
    words = np.frombuffer(data, _WIDTHS[width])[array.offset : array.offset + len(array)]
    return _mixed(words.astype(np.uint64) ^ salts[3])


def _offsets(array: pa.Array, large: bool) -> tuple[Any, Any]:
    """Return where each value starts and ends in the data of an array of lists or texts."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.int64)
    offsets = np.frombuffer(buffer, np.int64 if large else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return offsets[:-1], offsets[1:]


def _of_parts(items: Words, starts: Any, ends: Any, salts: Words) -> Words:
    """Return the hashes of sequences, given those of their items."""
    counts = ends - starts
    rows, places = _places(counts)
    found = _mixed(items[starts[rows] + places] ^ _mixed(places.astype(np.uint64) ^ salts[1]))
    return _summed(found, counts, salts) ^ _mixed(counts.astype(np.uint64) ^ salts[2])


def _of_bytes(array: pa.Array, starts: Any, ends: Any, salts: Words) -> Words:
    """Return the hashes of texts, eight bytes at a time."""
    lengths = ends - starts
    rows, places = _places((lengths + 7) // 8)
    low = int(starts[0]) if len(starts) else 0
    high = int(ends[-1]) if len(ends) else 0
    room = np.zeros((high - low) // 8 + 2, np.uint64)
    if high > low:
        room.view(np.uint8)[: high - low] = np.frombuffer(array.buffers()[2], np.uint8)[low:high]
    at = starts[rows] - low + 8 * places
    word, bits = at >> 3, ((at & 7) << 3).astype(np.uint64)
    words = room[word] >> bits
    above = room[word + 1] << ((np.uint64(64) - bits) & np.uint64(63))
    words |= np.where(bits == 0, np.uint64(0), above)
    left = np.minimum(lengths[rows] - 8 * places, 8).astype(np.uint64)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - (left << np.uint64(3)))
    found = _mixed(words ^ _mixed(places.astype(np.uint64) ^ salts[1]))
    return _summed(found, (lengths + 7) // 8, salts) ^ _mixed(lengths.astype(np.uint64) ^ salts[2])


def _places(counts: Any) -> tuple[Any, Any]:
    """Return for each part the number of its row, and its own number within the row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - firsts[rows]


def _summed(words: Words, counts: Any, salts: Words) -> Words:
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words, out=sums[1:])
    ends = np.cumsum(counts)
    return _mixed((sums[ends] - sums[ends - counts]) ^ salts[3])
