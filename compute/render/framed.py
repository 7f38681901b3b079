"""Exact sums and comoments of floats over many frames of the same rows.

Floats are integers of a common unit. The difference of two sums from the first row on is the exact
sum over the rows between, which is rounded once, as in `exact.py`.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

UNIT = 1 << 1074  # of which each float is a multiple
Ranges = Iterable[tuple[int, int]]  # the first row of each, and the one after the last


def units_of(value: float) -> int:
    """Return a finite float in units."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (UNIT // denominator)


class _Sums:
    """Sums from the first row on."""

    def __init__(self, values: Iterable[int]) -> None:
        self._sums = list(accumulate(values, initial=0))

    def over(self, ranges: Ranges) -> int:
        return sum(self._sums[high] - self._sums[low] for low, high in ranges)


class FloatSums:
    """Sums of floats over frames; NULLs do not count."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self._count = _Sums(value is not None for value in values)
        self._total = _Sums(
            units_of(v) if v is not None and math.isfinite(v) else 0 for v in values
        )
        self._special = [
            _Sums(v is not None and test(v) for v in values)
            for test in (math.isnan, lambda v: v == math.inf, lambda v: v == -math.inf)
        ]

    def over(self, ranges: Ranges) -> float | None:
        """Return the sum over the rows in `ranges`; NULL if there are none."""
        ranges = list(ranges)
        if not self._count.over(ranges):
            return None
        nans, highs, lows = (special.over(ranges) for special in self._special)
        if nans or (highs and lows):
            return math.nan
        if highs or lows:
            return math.inf if highs else -math.inf
        return _ratio(self._total.over(ranges), UNIT)


class FloatComoments:
    """Comoments of pairs of floats over frames; pairs with a NULL do not count."""

    def __init__(self, xs: Sequence[float | None], ys: Sequence[float | None]) -> None:
        pairs = [None if x is None or y is None else (x, y) for x, y in zip(xs, ys, strict=True)]
        finite = [
            (units_of(pair[0]), units_of(pair[1]))
            if pair is not None and all(map(math.isfinite, pair))
            else None
            for pair in pairs
        ]
        self._count = _Sums(pair is not None for pair in pairs)
        self._finite = _Sums(pair is not None for pair in finite)
        self._first = _Sums(pair[0] if pair else 0 for pair in finite)
        self._second = _Sums(pair[1] if pair else 0 for pair in finite)
        self._product = _Sums(pair[0] * pair[1] if pair else 0 for pair in finite)

    def over(self, ranges: Ranges) -> float | None:
        """Return the comoment of the pairs in `ranges`; NULL if there are none."""
        ranges = list(ranges)
        count = self._count.over(ranges)
        if not count:
            return None
        if self._finite.over(ranges) != count:
            return math.nan
        first, second = self._first.over(ranges), self._second.over(ranges)
        moment = count * self._product.over(ranges) - first * second
        return _ratio(moment, count * UNIT * UNIT)


def _ratio(numerator: int, denominator: int) -> float:
    """Return a quotient rounded once, infinite if it is too large."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


# --- of lists ------------------------------------------------------------------------------------


def framed_sums(lists: Any) -> pa.Array:
    """Return, for lists of struct<n, x, lo, hi> in order, the lists of sums from `lo` to `hi`."""
    return _of_each(lists, lambda rows: FloatSums([row["x"] for row in rows]))


def framed_comoments(lists: Any) -> pa.Array:
    """Return, for lists of struct<n, x, y, lo, hi> in order, the lists of comoments."""
    return _of_each(
        lists, lambda rows: FloatComoments([r["x"] for r in rows], [r["y"] for r in rows])
    )


def _of_each(lists: Any, sums_of: Any) -> pa.Array:
    results: list[list[float | None] | None] = []
    for rows in lists.to_pylist():
        if rows is None:
            results.append(None)
            continue
        sums = sums_of(rows)
        results.append(
            [None if row["lo"] is None else sums.over([(row["lo"] - 1, row["hi"])]) for row in rows]
        )
    return pa.array(results, pa.list_(pa.float64()))
