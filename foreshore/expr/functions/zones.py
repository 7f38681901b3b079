"""Time zones: convert between moments and local times, and compute in a zone.

A timestamptz is a moment. Functions that use the session's time zone in PostgreSQL take the zone as
first argument here. `foreshore.sql.rewrite.session_zone` writes the session's zone into the plan,
so that engines do not depend on sessions.

Offsets are those of `foreshore.calendar`, looked up twice for each day in a column. If both ends of
a day have the same offset, the whole day has it (no zone changes its clocks twice in a day); only
rows of other days are looked up one by one.
"""

from collections.abc import Callable
from datetime import timezone, tzinfo
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore import calendar
from foreshore.expr.functions.arrays import later, moments
from foreshore.expr.functions.casting import with_elements
from foreshore.expr.functions.datetime import span
from foreshore.expr.functions.fields import (
    TRUNCATED_DAYS,
    date_part,
    extract,
    extract_type,
    truncated,
    truncation,
)
from foreshore.expr.functions.function import Outcome, Signature, declare, hidden
from foreshore.expr.functions.jsonb_building import iso_text
from foreshore.expr.functions.rows import collect, fail
from foreshore.expr.functions.temporal import (
    DAY,
    HIGHEST,
    LEAST,
    LOWEST,
    MOST,
    SECOND,
    TIMESTAMP_RANGE,
    Ints,
    by_first,
    column,
    data_rows,
    faulty,
    integers,
    interval_fields,
    is_infinite,
    nulls,
    shifted,
    zone_of,
)
from foreshore.text import parse_text
from foreshore.types import TEXT, SqlType, arrow_type

# --- offsets -----------------------------------------------------------------------------------


def utc_offsets(zone: tzinfo, moments: Ints) -> Ints:
    """Return the offsets in microseconds, east positive, of `zone` at UTC moments."""
    return _offsets(calendar.utc_offset, zone, moments)


def local_offsets(zone: tzinfo, local: Ints) -> Ints:
    """Return the offsets in microseconds at local times, as `calendar.local_offset` does."""
    return _offsets(calendar.local_offset, zone, local)


def _offsets(offset: Callable[[tzinfo, int], int], zone: tzinfo, micros: Ints) -> Ints:
    if isinstance(zone, timezone):
        return np.full(len(micros), offset(zone, 0) * SECOND, dtype=np.int64)
    days, place = np.unique(micros // DAY, return_inverse=True)
    ends = np.array([_ends(offset, zone, day) for day in days.tolist()], dtype=np.int64)
    first, last = ends.reshape(-1, 2).T
    out = first[place]
    changing = np.flatnonzero((first != last)[place])
    out[changing] = [offset(zone, at) for at in micros[changing].tolist()]
    return np.asarray(out * SECOND)


@lru_cache(32_768)
def _ends(offset: Callable[[tzinfo, int], int], zone: tzinfo, day: int) -> tuple[int, int]:
    """Return the offsets at both ends of a day, cached as engines call kernels with few rows."""
    return offset(zone, day * DAY), offset(zone, (day + 1) * DAY)


def _moved(values: Ints, by: Ints) -> tuple[Ints, Any]:
    zero = np.zeros_like(values)
    return shifted(values, zero, zero, by)


# --- a moment and its local time ---------------------------------------------------------------


def _timezone(sign: int, offsets: Callable[[tzinfo, Ints], Ints]) -> Callable[..., Outcome]:
    def convert(types: Signature, name: str, a: pa.Array) -> Outcome:
        values = integers(a)
        infinite = is_infinite(values)
        if infinite.all():  # independent of the zone
            return column(values, arrow_type(types.result), nulls(a))
        base = np.where(infinite, 0, values)
        out, outside = _moved(base, sign * offsets(zone_of(name), base))
        out = np.where(infinite, values, out)
        return faulty(types, out, nulls(a), outside & ~infinite, TIMESTAMP_RANGE)

    return convert


def _moment_to_compare(types: Signature, name: str, a: pa.Array) -> Outcome:
    """Return moments to compare with of local times; those out of range as the nearest in it."""
    values = integers(a)
    infinite = is_infinite(values)
    base = np.where(infinite, 0, values)
    out, outside = _moved(base, -local_offsets(zone_of(name), base))
    out = np.where(outside, np.where(base < 0, LEAST - 1, MOST), out)
    return column(np.where(infinite, values, out), arrow_type(types.result), nulls(a))


to_local = _timezone(1, utc_offsets)
to_moment = _timezone(-1, local_offsets)


def _text(types: Signature, name: str, a: pa.Array) -> Outcome:
    zone = zone_of(name)
    moments = a.view(pa.int64()).to_pylist()
    texts = [None if at is None else calendar.format_timestamp(at, zone) for at in moments]
    return pa.array(texts, pa.string())


def _json_text(types: Signature, name: str, a: pa.Array) -> Outcome:
    texts = _text(types, name, a).to_pylist()
    return pa.array([None if t is None else iso_text(t) for t in texts], pa.string())


def _of_text(types: Signature, name: str, a: pa.Array) -> Outcome:
    zone = name.removeprefix(":")
    read = partial(parse_text, type=types.result, zone=zone)
    return collect(types, read, ((text,) for text in a.to_pylist()))


def _each(one: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return `one` over the elements of arrays."""

    def lifted(types: Signature, name: str, a: pa.Array) -> Outcome:
        source, target = types.args[1].element, types.result.element
        assert source is not None, types
        assert target is not None, types
        inner = Signature((TEXT, source), target)
        items = a.flatten()
        outcome = one(inner, name, items)
        values, errors = outcome if isinstance(outcome, tuple) else (outcome, None)
        return with_elements(a, values, errors, types.result)

    return lifted


# --- arithmetic --------------------------------------------------------------------------------


def _shift(sign: int) -> Callable[..., Outcome]:
    """Add months and days in the local time of the zone, then hours as elapsed time."""

    def kernel(types: Signature, name: str, a: pa.Array, b: pa.Array) -> Outcome:
        zone, values, fields = zone_of(name), integers(a), interval_fields(b)
        months, days, micros = (sign * field for field in fields)
        infinite = is_infinite(values)
        out: Ints = np.where(infinite, 0, values)
        zero, outside = np.zeros_like(out), np.zeros(len(out), bool)
        for by_months, by_days in ((months, zero), (zero, days)):
            passing = by_months + by_days != 0
            if not passing.any():
                continue
            local, beyond = _moved(out, utc_offsets(zone, out))
            moved, beyond_too = shifted(local, by_months, by_days, zero)
            moved = np.where(beyond | beyond_too, 0, moved)
            back, beyond_all = _moved(moved, -local_offsets(zone, moved))
            out = np.where(passing, back, out)
            outside |= passing & (beyond | beyond_too | beyond_all)
        out, beyond = _moved(np.where(outside, 0, out), micros)
        out = np.where(infinite, values, out)
        failed = (outside | beyond) & ~infinite
        return faulty(types, out, nulls(a, b), failed, TIMESTAMP_RANGE)

    return kernel


def _later(zone: tzinfo, at: int, months: int, days: int, micros: int) -> int:
    for by_months, by_days in ((months, 0), (0, days)):
        if by_months or by_days:
            local = at + calendar.utc_offset(zone, at) * SECOND
            local = later(local, by_months, by_days, 0)
            at = local - calendar.local_offset(zone, local) * SECOND
    return at + micros


def _series(name: str, first: int, last: int, step: tuple[int, int, int]) -> tuple[int, ...]:
    return moments(first, last, step, partial(_later, zone_of(name)))


def _age(name: str, a: int, b: int) -> tuple[int, int, int]:
    if a in (LOWEST, HIGHEST) or b in (LOWEST, HIGHEST):
        raise fail("22008", "cannot subtract infinite timestamps")
    zone = zone_of(name)
    # Moments are ordered as such, their fields are those of local time.
    x, y = (at + calendar.utc_offset(zone, at) * SECOND for at in (a, b))
    if a >= b:
        return span(x, y)
    months, days, micros = span(y, x)
    return -months, -days, -micros


# --- fields ------------------------------------------------------------------------------------


def _truncate(types: Signature, unit_name: str, a: pa.Array, zones: pa.Array) -> Outcome:
    unit = truncation(unit_name, types.args[1])

    def cut(types: Signature, name: str, a: pa.Array) -> Outcome:
        values = integers(a)
        infinite = is_infinite(values)
        zone, base = zone_of(name), np.where(infinite, 0, values)
        offsets = utc_offsets(zone, base)
        local = truncated(unit, base + offsets)
        if unit in TRUNCATED_DAYS:  # shorter units stay on the same side of a clock change
            offsets = local_offsets(zone, local)
        out, outside = _moved(local, -offsets)
        out = np.where(infinite, values, out)
        return faulty(types, out, nulls(a), outside & ~infinite, TIMESTAMP_RANGE)

    return by_first(cut)(types, zones, a)


def _in_zone(field: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return EXTRACT or date_part in a zone: arguments are zone, unit, moment."""

    def kernel(types: Signature, name: str, units: pa.Array, a: pa.Array) -> Outcome:
        values = integers(a)
        offsets = utc_offsets(zone_of(name), np.where(is_infinite(values), 0, values))
        plain = Signature(types.args[1:], types.result)

        def one(types: Signature, unit: str, a: pa.Array, offsets: pa.Array) -> Outcome:
            return field(types, unit, a, integers(offsets))

        return by_first(one)(plain, units, a, pa.array(offsets, pa.int64()))

    return kernel


def _extract_type(types: tuple[SqlType, ...], literals: Any) -> SqlType:
    return extract_type(types[1:], None if literals is None else literals[1:])


for _key, _args, _result, _one in (
    ("timezone", "timestamptz", "timestamp", to_local),
    ("timezone", "timestamp", "timestamptz", to_moment),
    ("timestamptz_text", "timestamptz", "text", _text),
    ("timestamptz_json_text", "timestamptz", "text", _json_text),
    ("timestamptz_of_text", "text", "timestamptz", _of_text),
):
    if _key == "timezone":
        declare(_key, f"text {_args}", _result, by_first(_one), fallible=True)
    else:
        hidden(f"{_key}(text,{_args})", f"text {_args}", _result, by_first(_one), fallible=True)
    hidden(
        f"{_key}(text,{_args}[])",
        f"text {_args}[]",
        f"{_result}[]",
        by_first(_each(_one)),
        fallible=True,
    )
for _key, _sign in (("add", 1), ("subtract", -1)):
    hidden(
        f"{_key}(text,timestamptz,interval)",
        "text timestamptz interval",
        "timestamptz",
        by_first(_shift(_sign)),
        fallible=True,
    )
hidden("compared(text,timestamp)", "text timestamp", "timestamptz", by_first(_moment_to_compare))
hidden(
    "age(text,timestamptz,timestamptz)",
    "text timestamptz timestamptz",
    "interval",
    data_rows(_age),
    fallible=True,
)
hidden(
    "generate_series(text,timestamptz,timestamptz,interval)",
    "text timestamptz timestamptz interval",
    "timestamptz[]",
    data_rows(_series),
    fallible=True,
)
declare("date_trunc", "text timestamptz text", "timestamptz", by_first(_truncate), fallible=True)
for _key, _field, _type in (
    ("extract", extract, _extract_type),
    ("date_part", date_part, "float8"),
):
    hidden(
        f"{_key}(text,text,timestamptz)",
        "text text timestamptz",
        _type,
        by_first(_in_zone(_field)),
        fallible=True,
    )
