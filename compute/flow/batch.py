"""Batches: updates as rows in words, with their times and diffs, in any order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshore.compute.flow.shared import Shared

Words = npt.NDArray[np.int64]  # of two dimensions: rows, words
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Shared):
    """Updates; nobody changes the arrays."""

    words: Words
    times: Ints
    diffs: Ints

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return int(self.words.nbytes + self.times.nbytes + self.diffs.nbytes)

    @property
    def width(self) -> int:
        """Return the number of words of a row."""
        return int(self.words.shape[1])

    def take(self, places: Any) -> "Batch":
        """Return the updates at `places`, in a slice, or where a mask is set."""
        if isinstance(places, slice):
            picked = self.words[places], self.times[places], self.diffs[places]
            return Batch(*map(np.ascontiguousarray, picked))
        if places.dtype == np.bool_:
            places = np.flatnonzero(places)
        return Batch(self.words.take(places, 0), self.times.take(places), self.diffs.take(places))

    def alone(self) -> "Batch":
        """Return the updates, copied if they are the smaller part of some arrays."""
        base = self.words.base
        if not isinstance(base, np.ndarray) or base.nbytes <= 2 * self.words.nbytes:
            return self
        return Batch(self.words.copy(), self.times.copy(), self.diffs.copy())

    def negated(self) -> "Batch":
        """Return the updates with opposite diffs."""
        return Batch(self.words, self.times, -self.diffs)


@lru_cache(256)
def empty(width: int) -> Batch:
    """Return no updates."""
    none = np.empty(0, np.int64)
    return Batch(np.empty((0, width), np.int64), none, none)


def concat(parts: Sequence[Batch], width: int) -> Batch:
    """Return the updates of all `parts`, rows of `width` words."""
    some = [part for part in parts if len(part)]
    if len(some) == 1:
        return some[0]
    if not some:
        return empty(width)
    return Batch(
        np.concatenate([part.words for part in some]),
        np.concatenate([part.times for part in some]),
        np.concatenate([part.diffs for part in some]),
    )
