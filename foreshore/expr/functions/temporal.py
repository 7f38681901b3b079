"""Dates and times as integers in NumPy: calendars over whole columns.

Values are days since 1970 and microseconds, in the proleptic Gregorian calendar. The infinities are
the extremes of the integers and stay unchanged in all computations. Calendars take single integers
too, of which a column would take longer.
"""

import re
from collections.abc import Callable
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import calendar
from foreshore.datetime_text import ABBREVIATIONS
from foreshore.datum import from_array
from foreshore.errors import UserError, data_error
from foreshore.expr.functions.decimals import text_where
from foreshore.expr.functions.function import Kernel, Outcome, Signature
from foreshore.expr.functions.rows import Failure, WithSingle, collect, only_value, single, text_of
from foreshore.types import SqlType, arrow_type

DAY = 86_400_000_000
HOUR = 3_600_000_000
MINUTE = 60_000_000
SECOND = 1_000_000
LOWEST = -(2**63)
HIGHEST = 2**63 - 1
DATE_LOWEST = -(2**31)
DATE_HIGHEST = 2**31 - 1
LEAST, MOST = calendar.TIMESTAMP_LEAST, calendar.TIMESTAMP_MOST
DATE_LEAST, DATE_MOST = calendar.DATE_LEAST, calendar.DATE_MOST

TIMESTAMP_RANGE = data_error("22008", "timestamp out of range")
DATE_RANGE = data_error("22008", "date out of range")
DATE_OF_TIMESTAMP = data_error("22008", "date out of range for timestamp")
INTERVAL_RANGE = data_error("22008", "interval out of range")

Ints = Any


def integers(array: pa.Array) -> Ints:
    """Return days or microseconds as int64, 0 for NULL."""
    width = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    plain = array.view(width)
    if plain.null_count:
        plain = plain.fill_null(0)
    return plain.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def nulls(*arrays: pa.Array) -> Any:
    """Return the mask of NULL rows, or None if there are none."""
    mask = None
    for array in arrays:
        if array.null_count:
            here = array.is_null().to_numpy(zero_copy_only=False)
            mask = here if mask is None else mask | here
    return mask


def column(values: Ints, arrow: pa.DataType, mask: Any = None) -> pa.Array:
    """Return integers as a column of dates, times or timestamps."""
    if pa.types.is_date32(arrow):
        return pa.array(values.astype(np.int32), pa.int32(), mask=mask).view(arrow)
    return pa.array(values.astype(np.int64), pa.int64(), mask=mask).view(arrow)


def chosen(test: Any, one: Ints, other: Ints) -> Ints:
    """Return `one` where the test holds, else `other`: of columns, or of integers."""
    if isinstance(test, np.ndarray):
        return np.where(test, one, other)
    return one if test else other


def is_infinite(values: Ints) -> Any:
    """Return which timestamps are infinite."""
    return (values == LOWEST) | (values == HIGHEST)


def is_infinite_date(values: Ints) -> Any:
    """Return which dates are infinite."""
    return (values == DATE_LOWEST) | (values == DATE_HIGHEST)


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Return years, months and days of the month of days since 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    doe = shifted - era * 146_097
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    month = (5 * doy + 2) // 153
    day = doy - (153 * month + 2) // 5 + 1
    month = chosen(month < 10, month + 3, month - 9)
    return yoe + era * 400 + (month <= 2), month, day


def from_civil(year: Ints, month: Ints, day: Ints) -> Ints:
    """Return the days since 1970; `day` may lie outside its month."""
    year = year - (month <= 2)
    era = year // 400
    yoe = year - era * 400
    doy = (153 * chosen(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    return era * 146_097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719_468


def month_lengths(year: Ints, month: Ints) -> Ints:
    """Return the number of days of each month."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month]
    return lengths + ((month == 2) & leap)


def add_months(days: Ints, months: Ints) -> Ints:
    """Return the days `months` later; a day that does not exist becomes the last of its month."""
    year, month, day = civil(days)
    total = year * 12 + (month - 1) + months
    year, month = total // 12, total % 12 + 1
    return from_civil(year, month, np.minimum(day, month_lengths(year, month)))


def shifted(base: Ints, months: Ints, days: Ints, micros: Ints) -> tuple[Ints, Any]:
    """Return timestamps moved by months, days and microseconds, and which are out of range."""
    whole, rest = base // DAY, base % DAY
    if months.any():
        whole = np.where(months == 0, whole, add_months(whole, months))
    before = whole < DATE_LEAST  # though later days may lead back
    whole = whole + days
    rough = whole.astype(np.float64) * DAY + rest + micros.astype(np.float64)
    with np.errstate(all="ignore"):
        out = whole * DAY + rest + micros
    return out, is_beyond(out, rough) | before | (whole < DATE_LEAST)


def one_shifted(base: int, months: int, days: int, micros: int) -> int | None:
    """Return what `shifted` does of one timestamp; None if it is out of range."""
    whole, rest = divmod(base, DAY)
    if months:
        whole = int(add_months(whole, months))
    if whole < DATE_LEAST or whole + days < DATE_LEAST:
        return None
    out = (whole + days) * DAY + rest + micros
    return out if LEAST <= out <= MOST else None


def is_beyond(values: Ints, rough: Any) -> Any:
    """Return which timestamps are out of range; `rough` has them as floats.

    The integers have lost what is beyond 64 bits. The floats tell where, but for the last bits.
    """
    return (rough < LEAST - 1e6) | (rough > 9.3e18) | (values < LEAST) | (values > MOST)


def iso_week(days: Ints) -> tuple[Ints, Ints]:
    """Return the ISO years and weeks."""
    monday = days - (days + 3) % 7
    year, _, _ = civil(monday + 3)
    first = from_civil(year, 1, 4)
    first = first - (first + 3) % 7
    return year, (monday - first) // 7 + 1


# --- columns -----------------------------------------------------------------------------------

Interval = tuple[int, int, int]


def data_rows(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel that applies `compute` to data (see `foreshore.types`) row by row."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        return collect(types, compute, zip(*data, strict=True))

    return WithSingle(kernel, lambda types: single(compute, types.result))


def by_first(one: Callable[..., Outcome]) -> Kernel:
    """Return the kernel of a function whose first argument is usually the same text in all rows.

    `one(types, text, *arrays)` computes the rows of one text from the other arguments; a `Failure`
    or a `UserError` fails all of them.
    """

    def kernel(types: Signature, texts: pa.Array, *arrays: pa.Array) -> Outcome:
        arrow = arrow_type(types.result)
        single = only_value(texts)
        if single is not None:
            return _tried(one, types, single, *arrays)
        pieces: list[pa.Array] = [pa.nulls(1, arrow)]
        failures: list[pa.Array] = [pa.nulls(1, pa.string())]
        places = np.zeros(len(texts), dtype=np.int64)  # index of each row's text; 0 is NULL
        size = 1
        for text in texts.unique().to_pylist():
            if text is None:
                continue
            same = pc.equal(texts, text).fill_null(False).to_numpy(zero_copy_only=False)
            where = np.flatnonzero(same)
            outcome = _tried(one, types, text, *(x.take(pa.array(where)) for x in arrays))
            got, failed = outcome if isinstance(outcome, tuple) else (outcome, None)
            places[where] = size + np.arange(len(where))
            size += len(where)
            pieces.append(got)
            failures.append(pa.nulls(len(where), pa.string()) if failed is None else failed)
        order = pa.array(places)
        return pa.concat_arrays(pieces).take(order), pa.concat_arrays(failures).take(order)

    return kernel


def _tried(one: Any, types: Signature, text: str, *arrays: pa.Array) -> Outcome:
    try:
        return one(types, text, *arrays)
    except (Failure, UserError) as fault:
        error = text_of(fault)
    count = len(arrays[0])
    return pa.nulls(count, arrow_type(types.result)), pa.array([error] * count)


def faulty(types: Signature, values: Any, mask: Any, outside: Any, text: str) -> Outcome:
    """Return a column with errors in the rows `outside`."""
    if mask is not None:
        outside = outside & ~mask
    arrow = arrow_type(types.result)
    if not outside.any():
        return column(values, arrow, mask)
    missing = outside if mask is None else outside | mask
    kept = np.where(missing, 0, values)
    return column(kept, arrow, missing), text_where(outside, text)


def interval_fields(array: pa.Array) -> tuple[Any, Any, Any]:
    """Return months, days and microseconds as int64, 0 for NULL."""
    months, days, micros = (
        array.field(i).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        for i in range(3)
    )
    return months, days, micros


def checked_interval(months: int, days: int, micros: int) -> tuple[int, int, int]:
    """Return the interval, or an error if a field is out of range."""
    if (
        not -(2**31) <= months < 2**31
        or not -(2**31) <= days < 2**31
        or not -(2**63) <= micros < 2**63
    ):
        raise Failure(INTERVAL_RANGE)
    return months, days, micros


def intervals(months: Any, days: Any, micros: Any, mask: Any = None) -> pa.Array:
    """Return a column of intervals."""
    arrow = arrow_type(SqlType("interval"))
    fields = [
        pa.array(values.astype(np.int32 if i < 2 else np.int64), arrow.field(i).type)
        for i, values in enumerate((months, days, micros))
    ]
    nothing = None if mask is None or not mask.any() else pa.array(mask)
    return pa.StructArray.from_arrays(fields, fields=list(arrow), mask=nothing)


def zone_of(name: str) -> tzinfo:
    """Return the zone of AT TIME ZONE; raises InvalidParameterValue.

    Abbreviations take precedence, and a bare offset counts westwards, as in POSIX. A leading colon
    (also POSIX) marks a name as SET TIME ZONE takes it: the zone `:CET` has summer time, `CET` has
    none.
    """
    name = name.strip()
    if name.startswith(":"):
        return calendar.zone_named(name[1:])
    hours = ABBREVIATIONS.get(name.lower())
    if hours is not None:
        return timezone(timedelta(hours=hours)) if hours else UTC
    offset = re.match(r"([+-]?)([0-9].*)", name)
    if offset is not None:
        name = ("+" if offset[1] == "-" else "-") + offset[2]
    return calendar.zone_named(name)
