"""Runs: sorted updates that nobody changes, and indexes of them by other keys."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.shared import Shared

FEW = 1 << 14  # times or diffs that are kept one by one even if they are the same


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The hashes of a run's rows by another key, sorted, and their places."""

    hashes: Hashes
    places: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return self.hashes.nbytes + self.places.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Run(Shared):
    """Sorted and consolidated updates, with an index for each key but the first.

    Times and diffs may be of length 1 if they are the same for all.
    """

    hashes: Hashes
    words: Words
    times: Ints
    diffs: Ints
    indexes: tuple[Index, ...] = ()

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        own = self.hashes.nbytes + self.words.nbytes + self.times.nbytes + self.diffs.nbytes
        return own + sum(index.nbytes for index in self.indexes)

    def updates(self) -> Batch:
        """Return the updates in order."""
        shape = (len(self),)
        times, diffs = (np.broadcast_to(each, shape) for each in (self.times, self.diffs))
        return Batch(self.words, times, diffs)


def one_if_same(values: Ints) -> Ints:
    """Return one value if all are the same, which is smaller and faster to read."""
    if len(values) > FEW and values[0] == values[-1] and (values == values[0]).all():
        return values[:1].copy()
    return values
