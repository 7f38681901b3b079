"""Ranges: stored forms sort as ranges do, and the algebra is that of sets of values."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore import ranges
from foreshore.output_style import OutputStyle
from foreshore.ranges import BOUNDS, MULTIRANGES, Bound, Range, make_range
from foreshore.server.cells import binary_cell
from foreshore.server.parameters import decode_binary
from foreshore.text import format_text, parse_text
from foreshore.types import SqlType
from tests.effort import examples

VALUES = range(-3, 4)
SAMPLES = [Decimal(n) / 2 for n in range(-8, 9)]

bounds = st.none() | st.builds(Bound, st.sampled_from(VALUES), st.booleans())


@st.composite
def one(draw: st.DrawFn) -> Range | None:
    low, high = draw(bounds), draw(bounds)
    if low is not None and high is not None and low.value > high.value:
        low, high = high, low
    return make_range(low, high, "numrange")


many = st.lists(one(), max_size=4).map(lambda found: ranges.union(r for r in found if r))


def holds(found: ranges.Ranges, value: Decimal) -> bool:
    before, after = (ranges.cut(value, after=a, type="numrange") for a in (False, True))
    return any(each.low <= before and after <= each.high for each in found)


def order(found: Range | None) -> Any:
    """Return PostgreSQL's order of ranges as a key."""
    if found is None:
        return (0,)
    low, high = (f(found, "numrange") for f in (ranges.lower_bound, ranges.upper_bound))
    lower = (0,) if low is None else (1, Decimal(low.value), not low.inclusive)
    upper = (1,) if high is None else (0, Decimal(high.value), high.inclusive)
    return (1, lower, upper)


@given(one(), one())
@settings(max_examples=examples(500))
def test_stored_forms_sort_as_ranges(a: Range | None, b: Range | None) -> None:
    x, y = ranges.stored(a), ranges.stored(b)
    assert (x < y, x == y) == (order(a) < order(b), order(a) == order(b))
    assert ranges.range_of(x, "numrange") == a


@given(many, many)
@settings(max_examples=examples(500))
def test_algebra_is_that_of_sets(a: ranges.Ranges, b: ranges.Ranges) -> None:
    both, union = ranges.intersection(a, b), ranges.union((*a, *b))
    without = ranges.difference(a, b)
    for value in SAMPLES:
        x, y = holds(a, value), holds(b, value)
        assert holds(both, value) == (x and y)
        assert holds(union, value) == (x or y)
        assert holds(without, value) == (x and not y)
    assert ranges.contains(a, b) == (not ranges.difference(b, a))
    assert ranges.overlap(a, b) == bool(both)
    stored = ranges.stored_ranges(a)
    assert ranges.ranges_of(stored, "numrange") == a
    for each in (both, union, without):
        assert all(x.high < y.low for x, y in pairwise(each)), each


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.booleans())
@settings(max_examples=examples(300))
def test_cuts_keep_their_value(value: Decimal, after: bool) -> None:
    found = ranges.cut(value, after=after, type="numrange")
    assert Decimal(ranges.value_of(found, "numrange")) == value


@pytest.mark.parametrize("name", [*BOUNDS, *MULTIRANGES])
@pytest.mark.parametrize("shape", ["[{0},{1})", "(,{1}]", "[{0},)", "(,)", "empty"])
def test_text_and_binary_forms_are_read_back(name: str, shape: str) -> None:
    kind = MULTIRANGES.get(name, name)
    low, high = ("2", "7")
    if BOUNDS[kind].name in ("date", "timestamp", "timestamptz"):
        low, high = ("2020-01-01", "2021-01-01")
    text, type = shape.format(low, high), SqlType(name)
    if name != kind:
        text = "{" + text + "}"
    datum = parse_text(text, type)
    assert parse_text(format_text(datum, type), type) == datum
    assert decode_binary(binary_cell(type)(datum, OutputStyle())[4:], type) == datum
