"""Sorting many updates by key into the order of a run, a block at a time."""

import numpy as np

from foreshore.compute.flow.batch import Hashes, Ints, Words
from foreshore.compute.flow.kernels import scatter
from foreshore.errors import InternalError
from foreshore.update import Timestamp

BLOCK = 1 << 15  # rows that are distributed at once
ROWS = 1 << 14  # of a partition, so that it fits in the processor's cache
MOST_BITS = 10  # of a hash, by which partitions differ

_NO_EXTRA = np.empty((0, 2), np.int64)


def partitioned(words: Words, key: Ints, seed: np.uint64) -> tuple[Hashes, Words]:
    """Return rows, with the hashes of their words at `key`, in an order near that of the hashes."""
    sorter = Sorter(seed, len(words))
    sorter.count(words, key)
    sorter.begin(words.shape[1])
    one = np.ones(1, np.int64)
    sorter.add(words, one, one, key)
    return sorter.contents


class Sorter:
    """Sorts updates by the words at a key: all of them are counted first, then added."""

    def __init__(self, seed: np.uint64, most: int) -> None:
        """Make a sorter of at most `most` updates."""
        self._seed = seed
        bits = min(max((most // ROWS).bit_length(), 1), MOST_BITS)
        self._shift = 64 - bits
        self._counts = np.zeros(1 << bits, np.int64)
        self._extra = _NO_EXTRA
        self._time: Timestamp = 0  # of all, as long as there is no extra
        self._used = 0

    def count(self, words: Words, key: Ints) -> None:
        """Count a block of rows, of which only the words at `key` matter."""
        scatter.count_rows(words, key, self._seed, self._shift, self._counts)

    def begin(self, width: int) -> None:
        """End counting; rows of `width` words are added then."""
        # Arrays of numba are not in large pages, and cost several times more to write first.
        self._rows = int(self._counts.sum())
        self._hashes = np.empty(self._rows, np.uint64)
        self._words = np.empty((self._rows, width), np.int64)
        self._at = np.cumsum(self._counts) - self._counts

    def add(self, words: Words, times: Ints, diffs: Ints, key: Ints) -> None:
        """Add a block of updates; times and diffs may be of length 1: the same for all."""
        if self._used + len(words) > self._rows:  # the kernel would write beyond its arrays
            raise InternalError("more rows were added than counted")
        if not self._used:
            self._time = int(times[0])
        if not len(self._extra) and not ((diffs == 1).all() and (times == self._time).all()):
            self._extra = np.empty((self._rows, 2), np.int64)
            self._extra[:] = self._time, 1
        scatter.scatter(
            words, times, diffs, key, self._seed, self._shift,
            self._at, self._hashes, self._words, self._extra,
        )  # fmt: skip
        self._used += len(words)

    @property
    def contents(self) -> tuple[Hashes, Words]:
        """Return hashes and words, in order of the partitions."""
        return self._hashes, self._words

    def sorted(self, since: Timestamp) -> tuple[Hashes, Words, Ints, Ints]:
        """Return hashes, words, times and diffs in order, times moved to `since`.

        Times and diffs are of length 1 if they are the same for all.
        """
        assert self._used == self._rows, (self._used, self._rows)
        times = np.empty(self._rows if len(self._extra) else 1, np.int64)
        diffs = np.zeros(self._rows, np.int64)
        size = scatter.sort_partitions(
            self._at, self._shift, self._time, since, self._seed,
            self._hashes, self._words, self._extra, times, diffs,
        )  # fmt: skip
        if not len(self._extra):
            diffs = diffs[:size] + 1 if size < self._rows else np.ones(1, np.int64)
        end = max(size, 1)
        return self._hashes[:size], self._words[:size], times[:end], diffs[:end]
