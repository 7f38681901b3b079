"""Rows of an arrangement one at a time, as tuples of data.

A look-up of one key takes some forty calls into NumPy and Arrow if a slice of columns is made of
it. Read from the buffers of a run, it takes a search by `bisect` and an index for each column.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from struct import calcsize
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.arrange.run import Run, Updates
from foreshore.datum import from_array
from foreshore.table_rows import Row
from foreshore.types import ColumnType, Datum, SqlType
from foreshore.update import Timestamp

Reader: TypeAlias = Callable[[int], Datum]  # the value at a position

# Codes of the struct module, of Arrow types whose values are their datums.
_CODES = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q",
    pa.uint16(): "H", pa.uint32(): "I", pa.float32(): "f", pa.float64(): "d",
}  # fmt: skip
_VIEWED = {"date": "i", "time": "q", "timestamp": "q", "timestamptz": "q"}
NEVER = 1 << 64  # later than any time


class OneUpdate(NamedTuple):
    """A row, its hash, and by how much its multiplicity changed at a time."""

    row: Row
    row_hash: int
    time: Timestamp
    diff: int


class PointReader:
    """The updates of an arrangement of rows in `columns`, by the hash of their key."""

    def __init__(self, arrangement: Arrangement, columns: Sequence[ColumnType]) -> None:
        self._arrangement = arrangement
        self._types = [column.type for column in columns]
        self._runs: tuple[Run, ...] = ()
        self._readers: list[UpdatesReader] = []

    def forget(self) -> None:
        """Let go of the runs, as some may have been replaced."""
        self._runs, self._readers = (), []

    def under(self, hash: int, most: int | None = None) -> list[OneUpdate]:
        """Return the updates at all times whose key has this hash; the keys may differ.

        Raises TooManyRows if they are more than `most`.
        """
        runs, tail = self._arrangement.runs_and_tail(hash)
        if runs is not self._runs:
            known = {id(each.updates): each for each in self._readers}
            self._readers = [
                known.get(id(run.updates)) or UpdatesReader(run.updates, self._types)
                for run in runs
            ]
            self._runs = runs
        found: list[OneUpdate] = []
        for reader in self._readers:
            hashes, at = reader.hashes, bisect_left(reader.hashes, hash)
            while at < len(hashes) and hashes[at] == hash:
                if most is not None and len(found) >= most:
                    raise TooManyRows
                found.append(reader.update(at))
                at += 1
        for part in tail:
            if most is not None and len(found) + len(part) > most:
                raise TooManyRows
            found += self._updates(part)
        return found

    def _updates(self, part: Updates) -> list[OneUpdate]:
        """Return few updates one by one."""
        columns = [
            from_array(column, type)
            for column, type in zip(part.rows.columns, self._types, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(part))
        numbers = (part.row_hashes.tolist(), part.times.tolist(), part.diffs.tolist())
        return list(map(OneUpdate, rows, *numbers))


class UpdatesReader:
    """Updates by their position."""

    __slots__ = ("_inserted", "columns", "diffs", "hashes", "row_hashes", "times", "updates")

    def __init__(self, updates: Updates, types: Sequence[SqlType]) -> None:
        self.updates = updates
        self._inserted: Timestamp | None = None  # not looked at yet
        self.hashes = _view(updates.key_hashes)
        self.row_hashes = _view(updates.row_hashes)
        self.times = _view(updates.times)
        self.diffs = _view(updates.diffs)
        self.columns = [
            reader_of(column, type)
            for column, type in zip(updates.rows.columns, types, strict=True)
        ]

    def are_inserted(self, time: Timestamp) -> bool:
        """Whether all updates insert rows, and none after `time`."""
        if self._inserted is None:
            updates = self.updates
            only = bool((updates.diffs > 0).all())
            latest = int(updates.times.max()) if len(updates) else 0
            self._inserted = latest if only else NEVER
        return self._inserted <= time

    def reads(self, used: Collection[int]) -> list[Reader]:
        """Return the functions that read the columns, None for those that are not `used`."""
        return [read if i in used else _skipped for i, read in enumerate(self.columns)]

    def row(self, at: int) -> Row:
        """Return the row at a position."""
        return tuple([read(at) for read in self.columns])

    def update(self, at: int) -> OneUpdate:
        """Return the update at a position."""
        return OneUpdate(self.row(at), self.row_hashes[at], self.times[at], self.diffs[at])


def _skipped(_: int) -> Datum:
    return None


def reader_of(column: pa.Array, type: SqlType) -> Reader:
    """Return the function that reads a value of a column, as `from_array` returns it."""
    read = _reader(column, type)
    if read is None:
        return lambda at: from_array(column.slice(at, 1), type)[0]
    if not column.null_count:
        return read
    bits, first = memoryview(column.buffers()[0]), column.offset
    valid = read

    def nullable(at: int) -> Datum:
        place = first + at
        return valid(at) if bits[place >> 3] >> (place & 7) & 1 else None

    return nullable


def _reader(column: pa.Array, type: SqlType) -> Reader | None:
    """Return the function that reads a value that is not NULL; None if it has to be Arrow."""
    kind, buffers = column.type, column.buffers()
    if type.element is not None or not buffers or buffers[-1] is None:
        return None
    code = _VIEWED.get(type.name) or _CODES.get(kind)
    if code is not None:
        read: Reader = _numbers(buffers[1], code, column).__getitem__
        return read
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, data = _numbers(buffers[1], "i", column), memoryview(buffers[2])
        if pa.types.is_string(kind):
            return lambda at: str(data[offsets[at] : offsets[at + 1]], "utf-8")
        return lambda at: bytes(data[offsets[at] : offsets[at + 1]])
    if pa.types.is_fixed_size_binary(kind):
        width, data, first = kind.byte_width, memoryview(buffers[1]), column.offset
        return lambda at: bytes(data[width * (first + at) : width * (first + at + 1)])
    if pa.types.is_decimal128(kind):
        return _decimals(memoryview(buffers[1]), column.offset, kind.scale, trim=type.trim)
    if pa.types.is_boolean(kind):
        bits, first = memoryview(buffers[1]), column.offset
        return lambda at: bool(bits[first + at >> 3] >> (first + at & 7) & 1)
    return None


def _decimals(data: memoryview, first: int, scale: int, *, trim: bool) -> Reader:
    """Return the function that reads a decimal of 16 bytes as text."""

    def read(at: int) -> Datum:
        start = 16 * (first + at)
        number = int.from_bytes(data[start : start + 16], "little", signed=True)
        if not scale:
            return str(number)
        digits = str(abs(number)).zfill(scale + 1)
        text = f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
        return text.rstrip("0").rstrip(".") if trim else text

    return read


def _view(numbers: Any) -> memoryview:
    """Return a view of an array of numbers, whose elements are Python's."""
    contiguous: Any = np.ascontiguousarray(numbers)  # NumPy's type does not say it is a buffer
    return memoryview(contiguous)


def _numbers(buffer: pa.Buffer, code: str, column: pa.Array) -> Any:
    """Return the numbers in a buffer of a column, from the column's first on."""
    data = memoryview(buffer)
    width = calcsize(code)
    numbers: Any = data[: len(data) // width * width]
    return numbers.cast(code)[column.offset :]
