"""Sums and comoments of floats by group: exact, so that a change costs the same in any group.

The kernel adds floats of ordinary magnitudes to integers in the table of sums. Outliers, which are
very large, very small, infinite or NaN, are rare: their sums are Python integers, kept here for the
groups that have some.
"""

import json
import math
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.kernels.float_sums import (
    FRACTION,
    GREATEST_EXPONENT,
    LEAST_EXPONENT,
    PRODUCT_WORDS,
    WORDS,
    round_sums,
)
from foreshore.compute.flow.sums import Points
from foreshore.compute.render.exact import rounded_moment

_UNIT = 1074  # outliers are multiples of 2**-_UNIT


@dataclass(frozen=True, slots=True)
class _Outliers:
    """The sums of a group's outliers: of x, of y and of their products; of x alone for a sum.

    Of x, infinities and NaNs are counted; for a comoment it is enough that there are some.
    """

    x: int = 0  # in units of 2**-_UNIT, as y; products in units of 2**(-2 * _UNIT)
    y: int = 0
    products: int = 0
    positive: int = 0
    negative: int = 0
    nans: int = 0

    def plus(self, x: float, y: float, diff: int) -> "_Outliers":
        """Return these with one `diff` times more."""
        if math.isfinite(x) and math.isfinite(y):
            a, b = _units(x), _units(y)
            finite = self.x + diff * a, self.y + diff * b, self.products + diff * a * b
            return _Outliers(*finite, self.positive, self.negative, self.nans)
        positive, negative, nans = self.positive, self.negative, self.nans
        if x == math.inf:
            positive += diff
        elif x == -math.inf:
            negative += diff
        else:
            nans += diff
        return _Outliers(self.x, self.y, self.products, positive, negative, nans)


def _units(value: float) -> int:
    top, bottom = value.as_integer_ratio()
    return (top << _UNIT) // bottom


def _integer(words: Ints) -> int:
    return int.from_bytes(words.astype("<i8").tobytes(), "little", signed=True)


_NONE = _Outliers()


class _WithOutliers(ABC):
    """Sums of some contributions, which begin at `word`; the sums are at `at` in the table."""

    contributions: int

    def __init__(self, key: int, word: int, at: int) -> None:
        self._key = key
        self._word = word
        self._at = at
        self._outliers: dict[bytes, _Outliers] = {}
        self._staged: dict[bytes, _Outliers] = {}

    @property
    def nbytes(self) -> int:
        """Return the size of the outliers in memory, about."""
        return len(self._outliers) * (300 + 8 * self._key) + sys.getsizeof(self._outliers)

    @abstractmethod
    def put(self, points: Points, order: Ints, updates: Batch, sums: Ints, out: Any) -> None:
        """Write the bits of the result at each point, given sorted contributions."""

    def _states(self, points: Points, order: Ints, updates: Batch) -> Iterator[_Outliers]:
        """Yield the outliers of each point's group, or nothing if there are none at all.

        What they come to is staged.
        """
        bits = updates.words[:, self._word : self._word + self.contributions]
        found = order[_are_outliers(bits[order]).any(axis=1)]
        if not len(found) and not self._outliers:
            return
        changes: dict[bytes, list[tuple[int, float, float, int]]] = defaultdict(list)
        floats = np.ascontiguousarray(bits[found]).view(np.float64)
        for row, at in enumerate(found.tolist()):
            key = updates.words[at, : self._key].tobytes()
            pair = float(floats[row, 0]), float(floats[row, -1])
            changes[key].append((int(updates.times[at]), *pair, int(updates.diffs[at])))
        now, place = _NONE, 0
        for p, row in enumerate(points.rows.tolist()):
            key = points.words[row, : self._key].tobytes()
            if points.first[p]:
                now, place = self._outliers.get(key, _NONE), 0
            group = changes.get(key, ())
            while place < len(group) and group[place][0] <= points.times[p]:
                now = now.plus(*group[place][1:])
                place += 1
            if now != self._outliers.get(key, _NONE) or key in self._staged:
                self._staged[key] = now
            yield now

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

    def save(self, to: Writer) -> None:
        """Write the outliers."""
        found = [
            (key.hex(), [str(each) for each in astuple(outliers)])
            for key, outliers in self._outliers.items()
        ]
        to.text("outliers", json.dumps(found).encode())

    def load(self, saved: Reader) -> None:
        """Take outliers over."""
        self._outliers = {
            bytes.fromhex(key): _Outliers(*map(int, values))
            for key, values in json.loads(saved.text("outliers"))
        }


class FloatSums(_WithOutliers):
    """The sums of one column of contributions."""

    contributions = 1

    def put(self, points: Points, order: Ints, updates: Batch, sums: Ints, out: Any) -> None:
        """Write the bits of the sum at each point, given sorted contributions."""
        bits = np.empty(len(points), np.int64)
        round_sums(sums, self._at, bits)
        for p, state in enumerate(self._states(points, order, updates)):
            if state != _NONE:
                value = np.float64(_sum_with(state, sums[p, self._at : self._at + WORDS]))
                bits[p] = value.view(np.int64)
        out[:] = bits


def _sum_with(outliers: _Outliers, words: Ints) -> float:
    """Return the sum of outliers and of the other values, given in words, rounded once."""
    if outliers.nans or (outliers.positive and outliers.negative):
        return math.nan
    if outliers.positive or outliers.negative:
        return math.inf if outliers.positive else -math.inf
    total = outliers.x + (_integer(words) << (_UNIT - FRACTION))
    try:
        return float(Fraction(total, 1 << _UNIT))
    except OverflowError:
        return math.inf if total > 0 else -math.inf


class Comoments(_WithOutliers):
    """The comoments of two columns of contributions; the word before the sums is their count."""

    contributions = 2

    def put(self, points: Points, order: Ints, updates: Batch, sums: Ints, out: Any) -> None:
        """Write the bits of the comoment at each point, given sorted contributions."""
        states = list(self._states(points, order, updates)) or [_NONE] * len(points)
        values = np.zeros(len(points), np.float64)
        for p, state in enumerate(states):
            if sums[p, self._at - 1]:
                values[p] = self._comoment(state, sums[p])
        out[:] = values.view(np.int64)

    def _comoment(self, outliers: _Outliers, sums: Ints) -> float:
        if outliers.positive or outliers.negative or outliers.nans:
            return math.nan
        at, count = self._at, int(sums[self._at - 1])
        x, y = _integer(sums[at : at + WORDS]), _integer(sums[at + WORDS : at + 2 * WORDS])
        products = _integer(sums[at + 2 * WORDS : at + 2 * WORDS + PRODUCT_WORDS])
        if outliers == _NONE:
            return rounded_moment(count, x * y, products, -2 * FRACTION)
        shift = _UNIT - FRACTION
        x, y = outliers.x + (x << shift), outliers.y + (y << shift)
        products = outliers.products + (products << 2 * shift)
        return rounded_moment(count, x * y, products, -2 * _UNIT)


def _are_outliers(bits: Ints) -> Any:
    exponents = (bits >> np.int64(52)) & 0x7FF
    least = np.where(bits << np.int64(1) == 0, 0, LEAST_EXPONENT)
    return (exponents < least) | (exponents > GREATEST_EXPONENT)
