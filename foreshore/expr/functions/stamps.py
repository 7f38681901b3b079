"""Functions of times that Materialize has.

`datediff` counts the boundaries between two times: those at which `date_trunc` of the unit
changes. `try_parse_monotonic_iso8601_timestamp` reads one form of text, in which the order of texts
is that of the times. `timezone_offset` takes a moment apart into the abbreviation, standard offset
and summer time of a zone. `date_bin_hopping` gives the beginnings of all windows that have a time.
"""

import re
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from foreshore import calendar
from foreshore.errors import InvalidParameterValue
from foreshore.expr.functions.fields import TRUNCATIONS, truncated, unit_of
from foreshore.expr.functions.function import Outcome, Signature, declare, declare_table
from foreshore.expr.functions.rows import fail, mapped
from foreshore.expr.functions.temporal import (
    DAY,
    SECOND,
    TIMESTAMP_RANGE,
    Ints,
    by_first,
    civil,
    data_rows,
    faulty,
    integers,
    is_infinite,
    is_infinite_date,
    nulls,
)
from foreshore.structured import stored
from foreshore.types import INTERVAL, TEXT, Datum, record_of

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z", re.ASCII)
_MOST_WINDOWS = 10_000_000
_OFFSETS = record_of(("abbrev", "base_utc_offset", "dst_offset"), (TEXT, INTERVAL, INTERVAL))


def _try_parse(text: str) -> int | None:
    """Return the time of YYYY-MM-DDTHH:MM:SS.mmmZ; None for any other text."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, millis = map(int, found.groups())
    if not (1 <= month <= 12 and 1 <= day <= calendar.days_in_month(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    seconds = (hour * 60 + minute) * 60 + second
    return calendar.days_from_civil(year, month, day) * DAY + seconds * SECOND + millis * 1000


# --- datediff ----------------------------------------------------------------------------------

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_YEARS = {"decade": (10, 0), "century": (100, 99), "millennium": (1000, 999)}
_CLOCK = {
    "microseconds": 1,
    "milliseconds": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": DAY,
}


def _boundaries(unit: str, times: Ints) -> Ints:
    """Return the number of boundaries of `unit` up to each time, from an arbitrary one on."""
    if unit in _CLOCK:
        return times // _CLOCK[unit]
    if unit == "week":
        return (truncated(unit, times) // DAY + 3) // 7
    year, month, _ = civil(times // DAY)
    if unit in _MONTHS:
        return (year * 12 + month - 1) // _MONTHS[unit]
    length, shift = _YEARS[unit]
    return (year + shift) // length


def _datediff(types: Signature, name: str, start: pa.Array, end: pa.Array) -> Outcome:
    unit = unit_of(name)
    if unit not in TRUNCATIONS:
        raise fail("22023", f"invalid unit specifier: {name}")
    scale = DAY if types.args[1].name == "date" else 1
    first, last = integers(start).astype(np.int64), integers(end).astype(np.int64)
    mask = nulls(start, end)
    endless = is_infinite_date if scale == DAY else is_infinite
    infinite = endless(first) | endless(last)
    first, last = (np.where(infinite, 0, each) for each in (first, last))
    if scale == DAY and unit in _CLOCK and unit != "day":
        values = (last - first) * (DAY // _CLOCK[unit])
    else:
        values = _boundaries(unit, last * scale) - _boundaries(unit, first * scale)
    return faulty(types, values, mask, infinite, TIMESTAMP_RANGE)


# --- zones -------------------------------------------------------------------------------------


def _timezone_offset(name: str, micros: int) -> Datum:
    """Return the record of a zone's offsets at a moment."""
    try:
        zone = calendar.zone_named(name)
    except InvalidParameterValue:
        zone = None
    if zone is None or not (isinstance(zone, ZoneInfo) or name.upper() == "UTC"):
        raise fail("22023", f"invalid IANA Time Zone Database identifier: '{name}'")
    summer = calendar.summer_time(zone, micros)
    base = calendar.utc_offset(zone, micros) - summer
    offsets = ((0, 0, seconds * SECOND) for seconds in (base, summer))
    return stored((calendar.zone_abbreviation(zone, micros), *offsets), _OFFSETS)


# --- hopping windows ---------------------------------------------------------------------------


def _micros(interval: tuple[int, int, int], what: str) -> int:
    months, days, micros = interval
    if months:
        raise fail("0A000", f"{what} with months or years is not supported")
    width = days * DAY + micros
    if width <= 0:
        raise fail("22008", f"{what} must be greater than zero")
    return width


def _hopping(hop: Any, width: Any, at: int, origin: int = 0) -> tuple[int, ...]:
    """Return the beginnings of the windows with `at`: they end every `hop` from `origin` on."""
    step, length = _micros(hop, "hop"), _micros(width, "width")
    if length // step > _MOST_WINDOWS:
        raise fail("54000", "date_bin_hopping of that many windows is not supported")
    if is_infinite(np.array([at, origin], np.int64)).any():
        raise fail("22008", "timestamp out of range")
    end = origin + ((at - origin) // step + 1) * step
    return tuple(range(end - length, at + 1, step))


declare("try_parse_monotonic_iso8601_timestamp", "text", "timestamp", mapped(_try_parse))
for _t in ("date", "time", "timestamp", "timestamptz"):
    declare("datediff", f"text {_t} {_t}", "int8", by_first(_datediff), fallible=True)
declare(
    "timezone_offset",
    "text timestamptz",
    lambda types, literals: _OFFSETS,
    data_rows(_timezone_offset),
    fallible=True,
)
for _t in ("timestamptz", "timestamp"):
    for _more in ("", f" {_t}"):
        declare_table(
            "date_bin_hopping",
            f"interval interval {_t}{_more}",
            f"{_t}[]",
            data_rows(_hopping),
            fallible=True,
        )
