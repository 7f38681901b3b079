"""Comparisons of dates with timestamps are those with dates, at the ends and in every zone."""

from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshore import calendar
from foreshore.datum import to_array
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.midnights import midnight
from foreshore.expr.functions.temporal import (
    DATE_HIGHEST,
    DATE_LEAST,
    DATE_LOWEST,
    DATE_MOST,
    DAY,
    HIGHEST,
    LEAST,
    LOWEST,
    MOST,
)
from foreshore.expr.ir import And, Call, Column, Literal, Once, Parameter, Scalar
from foreshore.expr.scalars import bind_scalar
from foreshore.sql.optimize.dates import without_casts
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.types import BOOL, DATE, TEXT, TIMESTAMP, TIMESTAMPTZ, Datum, SqlType
from tests.effort import examples
from tests.zones import ZONES, micros_of, moments, zones

OPERATORS = ["lt", "le", "gt", "ge", "eq", "ne"]
ENDS = [DATE_LOWEST, DATE_LEAST, DATE_LEAST + 1, MOST // DAY, MOST // DAY + 1, DATE_MOST]
STAMPS = [LOWEST, LEAST, LEAST + 1, MOST - DAY, MOST - 1, MOST, HIGHEST]
COLUMN = Column(0, DATE)
MIDNIGHT = Call("compared(date,timestamp)", (COLUMN,), TIMESTAMP)


def found(scalar: Scalar, dates: pa.Array, args: list[Datum]) -> list[bool | None]:
    def no_value(name: str) -> Datum:
        raise AssertionError(name)

    bound = bind_scalar(scalar, parameter_bindings(args, no_value))
    values, errors = outcome(bound, (dates,), len(dates))
    assert errors is None
    return [each.as_py() for each in values]


def check(dated: Scalar, type: SqlType, at: int | None, near: int) -> None:
    """Compare dates near one, and the ends, both ways."""
    days = [None, DATE_HIGHEST, *ENDS]
    days += [near + by for by in range(-3, 4) if DATE_LEAST <= near + by <= DATE_MOST]
    dates = to_array(days, DATE)
    for operator in OPERATORS:
        for sides in ((dated, Parameter(1, type)), (Parameter(1, type), dated)):
            comparison = Call(operator, sides, BOOL)
            equivalent = without_casts(comparison)
            assert equivalent != comparison
            assert found(equivalent, dates, [at]) == found(comparison, dates, [at]), operator


stamps = st.one_of(
    st.sampled_from(STAMPS),
    st.builds(lambda day, by: day * DAY + by, st.integers(-900_000, 900_000), st.integers(-2, 2)),
    st.integers(LEAST, MOST),
)


@settings(max_examples=examples(200), deadline=None)
@given(stamps, st.sampled_from([TIMESTAMP, TIMESTAMPTZ]))
@example(MOST, TIMESTAMP)
def test_dates_compare_as_their_midnights(at: int, type: SqlType) -> None:
    midnights = Call(f"compared(date,{type.name})", (COLUMN,), type)
    check(midnights, type, at, max(LEAST, min(at, MOST)) // DAY)


@settings(max_examples=examples(300), deadline=None)
@given(
    zones,
    st.one_of(moments.map(micros_of), moments.map(lambda at: micros_of(at) // DAY * DAY), stamps),
)
def test_dates_compare_as_their_midnights_in_zone(zone: str, at: int) -> None:
    midnights = Call("compared(text,timestamp)", (Literal(f":{zone}", TEXT), MIDNIGHT), TIMESTAMPTZ)
    near = max(LEAST, min(at, MOST)) // DAY
    check(midnights, TIMESTAMPTZ, at, near)
    if DATE_LEAST <= near <= MOST // DAY:
        check(midnights, TIMESTAMPTZ, max(LEAST, midnight(ZoneInfo(zone), near)), near)


@pytest.mark.parametrize("type", [TIMESTAMP, TIMESTAMPTZ])
def test_dates_compare_with_null_as_null(type: SqlType) -> None:
    check(Call(f"compared(date,{type.name})", (COLUMN,), type), type, None, 0)


def test_two_dates_begin_at_once_where_day_is_left_out() -> None:
    zone = ZoneInfo("Pacific/Apia")
    left_out = 15_338  # 2011-12-30
    assert midnight(zone, left_out) == midnight(zone, left_out + 1)
    midnights = Call(
        "compared(text,timestamp)", (Literal("Pacific/Apia", TEXT), MIDNIGHT), TIMESTAMPTZ
    )
    equal = without_casts(Call("eq", (midnights, Parameter(1, TIMESTAMPTZ)), BOOL))
    dates = to_array([*range(left_out - 1, left_out + 3)], DATE)
    assert found(equal, dates, [midnight(zone, left_out)]) == [False, True, True, False]


@pytest.mark.parametrize("name", [*ZONES, *sorted(available_timezones())[::25]])
def test_no_date_begins_before_earlier_one(name: str) -> None:
    """About each change of the clocks between 1840 and 2060."""
    zone = ZoneInfo(name)
    offsets = [calendar.utc_offset(zone, day * DAY) for day in range(-47_500, 33_000, 7)]
    changes = [i for i in range(1, len(offsets)) if offsets[i] != offsets[i - 1]]
    for week in changes:
        first = -47_500 + 7 * (week - 1)
        begins = [midnight(zone, day) for day in range(first - 2, first + 10)]
        assert begins == sorted(begins), (name, first)


def test_timestamps_compare_as_timestamptz_in_utc() -> None:
    for source, target in ((TIMESTAMP, TIMESTAMPTZ), (TIMESTAMPTZ, TIMESTAMP)):
        cast = Call(f"cast({source.name},{target.name})", (Column(0, source),), target)
        back = Call(f"cast({target.name},{source.name})", (Parameter(1, target),), source)
        assert without_casts(Call("lt", (Parameter(1, target), cast), BOOL)) == Call(
            "gt", (Column(0, source), Once(back, source)), BOOL
        )


@settings(max_examples=examples(300), deadline=None)
@given(zones, st.one_of(moments.map(micros_of), stamps), st.lists(stamps), st.integers(-3, 3))
def test_range_of_local_times_has_those_of_moments(
    zone: str, at: int, others: list[int], by: int
) -> None:
    local = Column(0, TIMESTAMP)
    zoned = Call("compared(text,timestamp)", (Literal(f":{zone}", TEXT), local), TIMESTAMPTZ)
    near = [at + minutes * 60_000_000 + by for minutes in range(-1560, 1561, 60)]
    times = to_array([None, *STAMPS, *others, *(e for e in near if LEAST <= e <= MOST)], TIMESTAMP)
    for operator in OPERATORS:
        comparison = Call(operator, (zoned, Parameter(1, TIMESTAMPTZ)), BOOL)
        ranged = without_casts(comparison)
        assert found(ranged, times, [at]) == found(comparison, times, [at]), operator
        assert isinstance(ranged, And) is (operator != "ne")


def test_other_comparisons_are_as_they_were() -> None:
    sides = (MIDNIGHT, Column(1, TIMESTAMP))
    assert without_casts(Call("lt", sides, BOOL)) == Call("lt", sides, BOOL)
    distinct = Call("is_distinct", (MIDNIGHT, Parameter(1, TIMESTAMP)), BOOL)
    assert without_casts(distinct) == distinct
