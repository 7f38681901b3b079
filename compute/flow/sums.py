"""Tables of sums by group: a hash table from a key's words to a few integers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foreshore.compute.checkpoint.state import Mismatch, Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.kernels.float_sums import PRODUCT_WORDS, WORDS
from foreshore.compute.presence import Bits


def width_of_sum(kind: int) -> int:
    """Return how many words a sum has."""
    match kind:
        case groups.FLOAT:
            return WORDS
        case groups.COMOMENT:
            return 2 * WORDS + PRODUCT_WORDS
    return kind


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of change (`kernels/groups.py`): rows of `words`, which begin with the key."""

    rows: Ints
    times: Ints
    first: Ints
    hashes: Hashes
    words: Words

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.rows)

    @property
    def last(self) -> Ints:
        """Return which points are the last of their group."""
        last = np.ones(len(self.rows), np.bool_)
        last[:-1] = self.first[1:]
        return last  # type: ignore[return-value]


def _slots(count: int) -> int:
    """Return how many slots a table of `count` groups has at least: a quarter are free."""
    return count + count // 3 + 1


class SumTable:
    """Sums by key, of `key` words; `kinds` are those of the sums after that of the diffs."""

    def __init__(self, key: int, kinds: Ints, *, always: bool = False) -> None:
        self._key = key
        self._kinds = kinds
        self._always = always
        self._count = 0
        self._width = 1 + sum(map(width_of_sum, kinds.tolist()))
        self._allocate(16)
        self._staged: tuple[Points, Ints, int] | None = None

    def _allocate(self, size: int) -> None:
        self._hashes = np.zeros(size, np.uint64)
        self._keys = np.zeros((size, self._key), np.int64)
        self._used = np.zeros(size, np.bool_)
        self._sums = np.zeros((size, self._width), np.int64)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        arrays = (self._hashes, self._keys, self._used, self._sums)
        return sum(array.nbytes for array in arrays)

    def __len__(self) -> int:
        """Return the number of groups."""
        return self._count

    def size(self, name: str) -> ArrangementSize:
        """Return the size as that of an arrangement called `name`."""
        return ArrangementSize(name, len(self), 1, self.nbytes)

    def at(self, points: Points, order: Ints, hashes: Hashes, updates: Batch) -> Ints:
        """Return the sums at each point, given sorted updates: key and contributions.

        What they come to is staged.
        """
        sums = np.empty((len(points), self._width), np.int64)
        groups.accumulate(
            points.rows, points.times, points.first, points.hashes, points.words, self._key,
            order, hashes, updates.words, updates.times, updates.diffs, self._kinds,
            self._hashes, self._keys, self._used, self._sums, sums,
        )  # fmt: skip
        self._staged = points, sums, 0
        return sums

    def stage(self, points: Points, begin: int) -> None:
        """Stage given sums at each point: the words of `points` from `begin` on."""
        self._staged = points, points.words, begin

    def commit(self) -> None:
        """Store what is staged."""
        if self._staged is None:
            return
        points, sums, begin = self._staged
        self._staged = None
        needed = _slots(self._count + int(np.count_nonzero(points.first)))
        if needed > len(self._hashes):
            self._grow(1 << needed.bit_length())
        self._count = groups.store(
            points.rows, points.last, points.hashes, points.words, self._key, sums, begin,
            self._always, self._hashes, self._keys, self._used, self._sums, self._count,
        )  # fmt: skip

    def restore(self) -> None:
        """Forget what is staged."""
        self._staged = None

    def forget(self, gone: Callable[[Words], Bits]) -> None:
        """Forget the groups for whose keys `gone` returns true."""
        assert self._staged is None, "a step is under way"
        kept = self._used & ~gone(self._keys)
        old = self._hashes, self._keys, kept, self._sums
        self._count = int(np.count_nonzero(kept))
        self._allocate(max(16, 1 << (_slots(self._count) - 1).bit_length()))
        groups.rehash(*old, self._hashes, self._keys, self._used, self._sums)

    def save(self, to: Writer) -> None:
        """Write the groups that are there."""
        at = np.flatnonzero(self._used)
        to.numbers("groups", len(at), len(self._hashes), self._count)
        to.array("hashes", self._hashes[at])
        to.array("keys", self._keys[at])
        to.array("sums", self._sums[at])

    def load(self, saved: Reader) -> None:
        """Take saved groups over."""
        groups_there, size, self._count = saved.numbers("groups")
        hashes = saved.array("hashes")
        keys, sums = saved.array("keys", self._key), saved.array("sums", self._width)
        fits = len(hashes) == len(keys) == len(sums) == groups_there
        if not fits or _slots(groups_there) > size:
            raise Mismatch("a table of sums has another size")
        self._allocate(size)
        used = np.ones(groups_there, np.bool_)
        groups.rehash(hashes, keys, used, sums, self._hashes, self._keys, self._used, self._sums)

    def _grow(self, size: int) -> None:
        old = self._hashes, self._keys, self._used, self._sums
        self._allocate(size)
        groups.rehash(*old, self._hashes, self._keys, self._used, self._sums)
