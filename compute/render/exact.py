"""Exact sums and comoments of floats: one rounding at the end, independent of the order.

    >>> sum_float([(1e100, 1), (1.0, 3), (1e100, -1)])
    3.0

A value with multiplicity `d` is added as its products with the powers of two in `d`, each of which
is exact. `math.fsum` adds them without error. Products of two floats need twice the digits:
comoments add them as integers, separately for each power of two.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DIGITS = 53  # of a float, in bits
LIMB = 18  # bits of a limb; leaves room for products of three
MOST = 1 << 26  # entries
MANY = 64  # entries above which arrays are faster


def sum_float(entries: Iterable[tuple[float, int]]) -> float:
    """Return the sum of `x * d` over (x, d), rounded once; NaN and infinities as PostgreSQL's."""
    single: list[float] = []
    multiple: list[tuple[float, int]] = []
    special = 0.0
    for x, d in entries:
        if not math.isfinite(x):
            special += x  # NaN, or infinities of one or both signs
        elif d == 1:
            single.append(x)
        else:
            multiple.append((x, d))
    if special != 0.0:
        return special
    try:
        return math.fsum(chain(single, *(_multiple(x, d) for x, d in multiple)))
    except OverflowError:  # of a product, a partial sum, or the sum itself
        total = sum(map(Fraction, single), Fraction())
        total += sum(Fraction(x) * d for x, d in multiple)
        try:
            return float(total)
        except OverflowError:
            return math.inf if total > 0 else -math.inf


def _multiple(x: float, d: int) -> Iterable[float]:
    """Yield the products of x and the powers of two in d; raises OverflowError."""
    sign, d = (1.0, d) if d > 0 else (-1.0, -d)
    shift = 0
    while d:
        if d & 1:
            yield sign * math.ldexp(x, shift)
        d >>= 1
        shift += 1


# --- comoments ---------------------------------------------------------------------------------


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
    return _moment(count, first, second, product)


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


def _parts(x: float) -> tuple[int, int]:
    """Return the integer m and the power p with x = m * 2**p."""
    fraction, power = math.frexp(x)
    return int(fraction * 2.0**DIGITS), power - DIGITS


def _moment(count: int, first: _Scaled, second: _Scaled, product: _Scaled) -> float:
    """Return sum(xy) - sum(x) * sum(y) / count, rounded."""
    (a, i), (b, j), (c, k) = first.total(), second.total(), product.total()
    unit = min(k, i + j)
    return rounded_moment(count, a * b << (i + j - unit), c << (k - unit), unit)


def rounded_moment(count: int, squares: int, products: int, unit: int) -> float:
    """Return products - squares / count, rounded, of integers times 2**unit."""
    moment = count * products - squares
    if not moment:
        return 0.0
    try:
        return (moment << unit) / count if unit >= 0 else moment / (count << -unit)
    except OverflowError:
        return math.inf if (moment > 0) == (count > 0) else -math.inf


def _comoment_of_many(x: Floats, y: Floats, d: Integers) -> float:
    """Return what `comoment_float` does, for arrays in which no product of limbs overflows."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    (xs, i), (ys, j) = _limbs(x), _limbs(y)
    ones = [np.ones(len(d), np.int64)]
    return _moment(
        int(d.sum()),
        _sums(xs, ones, d, i),
        _sums(ones, ys, d, j),
        _sums(xs, ys, d, i + j),
    )


def _limbs(x: Floats) -> tuple[list[Integers], Integers]:
    """Return the limbs, highest first, that make up `_parts` of each value, and the powers."""
    fractions, powers = np.frexp(x)
    whole = (fractions * 2.0**DIGITS).astype(np.int64)
    mask = (1 << LIMB) - 1
    limbs = [whole >> (2 * LIMB), (whole >> LIMB) & mask, whole & mask]
    return limbs, powers.astype(np.int64) - DIGITS


def _sums(xs: list[Integers], ys: list[Integers], d: Integers, powers: Integers) -> _Scaled:
    """Return the sum of x * y * d * 2**power, of numbers given as their limbs."""
    order = np.argsort(powers, kind="stable")
    starts = np.flatnonzero(np.diff(powers[order], prepend=powers[order[0]] - 1))
    scaled = _Scaled()
    weighted = [(x * d)[order] for x in xs]
    others = [y[order] for y in ys]
    for n, x in enumerate(reversed(weighted)):
        for m, y in enumerate(reversed(others)):
            totals = np.add.reduceat(x * y, starts)
            for start, total in zip(starts.tolist(), totals.tolist(), strict=True):
                scaled.add(total, int(powers[order[start]]) + LIMB * (n + m))
    return scaled


# --- of lists ----------------------------------------------------------------------------------


def sum_float_lists(lists: Any) -> pa.Array:
    """Return the sums of an Arrow array of lists of struct<x: double, d: int64>, NULL for none."""
    return _of_each(lists, ("x", "d"), _sum)


def _sum(x: Floats, d: Integers) -> float:
    return sum_float(zip(x.tolist(), d.tolist(), strict=True))


def comoment_float_lists(lists: Any) -> pa.Array:
    """Return the comoments of lists of struct<x: double, y: double, d: int64>, NULL for none."""
    return _of_each(lists, ("x", "y", "d"), _comoment)


def _comoment(x: Floats, y: Floats, d: Integers) -> float:
    if len(d) >= MANY and len(d) * int(np.abs(d).max()) < MOST:
        return _comoment_of_many(x, y, d)
    return comoment_float(zip(x.tolist(), y.tolist(), d.tolist(), strict=True))


def _of_each(lists: Any, fields: Sequence[str], compute: Callable[..., float]) -> pa.Array:
    """Return `compute` of the fields of each list of structs, as arrays; NULL where it is empty."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = lists.flatten()
    columns = [entries.field(name).to_numpy(zero_copy_only=False) for name in fields]
    values: list[float | None] = []
    at = 0
    for length in lists.value_lengths().to_pylist():
        end = at + (length or 0)
        values.append(compute(*(column[at:end] for column in columns)) if length else None)
        at = end
    return pa.array(values, pa.float64())
