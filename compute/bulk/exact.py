"""Sums of floats that are exact: one rounding at the end, whatever the order.

    >>> sum_float([(1e100, 1), (1.0, 3), (1e100, -1)])
    3.0

A value that occurs `d` times is added as its products with the powers of two of which `d` is made,
each of which is exact, and `math.fsum` adds them without error.
"""

import math
from collections.abc import Iterable
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


def sum_float_lists(lists: Any) -> pa.Array:
    """Return the sums of an Arrow array of lists of struct<x: double, d: int64>, NULL for none."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = lists.flatten()
    pairs = list(zip(entries.field("x").to_pylist(), entries.field("d").to_pylist(), strict=True))
    sums: list[float | None] = []
    at = 0
    for length in lists.value_lengths().to_pylist():
        sums.append(sum_float(pairs[at : at + length]) if length else None)
        at += length or 0
    return pa.array(sums, pa.float64())
