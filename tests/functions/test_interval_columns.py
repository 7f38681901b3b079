"""Interval arithmetic by columns equals that by rows."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.expr.functions import intervals
from foreshore.expr.functions.function import Signature
from foreshore.expr.functions.interval_columns import negated, scaled, sum_of
from foreshore.expr.functions.temporal import data_rows
from foreshore.types import SqlType, arrow_type
from tests.effort import examples

INTERVAL, FLOAT = SqlType("interval"), SqlType("float8")

fields = st.tuples(
    st.integers(-50, 50) | st.integers(-(2**31), 2**31 - 1),
    st.integers(-50, 50) | st.integers(-(2**31), 2**31 - 1),
    st.integers(-(10**7), 10**7) | st.integers(-(2**63), 2**63 - 1),
)
spans = st.lists(st.none() | fields, min_size=1, max_size=4)
numbers = st.none() | st.floats() | st.sampled_from([0.0, 1.5, -0.1, 1 / 3, 2.0, 1e-9, 30.5])


def column(values: list[Any]) -> pa.Array:
    """Return intervals as a column."""
    arrow = arrow_type(INTERVAL)
    names = [field.name for field in arrow]
    rows = [None if v is None else dict(zip(names, v, strict=True)) for v in values]
    return pa.array(rows, arrow)


def by_rows(compute: Any, args: tuple[SqlType, ...], *arrays: pa.Array) -> Any:
    """Return the column, or None if a row is an error."""
    found = data_rows(compute)(Signature(args, INTERVAL), *arrays)
    return None if isinstance(found, tuple) else found


@settings(max_examples=examples(300))
@given(spans, st.data())
def test_columns_equal_rows(values: list[Any], data: st.DataObject) -> None:
    count = len(values)
    a = column(values)
    b = column(data.draw(st.lists(st.none() | fields, min_size=count, max_size=count)))
    f = pa.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), pa.float64())
    two, by = (INTERVAL, INTERVAL), (INTERVAL, FLOAT)
    for found, rows in (
        (sum_of(a, b), by_rows(intervals._add_intervals, two, a, b)),
        (sum_of(a, b, sign=-1), by_rows(intervals._subtract_intervals, two, a, b)),
        (negated(a), by_rows(intervals._negate_interval, (INTERVAL,), a)),
        (
            scaled(a, f, divide=False),
            by_rows(lambda x, y: intervals._scaled(x, y, False), by, a, f),
        ),
        (scaled(a, f, divide=True), by_rows(lambda x, y: intervals._scaled(x, y, True), by, a, f)),
    ):
        assert found is None or found.equals(rows), (found, rows)


def test_ordinary_values_are_computed_by_columns() -> None:
    a = column([(1, 2, 3), None, (0, -5, 10**12)])
    f = pa.array([1.5, 2.0, None])
    found = sum_of(a, a), negated(a), scaled(a, f, divide=False)
    assert all(each is not None for each in found)
    assert scaled(a, pa.array([1.0, 0.0, 2.0]), divide=True) is None
