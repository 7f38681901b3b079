"""Sums of floats are those of the exact values, whatever the order and the multiplicities."""

import math
from fractions import Fraction

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.bulk.exact import sum_float, sum_float_lists

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def rounded(total: Fraction) -> float:
    """Return the nearest double, infinities beyond the greatest."""
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.lists(st.tuples(FINITE, st.integers(-5, 9)), max_size=6))
def test_the_sum_is_the_exact_one_rounded(entries: list[tuple[float, int]]) -> None:
    exact = sum((Fraction(x) * d for x, d in entries), Fraction())
    assert sum_float(entries) == rounded(exact)


def test_a_retraction_leaves_nothing_behind() -> None:
    assert sum_float([(1e100, 1), (1.0, 3), (1e100, -1)]) == 3.0


def test_infinities_and_nan_are_as_in_postgresql() -> None:
    assert sum_float([(math.inf, 1), (1.0, 1)]) == math.inf
    assert math.isnan(sum_float([(math.inf, 1), (-math.inf, 1)]))
    assert math.isnan(sum_float([(math.nan, 1), (1.0, 1)]))


def test_lists_that_are_null_or_empty_have_no_sum() -> None:
    type = pa.list_(pa.struct([("x", pa.float64()), ("d", pa.int64())]))
    lists = pa.array([[{"x": 0.1, "d": 3}], None, [], [{"x": 1.0, "d": 1}]], type)
    assert sum_float_lists(lists).to_pylist() == [0.1 * 3, None, None, 1.0]
    assert sum_float_lists(lists.slice(3)).to_pylist() == [1.0]
