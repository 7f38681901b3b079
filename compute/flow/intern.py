"""The interner: each distinct byte string of a replica has a number, which stands for it in rows.

Numbers begin with 1; 0 stands for no string (a NULL). Any thread may add strings, one at a time,
and read those whose numbers it has. Strings are not forgotten yet.
"""

import secrets
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.compute.checkpoint.engine import CapturedStrings
from foreshore.compute.checkpoint.state import Captured, Mismatch, Reader
from foreshore.compute.flow.kernels import interning
from foreshore.compute.flow.shared import Shared

AT_ONCE = 1 << 16  # strings

Ints = npt.NDArray[np.int64]


class Interner(Shared):
    """The strings of one replica."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = np.uint64(secrets.randbits(64) if seed is None else seed)
        self.arena = np.zeros(1 << 12, np.uint8)
        self.starts = np.zeros(256, np.int64)
        self.lengths = np.zeros(256, np.int64)
        self._hashes = np.zeros(256, np.uint64)
        self._table = np.zeros(1024, np.int64)
        self._used = 0
        self._count = 1
        self._known: dict[bytes, int] = {}  # of constants
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of strings."""
        return self._count - 1

    @property
    def nbytes(self) -> int:
        """Return the memory in use."""
        arrays = (self.arena, self.starts, self.lengths, self._hashes, self._table)
        return sum(array.nbytes for array in arrays)

    def number(self, value: bytes) -> int:
        """Return the number of a constant."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = int(self.numbers(pa.array([value], pa.binary()))[0])
        return found

    def numbers(self, column: pa.Array) -> Ints:
        """Return the numbers of a column of strings, 0 for NULL."""
        return self._numbers(column, adding=True)

    def known(self, column: pa.Array) -> Ints:
        """Return the numbers of a column of strings, 0 for NULL, -1 where there is none yet."""
        return self._numbers(column, adding=False)

    def _numbers(self, column: pa.Array, *, adding: bool) -> Ints:
        rows = len(column)
        ids = np.zeros(rows, np.int64)
        if not rows:
            return ids
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        buffers = column.buffers()
        offsets = np.frombuffer(buffers[1], np.int64 if large else np.int32)
        offsets = offsets[column.offset : column.offset + rows + 1].astype(np.int64)
        data = (
            np.frombuffer(buffers[2], np.uint8) if buffers[2] else np.frombuffer(bytes(1), np.uint8)
        )
        data.flags.writeable = False  # so that the kernel is compiled once
        present = np.array(column.is_valid()) if column.null_count else np.ones(rows, np.bool_)
        for start in range(0, rows, AT_ONCE):  # so that others wait for a moment only
            stop = min(start + AT_ONCE, rows)
            with self._lock:
                if adding:
                    self._reserve(stop - start, int(offsets[stop] - offsets[start]))
                self._used, self._count = interning.intern(
                    data, offsets[start : stop + 1], present[start:stop], self._seed,
                    self.arena, self.starts, self.lengths, self._hashes, self._table,
                    self._used, self._count, adding, ids[start:stop],
                )  # fmt: skip
        return ids

    def strings(self, ids: Ints, type: pa.DataType, valid: Any = None) -> pa.Array:
        """Return the column, of a string or binary `type`, of the strings with these numbers.

        `valid` is a validity buffer, None if no value is NULL.
        """
        ids = np.ascontiguousarray(ids)
        data = np.empty(interning.total_length(ids, self.lengths), np.uint8)
        offsets = np.empty(len(ids) + 1, np.int32)
        interning.copy_strings(ids, self.arena, self.starts, self.lengths, offsets, data)
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(type, len(ids), buffers)

    def hashes_of(self, ids: Ints) -> npt.NDArray[np.uint64]:
        """Return the hashes of the strings with these numbers, by the seed; 0 for 0."""
        return self._hashes.take(ids)

    # --- checkpoints

    @property
    def seed(self) -> int:
        """Return the seed of the hashes."""
        return int(self._seed)

    def save(self, begin: int) -> CapturedStrings:
        """Return the strings with the numbers from `begin` on; 1 for all."""
        with self._lock:  # what is there does not change, but may be copied to other arrays
            end = self._count
            arena, starts, lengths, hashes = self.arena, self.starts, self.lengths, self._hashes
            used = self._used
        first = int(starts[begin]) if begin < end else used
        arrays = {
            "bytes": arena[first:used],
            "lengths": lengths[begin:end],
            "hashes": hashes[begin:end],
        }
        return CapturedStrings(begin, end, Captured(arrays))

    @classmethod
    def loaded(cls, seed: int, saved: Sequence[CapturedStrings]) -> "Interner":
        """Return an interner with saved strings; raises Mismatch."""
        interner = cls()
        interner._seed = np.uint64(seed)
        parts = [Reader(each.state) for each in saved]
        for each, before in zip(saved, [1, *(each.end for each in saved)], strict=False):
            if each.begin != before:
                raise Mismatch("strings are missing")
        data = [part.array("bytes") for part in parts]
        lengths = [part.array("lengths") for part in parts]
        rows, size = sum(map(len, lengths)), sum(map(len, data))
        if (saved and rows != saved[-1].end - 1) or size != sum(
            int(each.sum()) for each in lengths
        ):
            raise Mismatch("strings are missing")
        interner._reserve(rows, size)
        if rows:
            interner.arena[:size] = np.concatenate(data)
            interner.lengths[1 : rows + 1] = np.concatenate(lengths)
            interner.starts[2 : rows + 1] = np.cumsum(interner.lengths[1:rows])
            interner._hashes[1 : rows + 1] = np.concatenate([p.array("hashes") for p in parts])
        interner._used, interner._count = size, rows + 1
        interning.rehash(interner._hashes, interner._count, interner._table)
        return interner

    def _reserve(self, rows: int, size: int) -> None:
        """Make room for so many more strings with so many bytes."""
        self.arena = _grown(self.arena, self._used + size)
        needed = self._count + rows
        self.starts = _grown(self.starts, needed)
        self.lengths = _grown(self.lengths, needed)
        self._hashes = _grown(self._hashes, needed)
        if 2 * needed > len(self._table):
            self._table = np.zeros(1 << (2 * needed).bit_length(), np.int64)
            interning.rehash(self._hashes, self._count, self._table)


class KnownStrings:
    """The strings that an interner has."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner

    def numbers(self, column: pa.Array) -> Ints:
        """Return the numbers of a column of strings, 0 for NULL, -1 where there is none."""
        return self._interner.known(column)


def _grown(array: Any, size: int) -> Any:
    """Return an array with the same beginning and room for `size`."""
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
