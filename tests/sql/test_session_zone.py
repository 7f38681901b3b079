"""Functions of timestamptz in the session's time zone agree with Python's `zoneinfo`."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore import calendar
from foreshore.expr.functions.function import BY_KEY
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.session_zone import RULES, SessionZone
from tests.sql.catalog import TABLES, builtin_catalog
from tests.zones import EPOCH, local_of, micros_of, moment_of, moments, zones

CATALOG = builtin_catalog(TABLES)


def answer(sql: str, zone: str) -> Any:
    """Return the single value of a constant query in a session of that zone."""
    (statement,) = parse(sql)
    plan = plan_statement(statement, CATALOG, zone=zone)
    assert isinstance(plan, Select)
    return plan.query.relation.rows[0][0][0]  # type: ignore[union-attr]


def plus(months: int, days: int) -> Callable[[datetime], datetime]:
    def later(at: datetime) -> datetime:
        year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
        day = min(at.day, calendar.days_in_month(year, month + 1))
        return at.replace(year=year, month=month + 1, day=day) + timedelta(days=days)

    return later


@given(zones, moments, st.integers(-14, 14), st.integers(-40, 40), st.integers(-50, 50))
def test_session_zone_applies_to_each_function(
    name: str, at: datetime, months: int, days: int, hours: int
) -> None:
    zone = ZoneInfo(name)
    local = local_of(zone, at)
    here = f"timestamptz '{at.isoformat()}+00'"
    there = f"timestamp '{at.isoformat()}'"
    offset = (local - at) // timedelta(seconds=1)

    def moment(local: datetime) -> int:
        return micros_of(moment_of(zone, local))

    assert answer(f"SELECT {here}::timestamp", name) == micros_of(local)
    assert answer(f"SELECT {there}::timestamptz", name) == moment(at)
    assert answer(f"SELECT timestamptz '{at.isoformat()}'", name) == moment(at)
    assert answer(f"SELECT ('' || '{at.isoformat()}')::timestamptz", name) == moment(at)
    assert answer(f"SELECT {here}::date", name) == (local - EPOCH).days
    assert answer(f"SELECT date '{at.date()}'::timestamptz", name) == moment(
        datetime.combine(at.date(), datetime.min.time())
    )
    assert answer(f"SELECT {here}::text::timestamptz", name) == micros_of(at)
    assert answer(f"SELECT date_part('minute', {here})", name) == local.minute
    assert answer(f"SELECT date_part('timezone', {here})", name) == offset
    assert answer(f"SELECT date_part('epoch', {here})", name) == micros_of(at) / 10**6
    assert answer(f"SELECT date_trunc('day', {here})", name) == moment(
        local.replace(hour=0, minute=0, second=0, microsecond=0)
    )
    # Shorter units stay on the same side of a clock change.
    hour = local.replace(minute=0, second=0, microsecond=0)
    cut = micros_of(hour) - offset * 1_000_000
    assert answer(f"SELECT date_trunc('hour', {here})", name) == cut
    later = moment_of(zone, plus(months, 0)(local)) if months else at
    later = moment_of(zone, plus(0, days)(local_of(zone, later))) if days else later
    span = f"interval '{months} mons {days} days {hours} hours'"
    expected = micros_of(later + timedelta(hours=hours))
    assert answer(f"SELECT {here} + {span}", name) == expected
    assert answer(f"SELECT {here} - -({span})", name) == expected
    assert answer(f"SELECT make_timestamptz({at.year}, {at.month}, {at.day}, 2, 30, 0)", name) == (
        moment(datetime(at.year, at.month, at.day, 2, 30))
    )


@given(zones, moments)
def test_session_zone_agrees_with_at_time_zone(name: str, at: datetime) -> None:
    """A function that depends on the session's zone agrees with explicit AT TIME ZONE."""
    here = f"timestamptz '{at.isoformat()}+00'"
    said = f"{here} AT TIME ZONE ':{name}'"
    for shown in ("{}::date", "extract(doy FROM {})", "to_char({}, 'HH24:MI:SS')", "{}::time"):
        asked = answer(f"SELECT {shown.format(here)}", name)
        assert asked == answer(f"SELECT {shown.format(f'({said})')}", "UTC")


@pytest.mark.parametrize(
    ("sql", "matters"),
    [
        ("SELECT timestamptz '2013-03-10'", True),
        ("SELECT timestamptz '2013-03-10 00:00+01'", False),
        ("SELECT timestamptz 'infinity'", False),
        ("SELECT now(), date '2013-03-10', interval '1 day' + timestamp '2013-03-10'", False),
        (
            "SELECT now() > $1::timestamptz, date_part('epoch', now()), extract(epoch FROM now())",
            False,
        ),
        ("SELECT now() - interval '1 day'", True),
        ("SELECT current_date", True),
        ("SELECT now() < current_date - 7", True),
        ("SELECT extract(hour FROM now())", True),
        ("SELECT 'now'::timestamptz", False),
        ("SELECT 'today'::timestamptz", True),
        ("SELECT jsonb_agg(now())", True),
        ("SELECT now() || ''", True),
    ],
)
@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin"])
def test_planning_reports_zone_dependence(sql: str, matters: bool, name: str) -> None:
    zone = SessionZone(name)
    (statement,) = parse(sql)
    plan_statement(statement, CATALOG, zone=zone)
    assert zone.was_used == matters


# Independent of the zone, or taking it as an argument.
INDEPENDENT = {
    "subtract(timestamptz,timestamptz)",
    "isfinite(timestamptz)",
    "compared(date,timestamptz)",  # in UTC; elsewhere the zone is an argument
    "compared(text,timestamp)",
    *(
        f"{name}({type})"
        for name in ("first_date", "last_date")
        for type in ("timestamptz", "text,timestamptz")
    ),
    *(f"{name}(text,timestamptz)" for name in ("before_local", "after_local")),
    "_overlaps(timestamptz,timestamptz,timestamptz,timestamptz)",
    "add(date,timetz)",
    "add(timetz,date)",
    "tstzrange(timestamptz,timestamptz)",
    "tstzrange(timestamptz,timestamptz,text)",
    *(f"range_contains({ranges},timestamptz)" for ranges in ("tstzrange", "tstzmultirange")),
    *(f"range_contained(timestamptz,{ranges})" for ranges in ("tstzrange", "tstzmultirange")),
    *(
        f"{end}({ranges})"
        for end in ("lower", "upper")
        for ranges in ("tstzrange", "tstzmultirange")
    ),
    "cast(timestamptz,timestamptz)",
    "cast(timestamptz,mz_timestamp)",
    "cast(mz_timestamp,timestamptz)",
    "to_timestamp(float8)",
    "timezone(interval,timestamptz)",
    "timezone(interval,timestamp)",
    "date_trunc(text,timestamptz,text)",
    "date_bin(interval,timestamptz,timestamptz)",
    "date_bin_hopping(interval,interval,timestamptz)",
    "date_bin_hopping(interval,interval,timestamptz,timestamptz)",
    "timezone_offset(text,timestamptz)",
}
# Functions that the rules substitute.
ZONED = (
    *("timezone(text,", "timestamptz_", "add(text,", "subtract(text,", "age(text,"),
    *("generate_series(text,", "extract(text,text,", "date_part(text,text,"),
    *("to_char(text,", "to_timestamp(text,text,text"),
    "timetz_of_",
)
# Of any type, without printing it as text or a document.
INDEPENDENT_OF_ANY = {
    *("eq", "ne", "lt", "le", "gt", "ge", "is_distinct", "is_not_distinct", "order_bytes"),
    *(f"{each}_{of}" for each in ("eq", "ne", "lt", "le", "gt", "ge") for of in ("any", "all")),
    *("coalesce", "nullif", "greatest", "least", "is_null", "is_not_null", "relabel", "array"),
    *("row_security", "pg_column_size", "mz_row_size"),
    *("of_integer", "pg_typeof", "array_subscript", "array_slice", "array_length", "array_upper"),
    *("array_lower", "array_ndims", "cardinality", "array_contains", "array_contained"),
    *(
        "array_overlaps",
        "array_assigned",
        "shaped_assigned",
        "shaped_slice_assigned",
        "array_append",
        "array_prepend",
        "array_cat",
        "array_remove",
    ),
    *("array_replace", "array_position", "array_positions", "unnest", "generate_subscripts"),
    *("frame_start", "frame_end", "range_start", "range_end", "array_dims", "array_fill"),
    *("trim_array", "_pg_expandarray", "percentile_disc", "mode"),
    *(
        "width_bucket",
        "num_nulls",
        "num_nonnulls",
        "arg_max",
        "arg_min",
        "least_row",
        "bytes_joined",
    ),
    *("enum_first", "enum_last", "enum_range"),
    *("row", "column", "record_is_null", "record_is_not_null", "json_record", "json_recordset"),
    *("only_record", "shaped", "shaped_agg", "shaped_subscript", "shaped_slice", "shaped_items"),
    "reshaped",
    *("cast_to_shaped", "cast_from_shaped", "cast_array_to_list", "array_to_list", "list_to_array"),
    *("list", "list_index", "list_slice", "list_append", "list_prepend", "list_cat", "list_remove"),
    *("list_length", "list_length_max", "list_n_layers", "list_contains", "list_contained"),
    *("lists_joined", "map", "map_at", "map_has", "map_has_all", "map_has_any", "map_contains"),
    *("map_contained", "map_length", "map_of_records", "map_build"),
}
# A timestamptz within such values is printed in UTC (docs/known-issues.md).
PRINTED_IN_UTC = {
    *("cast_record(anyrecord)", "cast_list(anylist)", "cast_map(anymap)"),
}


def test_each_timestamptz_function_has_zone_rule_or_needs_none() -> None:
    """A new function must be listed here if it does not depend on the session's zone."""
    assert set(RULES) <= set(BY_KEY)
    told = INDEPENDENT | PRINTED_IN_UTC | set(RULES)
    for total, function in BY_KEY.items():
        key = total.replace("_total(", "(")
        types = (*function.args, function.result)
        if key.startswith(ZONED):
            continue
        if any(str(type).startswith("timestamptz") for type in types):
            assert key in told, key
        elif any(str(type).startswith("any") for type in function.args):
            assert key in told or key.partition("(")[0] in INDEPENDENT_OF_ANY, key
