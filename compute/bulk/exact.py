"""Sums and comoments of floats that are exact: one rounding at the end, whatever the order.

    >>> sum_float([(1e100, 1), (1.0, 3), (1e100, -1)])
    3.0

A value that occurs `d` times is added as its products with the powers of two of which `d` is made,
each of which is exact, and `math.fsum` adds them without error. Products of two floats need twice
the digits: comoments add them as integers, those of each power of two apart.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa


def sum_float(entries: Iterable[tuple[float, int]]) -> float:
    """Return the sum of `x * d` over (x, d), rounded once; NaN and infinities as PostgreSQL's."""
    finite: list[float] = []
    special = 0.0
    for x, d in entries:
        if not math.isfinite(x):
            special += x  # NaN, or infinities of one or of both signs
        elif d == 1:
            finite.append(x)
        else:
            finite.extend(_multiple(x, d))
    if special != 0.0:
        return special
    try:
        return math.fsum(finite)
    except OverflowError:  # a partial sum, or the sum itself
        total = sum(map(Fraction, finite), Fraction())
        try:
            return float(total)
        except OverflowError:
            return math.inf if total > 0 else -math.inf


def _multiple(x: float, d: int) -> Iterable[float]:
    sign, d = (1.0, d) if d > 0 else (-1.0, -d)
    shift = 0
    while d:
        if d & 1:
            try:
                yield sign * math.ldexp(x, shift)
            except OverflowError:
                yield from [sign * x] * (1 << shift)
        d >>= 1
        shift += 1


def comoment_float(entries: Iterable[tuple[float, float, int]]) -> float:
    """Return the sum of (x - mean(x)) * (y - mean(y)) * d over (x, y, d), rounded once.

    It is infinite if it is too large, and NaN if a value is not finite.
    """
    count = 0
    first, second, product = _Scaled(), _Scaled(), _Scaled()
    for x, y, d in entries:
        if not (math.isfinite(x) and math.isfinite(y)):
            return math.nan
        (a, i), (b, j) = _parts(x), _parts(y)
        count += d
        first.add(a * d, i)
        second.add(b * d, j)
        product.add(a * b * d, i + j)
    (a, i), (b, j), (c, k) = first.total(), second.total(), product.total()
    # count * sum(xy) - sum(x) * sum(y), both over the smaller power of two, divided by count
    unit = min(k, i + j)
    moment = (count * c << (k - unit)) - (a * b << (i + j - unit))
    if not moment:
        return 0.0
    try:
        return (moment << unit) / count if unit >= 0 else moment / (count << -unit)
    except OverflowError:
        return math.inf if (moment > 0) == (count > 0) else -math.inf


def _parts(x: float) -> tuple[int, int]:
    """Return the integer m and the power p with x = m * 2**p."""
    fraction, power = math.frexp(x)
    return int(fraction * 9007199254740992.0), power - 53


class _Scaled:
    """A sum of integers times powers of two."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}

    def add(self, value: int, power: int) -> None:
        """Add value * 2**power."""
        self.sums[power] = self.sums.get(power, 0) + value

    def total(self) -> tuple[int, int]:
        """Return the sum as an integer and its power of two."""
        least = min(self.sums, default=0)
        return sum(value << (power - least) for power, value in self.sums.items()), least


def sum_float_lists(lists: Any) -> pa.Array:
    """Return the sums of an Arrow array of lists of struct<x: double, d: int64>, NULL for none."""
    return _of_each(lists, ("x", "d"), sum_float)


def comoment_float_lists(lists: Any) -> pa.Array:
    """Return the comoments of lists of struct<x: double, y: double, d: int64>, NULL for none."""
    return _of_each(lists, ("x", "y", "d"), comoment_float)


def _of_each(lists: Any, fields: Sequence[str], compute: Callable[[Any], float]) -> pa.Array:
    """Return `compute` of each list of structs, given as tuples; NULL where there are none."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = lists.flatten()
    rows = list(zip(*(entries.field(name).to_pylist() for name in fields), strict=True))
    values: list[float | None] = []
    at = 0
    for length in lists.value_lengths().to_pylist():
        values.append(compute(rows[at : at + length]) if length else None)
        at += length or 0
    return pa.array(values, pa.float64())
