"""Sums of floats are those of the exact values, whatever the order and the multiplicities."""

import math
from fractions import Fraction

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.render.exact import (
    comoment_float,
    comoment_float_lists,
    sum_float,
    sum_float_lists,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def rounded(total: Fraction) -> float:
    """Return the nearest double, infinities beyond the greatest."""
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.lists(st.tuples(FINITE, st.integers(-5, 9)), max_size=6))
def test_sum_is_exact_and_rounded_once(entries: list[tuple[float, int]]) -> None:
    exact = sum((Fraction(x) * d for x, d in entries), Fraction())
    assert sum_float(entries) == rounded(exact)


def test_a_retraction_leaves_nothing_behind() -> None:
    assert sum_float([(1e100, 1), (1.0, 3), (1e100, -1)]) == 3.0


@given(st.lists(st.tuples(FINITE, FINITE, st.integers(1, 5)), min_size=1, max_size=5))
def test_comoment_is_exact_and_rounded_once(entries: list[tuple[float, float, int]]) -> None:
    count = sum(d for _, _, d in entries)
    first = sum((Fraction(x) * d for x, _, d in entries), Fraction())
    second = sum((Fraction(y) * d for _, y, d in entries), Fraction())
    product = sum((Fraction(x) * Fraction(y) * d for x, y, d in entries), Fraction())
    assert comoment_float(entries) == rounded(product - first * second / count)


@given(st.lists(st.tuples(FINITE, FINITE, st.integers(1, 5)), min_size=64, max_size=80))
def test_comoment_of_many_entries_is_that_of_each(entries: list[tuple[float, float, int]]) -> None:
    rows = [{"x": x, "y": y, "d": d} for x, y, d in entries]
    type = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64()), ("d", pa.int64())]))
    lists = pa.array([rows[:1], rows, [], None], type)
    want = [comoment_float(entries[:1]), comoment_float(entries), None, None]
    assert comoment_float_lists(lists).to_pylist() == want


def test_comoment_of_large_close_values_keeps_their_digits() -> None:
    values = [1e15 + 1, 1e15 + 2, 1e15 + 3, 1e15 + 4]
    assert comoment_float([(x, x, 1) for x in values]) == 5.0


def test_comoment_after_retraction_is_that_of_what_is_left() -> None:
    entries = [(1e300, 1e300, 1), (1.0, 1.0, 1), (3.0, 3.0, 1), (1e300, 1e300, -1)]
    assert comoment_float(entries) == 2.0


def test_comoment_of_values_that_are_not_finite_is_nan_and_of_huge_ones_infinite() -> None:
    assert math.isnan(comoment_float([(math.inf, 1.0, 1)]))
    assert comoment_float([(1e300, 1e300, 1), (-1e300, -1e300, 1)]) == math.inf
    assert comoment_float([(1e300, -1e300, 1), (-1e300, 1e300, 1)]) == -math.inf


def test_infinities_and_nan_are_as_in_postgresql() -> None:
    assert sum_float([(math.inf, 1), (1.0, 1)]) == math.inf
    assert math.isnan(sum_float([(math.inf, 1), (-math.inf, 1)]))
    assert math.isnan(sum_float([(math.nan, 1), (1.0, 1)]))


def test_lists_that_are_null_or_empty_have_no_sum() -> None:
    type = pa.list_(pa.struct([("x", pa.float64()), ("d", pa.int64())]))
    lists = pa.array([[{"x": 0.1, "d": 3}], None, [], [{"x": 1.0, "d": 1}]], type)
    assert sum_float_lists(lists).to_pylist() == [0.1 * 3, None, None, 1.0]
    assert sum_float_lists(lists.slice(3)).to_pylist() == [1.0]


def test_multiples_beyond_greatest_float_cancel() -> None:
    """They took a list entry for each multiple."""
    assert sum_float([(1e308, 1 << 50), (-1e308, (1 << 50) - 1)]) == 1e308
    assert sum_float([(1e308, 1 << 50)]) == math.inf
