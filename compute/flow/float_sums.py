"""Sums of floats by group: exact, so that a change costs the same however large its group is.

The kernel adds floats of ordinary magnitudes to integers in the table of sums. Outliers, which are
very large, very small, infinite or NaN, are rare: their sums are Python integers, kept here for the
groups that have some.
"""

import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.kernels.float_sums import (
    FRACTION,
    GREATEST_EXPONENT,
    LEAST_EXPONENT,
    WORDS,
    round_sums,
)
from foreshore.compute.flow.sums import Points

_UNIT = 1074  # outliers are multiples of 2**-_UNIT


@dataclass(frozen=True, slots=True)
class _Outliers:
    """The sum of a group's finite outliers, and how many infinities and NaNs it has."""

    units: int = 0
    positive: int = 0
    negative: int = 0
    nans: int = 0

    def plus(self, value: float, diff: int) -> "_Outliers":
        """Return these with one `diff` times more."""
        units, positive, negative, nans = self.units, self.positive, self.negative, self.nans
        if math.isnan(value):
            nans += diff
        elif value == math.inf:
            positive += diff
        elif value == -math.inf:
            negative += diff
        else:
            top, bottom = value.as_integer_ratio()
            units += diff * (top << _UNIT) // bottom
        return _Outliers(units, positive, negative, nans)

    def sum_with(self, words: Ints) -> float:
        """Return the sum of these and of the other values, given in words, rounded once."""
        if self.nans or (self.positive and self.negative):
            return math.nan
        if self.positive or self.negative:
            return math.inf if self.positive else -math.inf
        others = int.from_bytes(words.astype("<i8").tobytes(), "little", signed=True)
        total = self.units + (others << (_UNIT - FRACTION))
        try:
            return float(Fraction(total, 1 << _UNIT))
        except OverflowError:
            return math.inf if total > 0 else -math.inf


_NONE = _Outliers()


class FloatSums:
    """The sums of one column of contributions, whose words are at `at` in the table of sums."""

    def __init__(self, key: int, word: int, at: int) -> None:
        self._key = key
        self._word = word  # of a contribution
        self._at = at
        self._outliers: dict[bytes, _Outliers] = {}
        self._staged: dict[bytes, _Outliers] = {}

    @property
    def nbytes(self) -> int:
        """Return the size of the outliers in memory, about."""
        return len(self._outliers) * (200 + 8 * self._key) + sys.getsizeof(self._outliers)

    def put(self, points: Points, order: Ints, updates: Batch, sums: Ints, out: Any) -> None:
        """Write the bits of the sum at each point, given sorted contributions."""
        bits = np.empty(len(points), np.int64)
        round_sums(sums, self._at, bits)
        found = order[_are_outliers(updates.words[order, self._word])]
        if len(found) or self._outliers:
            self._add_outliers(points, found, updates, sums, bits)
        out[:] = bits

    def _add_outliers(
        self, points: Points, found: Ints, updates: Batch, sums: Ints, bits: Ints
    ) -> None:
        changes: dict[bytes, list[tuple[int, float, int]]] = defaultdict(list)
        floats = updates.words[:, self._word].copy().view(np.float64)
        for at in found.tolist():
            key = updates.words[at, : self._key].tobytes()
            changes[key].append((int(updates.times[at]), float(floats[at]), int(updates.diffs[at])))
        now, place = _NONE, 0
        for p, row in enumerate(points.rows.tolist()):
            key = points.words[row, : self._key].tobytes()
            if points.first[p]:
                now, place = self._outliers.get(key, _NONE), 0
            group = changes.get(key, ())
            while place < len(group) and group[place][0] <= points.times[p]:
                now = now.plus(*group[place][1:])
                place += 1
            if now != _NONE:
                value = np.float64(now.sum_with(sums[p, self._at : self._at + WORDS]))
                bits[p] = value.view(np.int64)
            if now != self._outliers.get(key, _NONE) or key in self._staged:
                self._staged[key] = now

    def commit(self) -> None:
        """Keep what was staged."""
        for key, outliers in self._staged.items():
            if outliers == _NONE:
                self._outliers.pop(key, None)
            else:
                self._outliers[key] = outliers
        self._staged = {}

    def restore(self) -> None:
        """Forget what was staged."""
        self._staged = {}


def _are_outliers(bits: Ints) -> Any:
    exponents = (bits >> np.int64(52)) & 0x7FF
    least = np.where(bits << np.int64(1) == 0, 0, LEAST_EXPONENT)
    return (exponents < least) | (exponents > GREATEST_EXPONENT)
