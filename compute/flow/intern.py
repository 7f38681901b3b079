"""The interner: each distinct byte string of a replica has a number, which stands for it in rows.

Numbers begin with 1; 0 stands for no string (a NULL). Any thread may add strings, one at a time,
and read those whose numbers it has.

Strings that no state names any more are *forgotten* in a cycle that `compute/replica/strings.py`
drives:

    begin_forgetting    from here on, whatever is interned is marked
    mark                the numbers in the rows of all state
    forget              the strings without a mark; new ones of about their length take their places

Whoever keeps numbers apart from state, as memos do, looks at `generation`, which moves at both
ends: a step that goes on at the beginning of a cycle may keep some that it was given before.
"""

import secrets
from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.compute.checkpoint.engine import CapturedStrings
from foreshore.compute.checkpoint.state import Captured, Mismatch, Reader
from foreshore.compute.flow.kernels import interning
from foreshore.compute.flow.shared import Shared

AT_ONCE = 1 << 16  # strings
CLASSES = 512  # of lengths
# A cycle is worth while if there are twice as many strings as after the last one, but at least:
LEAST_STRINGS = 1 << 16
LEAST_BYTES = 16 << 20

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
        self._free = np.zeros(CLASSES, np.int64)
        self._counts = np.array([0, 1, 0, 0, 0])  # see `interning.intern`
        # While a cycle is on: what was interned since its beginning, and what was there before and
        # is in state.
        self._marks: npt.NDArray[np.uint8] | None = None
        self._named = np.zeros(0, np.uint8)
        self._kept = 0, 0  # strings and bytes after the last cycle
        self.generation = 0  # of numbers
        self._known: dict[bytes, int] = {}  # of constants
        self._pinned: list[ref[npt.NDArray[np.int64]]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of strings."""
        return int(self._counts[2])

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

    def pin(self, words: Ints) -> None:
        """Keep the strings of these rows as long as the array is there, which is of no state."""
        with self._lock:
            self._pinned = [each for each in self._pinned if each() is not None]
            self._pinned.append(ref(words))

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
                interning.intern(
                    data, offsets[start : stop + 1], present[start:stop], self._seed,
                    self.arena, self.starts, self.lengths, self._hashes, self._table,
                    self._free, self._counts, adding, ids[start:stop],
                )  # fmt: skip
                if self._marks is not None and adding:
                    self._marks[ids[start:stop]] = 1
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
        """Return the strings with the numbers from `begin` on; 1 for all.

        All are returned if one has taken the number of a forgotten one since the last call. Those
        that were forgotten have a length of -1 less what it was.
        """
        with self._lock:  # the arena may change only where nobody reads it
            used, end = (int(count) for count in self._counts[:2])
            begin = 1 if self._counts[4] else begin
            self._counts[4] = 0
            first = int(self.starts[begin]) if begin < end else used
            arrays = {
                "bytes": self.arena[first:used],
                "lengths": self.lengths[begin:end].copy(),
                "hashes": self._hashes[begin:end].copy(),
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
        if saved and rows != saved[-1].end - 1:
            raise Mismatch("strings are missing")
        interner._reserve(rows, size)
        if rows:
            interner.arena[:size] = np.concatenate(data)
            interner.lengths[1 : rows + 1] = np.concatenate(lengths)
            interner._hashes[1 : rows + 1] = np.concatenate([p.array("hashes") for p in parts])
        interning.restore(
            interner.lengths[: rows + 1], interner.starts, interner._hashes, interner._table,
            interner._free, interner._counts,
        )  # fmt: skip
        if interner._counts[0] != size:
            raise Mismatch("strings are missing")
        interner._kept = int(interner._counts[2]), int(interner._counts[3])
        return interner

    # --- forgetting

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many strings that a cycle is worth while."""
        strings, size = (int(count) for count in self._counts[2:4])
        return strings > max(2 * self._kept[0], LEAST_STRINGS) or size > max(
            2 * self._kept[1], LEAST_BYTES
        )

    def begin_forgetting(self) -> None:
        """Mark what is interned from now on."""
        with self._lock:
            self._marks = np.zeros(len(self.lengths), np.uint8)
            self._named = np.zeros(int(self._counts[1]), np.uint8)
            self.generation += 1

    def mark(self, words: npt.NDArray[Any]) -> None:
        """Mark the numbers in an array of rows, those in columns of others that look like numbers.

        Any thread may call it during a cycle.
        """
        if words.dtype != np.int64 or not words.size:
            return
        rows = np.ascontiguousarray(words.reshape(len(words), -1))
        if not rows.flags.writeable:
            rows = rows.copy()  # the kernel is compiled for others
        with self._lock:  # arrays may be exchanged for larger ones
            lengths = self.lengths[: int(self._counts[1])]
        interning.mark(rows, lengths, self._named)

    def forget(self) -> int:
        """Forget what has no mark, and end the cycle; return how many strings that is."""
        for each in list(self._pinned):
            if (words := each()) is not None:
                self.mark(words)
        with self._lock:
            assert self._marks is not None
            known = [number for number in list(self._known.values()) if number < len(self._named)]
            self._named[known] = 1
            self.generation += 1
            self._marks[: len(self._named)] |= self._named
        gone, end = 0, len(self._named)
        for start in range(1, end, AT_ONCE):  # so that others wait for a moment only
            with self._lock:
                before = len(self)
                interning.forget(
                    start, min(start + AT_ONCE, end), self._marks, self.lengths, self._hashes,
                    self._table, self._free, self._counts,
                )  # fmt: skip
                gone += before - len(self)
        with self._lock:
            self._marks = None
            self._kept = len(self), int(self._counts[3])
        return gone

    def keep_all(self) -> None:
        """End the cycle, if one is on, without forgetting anything."""
        with self._lock:
            self._marks = None

    def _reserve(self, rows: int, size: int) -> None:
        """Make room for so many more strings with so many bytes."""
        used, count = (int(count) for count in self._counts[:2])
        self.arena = _grown(self.arena, used + size + size // 8 + 8 * rows)
        needed = count + rows
        self.starts = _grown(self.starts, needed)
        self.lengths = _grown(self.lengths, needed)
        self._hashes = _grown(self._hashes, needed)
        if self._marks is not None:
            self._marks = _grown(self._marks, needed)
        if 2 * needed > len(self._table):
            table = np.zeros(1 << (2 * needed).bit_length(), np.int64)
            interning.rehash(self.lengths, self._hashes, count, table)
            self._table = table


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
