"""How many rows the values of an iteration have, and when those are too many to be counted.

Multiplicities are integers of 64 bits, that wrap around. What wraps comes back exactly when its
rows are deleted, so it is enough to know at which times some value had too many rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.flow.batch import Batch, Ints

MOST_ROWS = 1 << 53  # that a value may have, duplicates included


@dataclass(frozen=True, slots=True)
class Excess:
    """From each of `times` on, in order, whether a value has too many rows."""

    times: Ints
    exceeds: np.ndarray[tuple[int], np.dtype[np.bool_]]


class RowCounts:
    """The numbers of rows of several values, duplicates included, modulo 2^64."""

    def __init__(self, values: int) -> None:
        self._counts = [0] * values
        self._staged = self._counts

    @property
    def exceeds(self) -> bool:
        """Whether a value has too many rows."""
        return any(abs(count) > MOST_ROWS for count in self._counts)

    def step(self, updates: Sequence[Batch], before: int) -> list[Excess]:
        """Count the rows of a window; return each value that has too many at a time in it.

        `before` is the time before the window.
        """
        staged, found = [], []
        for count, each in zip(self._counts, updates, strict=True):
            staged.append(_wrapped(count + int(each.diffs.sum())))
            if abs(count) + np.abs(each.diffs.astype(np.float64)).sum() > MOST_ROWS:
                found.append(_excess(count, each, before))
        self._staged = staged
        return found

    def commit(self) -> None:
        """Keep what the last step staged."""
        self._counts = self._staged

    def restore(self) -> None:
        """Forget what the last step staged."""
        self._staged = self._counts

    def save(self, to: Writer) -> None:
        """Write the counts."""
        to.numbers("counts", *self._counts)

    def load(self, saved: Reader) -> None:
        """Take counts over."""
        self._counts = self._staged = saved.numbers("counts")


def changes(found: Sequence[Excess]) -> tuple[Ints, Ints]:
    """Return times and diffs of an update that is there while any value has too many rows."""
    times = np.unique(np.concatenate([each.times for each in found]))
    exceeds = np.zeros(len(times), np.bool_)
    for each in found:
        exceeds |= each.exceeds[np.searchsorted(each.times, times, "right") - 1]
    present = exceeds.astype(np.int64)
    diffs = present[1:] - present[:-1]
    changed = np.flatnonzero(diffs)
    return times[1:][changed], diffs[changed]


def _excess(count: int, updates: Batch, before: int) -> Excess:
    order = np.argsort(updates.times, kind="stable")
    times = updates.times[order]
    last = np.flatnonzero(np.append(times[1:] != times[:-1], True)) if len(times) else order
    counts = np.append(count, (count + np.cumsum(updates.diffs[order]))[last])
    exceeds = (counts < -MOST_ROWS) | (counts > MOST_ROWS)
    return Excess(np.append(before, times[last]), exceeds)


def _wrapped(count: int) -> int:
    return (count + (1 << 63)) % (1 << 64) - (1 << 63)
