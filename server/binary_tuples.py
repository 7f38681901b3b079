"""Many tuples of COPY's binary format at once: where they are, and columns of them.

A tuple says where the next one begins, so tuples have to be walked through one by one. Instead all
places are looked at that have the number of fields that a tuple begins with. Those that are none,
within a value, are left out as nothing leads to them. All of this is done on arrays.

What is not as expected is left to the parser by tuples (`binary_copy.py`), which knows the errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from foreshore.datum import to_array
from foreshore.server.binary_values import EPOCH_DAYS, EPOCH_MICROS
from foreshore.types import Datum, SqlType, arrow_type

Ints: TypeAlias = Any  # an array of int64
Decode: TypeAlias = Callable[[bytes, SqlType], Datum]

NULL = -1
_NUMBERS: dict[str, np.dtype[Any]] = {
    "int2": np.dtype(">i2"),
    "int4": np.dtype(">i4"),
    "int8": np.dtype(">i8"),
    "float4": np.dtype(">f4"),
    "float8": np.dtype(">f8"),
    "date": np.dtype(">i4"),
    "timestamp": np.dtype(">i8"),
    "timestamptz": np.dtype(">i8"),
}
# What is added to times, and the greatest distance from 2000 that is surely in their ranges.
_TIMES = {"date": (EPOCH_DAYS, 1_000_000)} | dict.fromkeys(
    ("timestamp", "timestamptz"), (EPOCH_MICROS, 200_000_000_000_000_000)
)


@dataclass(frozen=True, slots=True)
class Tuples:
    """Where the fields of tuples are in some data: their first bytes and lengths, by tuple."""

    starts: Ints
    lengths: Ints  # -1 for NULL
    end: int  # of the last one

    def __len__(self) -> int:
        return len(self.starts)


def tuples_at(data: bytes, at: int, fields: int) -> Tuples:
    """Return the complete tuples of so many fields that follow each other from `at` on.

    There are none of data in which far more places look like tuples than can be.
    """
    counts, lengths = _integers(data, 2), _integers(data, 4)
    begins = np.flatnonzero(counts[at:] == fields) + at if at < len(counts) else np.zeros(0, int)
    ends = _ends(begins, lengths, fields, len(data))
    chain = _chain(begins, ends, at)
    starts = np.empty((len(chain), fields), np.int64)
    sizes = np.empty((len(chain), fields), np.int64)
    next_at = begins[chain] + 2
    for field in range(fields):
        starts[:, field], sizes[:, field] = next_at + 4, lengths[next_at]
        next_at = next_at + 4 + np.maximum(sizes[:, field], 0)
    return Tuples(starts, sizes, int(ends[chain[-1]]) if len(chain) else at)


def _ends(begins: Ints, lengths: Ints, fields: int, size: int) -> Ints:
    """Return where tuples end; -1 for what is none, or is cut off."""
    ends = np.full(len(begins), -1, np.int64)
    whole, next_at, left = np.arange(len(begins)), begins + 2, size
    for _ in range(fields):
        left -= len(whole)
        if left < 0:  # a field takes four bytes at least
            return ends
        is_there = next_at < len(lengths)
        whole, next_at = whole[is_there], next_at[is_there]
        length = lengths[next_at]
        next_at = next_at + 4 + np.maximum(length, 0)
        is_whole = (length >= NULL) & (next_at <= size)
        whole, next_at = whole[is_whole], next_at[is_whole]
    ends[whole] = next_at
    return ends


def _integers(data: bytes, width: int) -> Ints:
    """Return the integer of so many bytes at each place."""
    count = len(data) - width + 1
    found = np.zeros(max(count, 0), np.int64)
    for first in range(min(width, max(count, 0))):
        whole = (len(data) - first) // width
        found[first::width] = np.frombuffer(data, f">i{width}", whole, first)
    return found


def _chain(begins: Ints, ends: Ints, at: int) -> Ints:
    """Return which places are tuples: the one at `at`, and each one at the end of another."""
    follows: Ints = np.searchsorted(begins, ends)
    leads = follows < len(begins)
    leads[leads] = begins[follows[leads]] == ends[leads]
    follows = np.where(leads, follows, -1)
    breaks = np.flatnonzero(follows != np.arange(1, len(begins) + 1))  # the next place is none
    found: list[Ints] = []
    place = int(np.searchsorted(begins, at))
    is_there = place < len(begins) and begins[place] == at
    while is_there:
        last = int(breaks[np.searchsorted(breaks, place)])
        found.append(np.arange(place, last + 1))
        place = int(follows[last])
        is_there = place >= 0
    chain = np.concatenate(found) if found else np.zeros(0, np.int64)
    return chain[ends[chain] >= 0]  # the last one may be cut off


def columns_of(
    data: bytes, tuples: Tuples, types: Sequence[SqlType], decode: Decode
) -> list[pa.Array] | None:
    """Return columns of tuples; None if a value may be wrong. `decode` takes single values."""
    found = []
    whole = np.frombuffer(data, np.uint8)
    for field, type in enumerate(types):
        starts, lengths = tuples.starts[:, field], tuples.lengths[:, field]
        if type.name in _NUMBERS:
            column = _numbers(whole, starts, lengths, type)
        elif type.name == "text" or (type.name == "varchar" and type.length is None):
            column = _texts(whole, starts, lengths)
        else:
            spans = zip(starts.tolist(), lengths.tolist(), strict=True)
            try:
                values = [None if n == NULL else decode(data[s : s + n], type) for s, n in spans]
            except Exception:  # the parser by tuples says of which line
                return None
            column = to_array(values, type)
        if column is None:
            return None
        found.append(column)
    return found


def _numbers(data: Any, starts: Ints, lengths: Ints, type: SqlType) -> pa.Array | None:
    number = _NUMBERS[type.name]
    nulls = lengths == NULL
    if not (nulls | (lengths == number.itemsize)).all():
        return None
    places = starts[~nulls][:, None] + np.arange(number.itemsize)
    values = np.zeros(len(starts), number.newbyteorder("="))
    values[~nulls] = np.ascontiguousarray(data[places]).view(number)[:, 0]
    if type.name in _TIMES:
        epoch, most = _TIMES[type.name]
        if len(values) and (values.max() > most or values.min() < -most):
            return None
        values = (values + epoch).astype(number.newbyteorder("="))
    mask = nulls if nulls.any() else None
    wanted = arrow_type(type)
    array = pa.array(values, mask=mask)
    return array if array.type == wanted else array.view(wanted)


def _texts(data: Any, starts: Ints, lengths: Ints) -> pa.Array | None:
    nulls = lengths == NULL
    sizes = np.where(nulls, 0, lengths)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    content = data[places]
    if offsets[-1] >= 1 << 31 or not content.all():  # a byte of zero
        return None
    valid = pa.array(~nulls).buffers()[1] if nulls.any() else None
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    found = pa.Array.from_buffers(pa.string(), len(sizes), buffers)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:  # no UTF8
        return None
    return found
