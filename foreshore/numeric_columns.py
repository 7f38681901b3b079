"""Numerics in binary format, by column: digits in base 10,000, computed for all values at once."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SIGN_NEGATIVE = 0x4000
_MOST_SCALE = 16  # fractional digits that fill four groups

Words = np.ndarray[Any, Any]


def numeric_columns(column: pa.Array, scale: int | None) -> pa.Array | None:
    """Return decimals in PostgreSQL's binary format; None if they are not short.

    Short are those whose digits without the point are a number below 2**63, with up to 16 of them
    after the point. If `scale` is None, each has as few fractional digits as its value needs.
    """
    unscaled = unscaled_decimals(column)
    places = column.type.scale
    if unscaled is None or not 0 <= places <= _MOST_SCALE:
        return None
    size = np.abs(unscaled)
    whole, part = np.divmod(size, 10**places)
    before, after = (len(str(whole.max(initial=0))) + 3) // 4, (places + 3) // 4
    groups = np.empty((len(column), before + after), np.int64)
    for place in reversed(range(before)):
        whole, groups[:, place] = np.divmod(whole, 10_000)
    left = part * 10 ** (4 * after - places)
    for place in reversed(range(before, before + after)):
        left, groups[:, place] = np.divmod(left, 10_000)

    there = groups != 0
    first = there.argmax(axis=1)
    last = groups.shape[1] - there[:, ::-1].argmax(axis=1)
    counts = np.where(size == 0, 0, last - first)
    words = np.zeros((len(column), 4 + groups.shape[1]), ">u2")
    words[:, 0] = counts
    weights = np.where(size == 0, 0, before - 1 - first)
    words[:, 1] = weights.astype(np.int16).view(np.uint16)
    words[:, 2] = np.where(unscaled < 0, _SIGN_NEGATIVE, 0)
    words[:, 3] = _shown_digits(part, places) if scale is None else scale
    order = np.minimum(first[:, None] + np.arange(groups.shape[1]), groups.shape[1] - 1)
    words[:, 4:] = np.take_along_axis(groups, order, axis=1)
    return _strings(words, 4 + counts, column)


def unscaled_decimals(column: pa.Array) -> Words | None:
    """Return the digits of decimals without the point, 0 for NULL; None if some are too many."""
    if not pa.types.is_decimal128(column.type):
        return None
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    start = 2 * column.offset
    halves = np.frombuffer(column.buffers()[1], np.int64)[start : start + 2 * len(column)]
    low, high = halves[::2], halves[1::2]
    if not np.array_equal(low >> 63, high) or (low == np.iinfo(np.int64).min).any():
        return None
    return low


def _shown_digits(part: Words, places: int) -> Words:
    """Return how many of `places` fractional digits are left without zeros at the end."""
    shown = np.where(part == 0, 0, places)
    left = part.copy()
    for _ in range(places):
        ends = (left != 0) & (left % 10 == 0)
        if not ends.any():
            break
        left[ends] //= 10
        shown[ends] -= 1
    return shown


def _strings(words: Words, counts: Words, column: pa.Array) -> pa.Array:
    """Return the first `counts` words of each row as binary, with the NULLs of `column`."""
    used = words[np.arange(words.shape[1]) < counts[:, None]]
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(2 * counts, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(used))]
    found = pa.Array.from_buffers(pa.binary(), len(column), buffers)
    return found if column.null_count == 0 else pc.if_else(column.is_valid(), found, None)
