"""Ordered-set aggregates as functions over the sorted array of a group's values.

    percentile_cont(0.5) WITHIN GROUP (ORDER BY x)  =  percentile_cont(0.5, array_agg(x ORDER BY x))

The arrays have no NULLs. `sql/bind/ordered_sets.py` composes the aggregates.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from foreshore.expr.functions.arrays import by_elements
from foreshore.expr.functions.function import hidden
from foreshore.expr.functions.intervals import between_intervals
from foreshore.expr.functions.rows import fail
from foreshore.expr.functions.temporal import data_rows

NAMES = frozenset(("percentile_cont", "percentile_disc", "mode"))
Interpolate = Callable[[Any, Any, float], Any]


def is_ordered_set(name: str) -> bool:
    """Return whether `name` is an aggregate that requires WITHIN GROUP."""
    return name in NAMES


def _checked(fraction: float) -> float:
    if not 0 <= fraction <= 1:
        raise fail("22003", f"percentile value {fraction:g} is not between 0 and 1")
    return fraction


def _discrete(fraction: float, values: Sequence[Any]) -> Any:
    """Return the first value whose position in the order is at or beyond `fraction`."""
    place = math.ceil(_checked(fraction) * len(values))
    return values[max(place, 1) - 1] if values else None


def _continuous(interpolate: Interpolate) -> Callable[[float, Sequence[Any]], Any]:
    """Return the value at a fraction of the order, between its neighbours."""

    def compute(fraction: float, values: Sequence[Any]) -> Any:
        place = _checked(fraction) * (len(values) - 1)
        if not values:
            return None
        low, high = math.floor(place), math.ceil(place)
        if low == high:
            return values[low]
        return interpolate(values[low], values[high], place - low)

    return compute


def _between_floats(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _of_each(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the values at several fractions, NULL for a NULL; NULL for a group without values."""

    def each(fractions: Sequence[float | None], values: Sequence[Any]) -> Any:
        if not values:
            return None
        return tuple(None if f is None else compute(f, values) for f in fractions)

    return each


def _mode(key: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    """Return the most frequent value, the first in the order of several."""
    counts: dict[Any, int] = {}
    first: dict[Any, Any] = {}
    for value in values:
        known = key(value)
        counts[known] = counts.get(known, 0) + 1
        first.setdefault(known, value)
    return first[max(counts, key=counts.__getitem__)] if counts else None


for _name, _values, _element, _compute in (
    ("percentile_cont", "float8[]", "float8", _continuous(_between_floats)),
    ("percentile_cont", "interval[]", "interval", _continuous(between_intervals)),
    ("percentile_disc", "anyarray", "anyelement", _discrete),
):
    hidden(
        f"{_name}(float8,{_values})",
        f"float8 {_values}",
        _element,
        data_rows(_compute),
        fallible=True,
    )
    hidden(
        f"{_name}(float8[],{_values})",
        f"float8[] {_values}",
        _values,
        data_rows(_of_each(_compute)),
        fallible=True,
    )
hidden("mode(anyarray)", "anyarray", "anyelement", by_elements(_mode))
