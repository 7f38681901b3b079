"""Dates and times: arithmetic, conversion, construction.

These functions use UTC where PostgreSQL uses the session's time zone. `zones.py` has functions that
take the zone as an argument, which binding calls instead for sessions in another zone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import calendar
from foreshore.errors import data_error
from foreshore.expr.functions.decimals import text_where
from foreshore.expr.functions.function import (
    Kernel,
    One,
    Outcome,
    Signature,
    declare,
    hidden,
)
from foreshore.expr.functions.rows import Failure, fail
from foreshore.expr.functions.temporal import (
    DATE_HIGHEST,
    DATE_LEAST,
    DATE_LOWEST,
    DATE_MOST,
    DATE_OF_TIMESTAMP,
    DATE_RANGE,
    DAY,
    HIGHEST,
    HOUR,
    INTERVAL_RANGE,
    LEAST,
    LOWEST,
    MINUTE,
    MOST,
    SECOND,
    TIMESTAMP_RANGE,
    Interval,
    column,
    data_rows,
    faulty,
    integers,
    interval_fields,
    intervals,
    is_beyond,
    is_infinite,
    is_infinite_date,
    nulls,
    one_shifted,
    shifted,
)
from foreshore.interval_fields import truncated
from foreshore.types import arrow_type

STAMPS = ("timestamp", "timestamptz")


# --- timestamps --------------------------------------------------------------------------------


def _shift_stamps(sign: int) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        mask, values, (months, days, micros) = nulls(a, b), integers(a), interval_fields(b)
        undated = np.zeros(len(values), bool)
        if types.args[0].name == "date":
            values, undated = _stamps_of_dates(values)
        infinite = is_infinite(values)
        base = np.where(infinite, 0, values)
        out, outside = shifted(base, months * sign, days * sign, micros * sign)
        out = np.where(infinite, values, out)
        return _beyond(types, out, mask, undated, outside & ~infinite)

    return kernel


def _one_stamp(value: int, *, is_date: bool) -> int:
    """Return a timestamp, or the midnight of a date."""
    if not is_date:
        return value
    if value in (DATE_LOWEST, DATE_HIGHEST):
        return LOWEST if value == DATE_LOWEST else HIGHEST
    if not DATE_LEAST <= value <= MOST // DAY:
        raise Failure(DATE_OF_TIMESTAMP)
    return value * DAY


def _shift_of_one(sign: int, *, is_swapped: bool = False) -> One:
    def one(types: Signature) -> Callable[..., Any]:
        is_date = types.args[is_swapped].name == "date"

        def shift(value: int, span: Interval) -> int:
            stamp = _one_stamp(value, is_date=is_date)
            if stamp in (LOWEST, HIGHEST):
                return stamp
            found = one_shifted(stamp, *(sign * each for each in span))
            if found is None:
                raise Failure(TIMESTAMP_RANGE)
            return found

        return (lambda span, value: shift(value, span)) if is_swapped else shift

    return one


def _beyond(types: Signature, values: Any, mask: Any, undated: Any, outside: Any) -> Outcome:
    """Return timestamps of dates, with errors where the date, or the timestamp, is out of range."""
    if mask is not None:
        undated = undated & ~mask
    found = faulty(types, values, mask, undated | outside, TIMESTAMP_RANGE)
    if not undated.any():
        return found
    values, errors = found
    return values, pc.coalesce(text_where(undated, DATE_OF_TIMESTAMP), errors)


def _stamps_of_dates(days: Any) -> tuple[Any, Any]:
    """Return midnights as timestamps, and which dates are out of the range of timestamps."""
    infinite = is_infinite_date(days)
    outside = ~infinite & ((days < DATE_LEAST) | (days > MOST // DAY))
    out = np.where(infinite | outside, 0, days) * DAY
    out = np.where(days == DATE_LOWEST, LOWEST, out)
    return np.where(days == DATE_HIGHEST, HIGHEST, out), outside


def _date_to_stamp(types: Signature, a: pa.Array) -> Outcome:
    out, outside = _stamps_of_dates(integers(a))
    return faulty(types, out, nulls(a), outside, DATE_OF_TIMESTAMP)


def _date_to_compare(types: Signature, a: pa.Array) -> Outcome:
    """Return midnights as timestamps to compare with; later ones as the last timestamp."""
    days = integers(a)
    out, outside = _stamps_of_dates(days)
    return column(np.where(outside, MOST, out), arrow_type(types.result), nulls(a))


def _one_date(stamp: int) -> int:
    if stamp in (LOWEST, HIGHEST):
        return DATE_LOWEST if stamp == LOWEST else DATE_HIGHEST
    return stamp // DAY


def _stamp_to_date(types: Signature, a: pa.Array) -> Outcome:
    values = integers(a)
    out = values // DAY
    out = np.where(values == LOWEST, DATE_LOWEST, out)
    return column(np.where(values == HIGHEST, DATE_HIGHEST, out), pa.date32(), nulls(a))


def _stamp_to_time(types: Signature, a: pa.Array) -> Outcome:
    values = integers(a)
    infinite, mask = is_infinite(values), nulls(a)
    mask = infinite if mask is None else mask | infinite
    return column(values % DAY, pa.time64("us"), mask if mask.any() else None)


def _same_stamp(types: Signature, a: pa.Array) -> Outcome:
    return a.view(pa.int64()).view(arrow_type(types.result))


def _round_stamp(types: Signature, a: pa.Array) -> Outcome:
    """Round to the fractional digits of the result's type."""
    unit = 10 ** (6 - min(types.result.length if types.result.length is not None else 6, 6))
    if unit == 1:
        return _same_stamp(types, a)
    values = integers(a)
    # PostgreSQL rounds the offset from the year 2000.
    epoch = 0 if types.result.name == "time" else 946_684_800 * SECOND
    infinite = is_infinite(values)
    offset = np.where(infinite, 0, values) - epoch
    half = np.sign(offset) * ((np.abs(offset) + unit // 2) // unit * unit)
    out = np.where(infinite, values, half + epoch)
    beyond = ~infinite & (half > MOST - epoch)
    return faulty(types, out, nulls(a), beyond, TIMESTAMP_RANGE)


def _one_rounded(types: Signature) -> Callable[[Any], Any]:
    """Return what rounds one value as `_round_stamp` does."""
    unit: int = 10 ** (6 - min(types.result.length if types.result.length is not None else 6, 6))
    if unit == 1:
        return lambda value: value
    epoch = 0 if types.result.name == "time" else 946_684_800 * SECOND

    def rounded(value: int) -> int:
        if value in (LOWEST, HIGHEST):
            return value
        offset = value - epoch
        half = (abs(offset) + unit // 2) // unit * unit
        found = epoch + (half if offset > 0 else -half)
        if found > MOST:
            raise Failure(TIMESTAMP_RANGE)
        return found

    return rounded


def _rounds_stamps(types: Signature) -> bool:
    """Whether a cast rounds timestamps, of which the last has none above it."""
    return types.result.length is not None and types.result.length < 6


def _difference_of_one(types: Signature) -> Callable[..., Any]:
    def one(x: int, y: int) -> Interval:
        if {x, y} & {LOWEST, HIGHEST}:
            raise fail("22008", "cannot subtract infinite timestamps")
        micros = x - y
        if abs(micros) > 9.2233720e18:
            raise Failure(INTERVAL_RANGE)
        days = abs(micros) // DAY * (-1 if micros < 0 else 1)
        return 0, days, micros - days * DAY

    return one


def _difference(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    x, y, mask = integers(a), integers(b), nulls(a, b)
    infinite = is_infinite(x) | is_infinite(y)
    if mask is not None:
        infinite &= ~mask
    safe_x, safe_y = np.where(is_infinite(x), 0, x), np.where(is_infinite(y), 0, y)
    rough = safe_x.astype(np.float64) - safe_y.astype(np.float64)
    outside = infinite | (np.abs(rough) > 9.2233720e18)
    with np.errstate(all="ignore"):
        micros = safe_x - safe_y
    days = np.sign(micros) * (np.abs(micros) // DAY)
    missing = outside if mask is None else outside | mask
    result = intervals(np.zeros_like(days), days, micros - days * DAY, missing)
    if not outside.any():
        return result
    text = data_error("22008", "cannot subtract infinite timestamps")
    return result, pc.coalesce(text_where(infinite, text), text_where(outside, INTERVAL_RANGE))


def _date_plus(sign: int) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        days = integers(a)
        by = b.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * sign
        infinite, out = is_infinite_date(days), days + by
        outside = ~infinite & ((out < DATE_LEAST) | (out > DATE_MOST))
        return faulty(types, np.where(infinite, days, out), nulls(a, b), outside, DATE_RANGE)

    return kernel


def _int_plus_date(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    return _date_plus(1)(types, b, a)


def _date_minus_date(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    x, y, mask = integers(a), integers(b), nulls(a, b)
    infinite = is_infinite_date(x) | is_infinite_date(y)
    if mask is not None:
        infinite &= ~mask
    missing = infinite if mask is None else infinite | mask
    result = pa.array((x - y).astype(np.int64), pa.int64(), mask=missing).cast(
        pa.int32(), safe=False
    )
    if not infinite.any():
        return result
    text = data_error("22008", "cannot subtract infinite dates")
    return result, text_where(infinite, text)


def _swapped(kernel: Kernel) -> Kernel:
    def swapped(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        return kernel(Signature((types.args[1], types.args[0]), types.result), b, a)

    return swapped


def _time_shift(sign: int) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        _, _, micros = interval_fields(b)
        return column((integers(a) + sign * (micros % DAY)) % DAY, pa.time64("us"), nulls(a, b))

    return kernel


def _time_difference(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    micros = integers(a) - integers(b)
    zero = np.zeros_like(micros)
    return intervals(zero, zero, micros, nulls(a, b))


def _date_plus_time(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    stamps, outside = _stamps_of_dates(integers(a))
    infinite = is_infinite(stamps)
    base, micros = np.where(infinite, 0, stamps), integers(b)
    with np.errstate(all="ignore"):
        out = np.where(infinite, stamps, base + micros)
    beyond = ~infinite & is_beyond(out, base.astype(np.float64) + micros)
    return _beyond(types, out, nulls(a, b), outside, beyond)


def _age(a: int, b: int) -> Interval:
    """Return the interval from b to a in years, months, days and time, all of one sign."""
    if a in (LOWEST, HIGHEST) or b in (LOWEST, HIGHEST):
        raise fail("22008", "cannot subtract infinite timestamps")
    if a >= b:
        return span(a, b)
    months, days, micros = span(b, a)
    return -months, -days, -micros


def span(later: int, earlier: int) -> Interval:
    """Return months, days and microseconds between two local times, by the calendar.

    If a clock change makes the later moment's local time the earlier one, the months are negative,
    as in PostgreSQL.
    """
    (y1, m1, d1), t1 = calendar.civil_from_days(later // DAY), later % DAY
    (y2, m2, d2), t2 = calendar.civil_from_days(earlier // DAY), earlier % DAY
    micros, days, months = t1 - t2, d1 - d2, (y1 - y2) * 12 + m1 - m2
    if micros < 0:
        micros, days = micros + DAY, days - 1
    while days < 0:
        days += calendar.days_in_month(y2, m2)  # borrowed from the month of the earlier one
        months -= 1
    return months, days, micros


# --- construction, zones -----------------------------------------------------------------------


def _make_date(year: int, month: int, day: int) -> int:
    text = data_error("22008", f"date field value out of range: {year}-{month:02}-{day:02}")
    if year == 0 or not 1 <= month <= 12:
        raise Failure(text)
    internal = year + 1 if year < 0 else year
    if not 1 <= day <= calendar.days_in_month(internal, month):
        raise Failure(text)
    days = calendar.days_from_civil(internal, month, day)
    if not DATE_LEAST <= days <= DATE_MOST:
        raise fail("22008", f"date out of range: {internal}-{month:02}-{day:02}")
    return days


def _make_time(hour: int, minute: int, second: float) -> int:
    micros = int(np.rint(second * 1e6)) if second == second and abs(second) < 1e6 else -1
    whole = hour * HOUR + minute * MINUTE + micros
    if not (0 <= hour <= 24 and 0 <= minute < 60 and 0 <= micros <= MINUTE) or whole > DAY:
        shown = f"{hour}:{minute:02}:{second:02g}"
        raise fail("22008", f"time field value out of range: {shown}")
    return whole


def _make_timestamp(*parts: Any) -> int:
    year, month, day, hour, minute, second = parts
    # Of 4714 BC, some days are before all dates, but none of them is before November.
    before = year == -4714 and month == 11 and day < 24
    days = _make_date(year, month, 24 if before else day)
    micros = (days - (24 - day if before else 0)) * DAY + _make_time(hour, minute, second)
    if before or micros > MOST:
        shown = f"{year}-{month:02}-{day:02} {hour}:{minute:02}:{second:02g}"
        raise fail("22008", f"timestamp out of range: {shown}")
    return micros


def _to_timestamp(seconds: float) -> int:
    if seconds != seconds:
        raise fail("22008", "timestamp cannot be NaN")
    if seconds in (float("inf"), float("-inf")):
        return HIGHEST if seconds > 0 else LOWEST
    # PostgreSQL counts from 2000 in floats and rounds those.
    micros = float(np.rint((seconds - 946_684_800.0) * 1e6))
    if not LEAST - 946_684_800e6 <= micros < HIGHEST - 946_684_800e6:
        raise fail("22008", f'timestamp out of range: "{seconds:g}"')
    return int(micros) + 946_684_800 * SECOND


def check_zone(zone: Interval) -> None:
    """Raise the failure of an interval that is no offset from UTC."""
    if zone[0] or zone[1]:
        shown = calendar.format_interval(*zone)
        raise fail("22023", f'interval time zone "{shown}" must not include months or days')


def _interval_zone(sign: int) -> Callable[[Interval, int], int]:
    def compute(zone: Interval, micros: int) -> int:
        check_zone(zone)
        if micros in (LOWEST, HIGHEST):
            return micros
        moved = micros + sign * zone[2]
        if not LEAST <= moved <= MOST:
            raise Failure(TIMESTAMP_RANGE)
        return moved

    return compute


def _millis(types: Signature, a: pa.Array) -> Outcome:
    """Cast a time to mz_timestamp, milliseconds since 1970."""
    if types.args[0].name == "date":
        values, outside = _stamps_of_dates(integers(a))
    else:
        values = integers(a)
        outside = np.zeros(len(values), bool)
    outside = outside | (values < 0) | is_infinite(values)
    text = data_error("22003", "mz_timestamp out of range")
    mask = nulls(a)
    outside = outside if mask is None else outside & ~mask
    missing = outside if mask is None else outside | mask
    result = pa.array(np.where(missing, 0, values // 1000), pa.int64(), mask=missing)
    return (result, text_where(outside, text)) if outside.any() else result


def _from_millis(types: Signature, a: pa.Array) -> Outcome:
    values = integers(a)
    outside = values > MOST // 1000
    return faulty(types, np.where(outside, 0, values) * 1000, nulls(a), outside, TIMESTAMP_RANGE)


def _time_of_interval(types: Signature, a: pa.Array) -> Outcome:
    return column(interval_fields(a)[2] % DAY, pa.time64("us"), nulls(a))


def _declared_interval(types: Signature, a: pa.Array) -> Outcome:
    """Return the intervals with the declared fields and precision of the result."""
    months, days, micros = interval_fields(a)
    if types.result.fields is not None:
        months, days, micros = truncated(types.result.fields, months, days, micros)
    if types.result.length is not None:
        unit = 10 ** (6 - types.result.length)
        size = (np.abs(micros) + unit // 2) // unit * unit
        micros = np.sign(micros) * size
    return intervals(months, days, micros, nulls(a))


def _interval_of_time(types: Signature, a: pa.Array) -> Outcome:
    micros = integers(a)
    zero = np.zeros_like(micros)
    return intervals(zero, zero, micros, nulls(a))


def _isfinite(types: Signature, a: pa.Array) -> Outcome:
    values = integers(a)
    infinite = is_infinite_date(values) if types.args[0].name == "date" else is_infinite(values)
    return pa.array(~infinite)


hidden(
    "of_integer(int8)",
    "int8",
    "any",
    lambda types, a: column(integers(a), arrow_type(types.result), nulls(a)),
)


def _declare_shifts(type: str, result: str) -> None:
    """Declare the sums and the difference of a type and interval."""
    later, earlier = _shift_stamps(1), _shift_stamps(-1)
    for name, types, kernel, one, stem in (
        ("+", f"{type} interval", later, _shift_of_one(1), "add"),
        ("+", f"interval {type}", _swapped(later), _shift_of_one(1, is_swapped=True), "add"),
        ("-", f"{type} interval", earlier, _shift_of_one(-1), "subtract"),
    ):
        only = None if type == "date" else TIMESTAMP_RANGE
        declare(name, types, result, kernel, one=one, stem=stem, fallible=True, error=only)


for _t in STAMPS:
    _declare_shifts(_t, _t)
    declare(
        *("-", f"{_t} {_t}", "interval", _difference),
        one=_difference_of_one,
        stem="subtract",
        fallible=True,
    )
    declare("age", f"{_t} {_t}", "interval", data_rows(_age), fallible=True)
    declare("isfinite", _t, "bool", _isfinite)
    hidden(
        *(f"cast(date,{_t})", "date", _t, _date_to_stamp),
        one=lambda types: partial(_one_stamp, is_date=True),
        fallible=True,
    )
    hidden(f"compared(date,{_t})", "date", _t, _date_to_compare)
    hidden(f"cast({_t},date)", _t, "date", _stamp_to_date, one=lambda types: _one_date)
    hidden(f"cast({_t},time)", _t, "time", _stamp_to_time)
    for _other in STAMPS:
        hidden(
            f"cast({_t},{_other})",
            _t,
            _other,
            _round_stamp,
            one=_one_rounded,
            fallible=True,
            fails=_rounds_stamps,
            error=TIMESTAMP_RANGE,
        )
    hidden(f"cast({_t},mz_timestamp)", _t, "mz_timestamp", _millis, fallible=True)
    hidden(f"cast(mz_timestamp,{_t})", "mz_timestamp", _t, _from_millis, fallible=True)
_declare_shifts("date", "timestamp")
declare("+", "date int4", "date", _date_plus(1), stem="add", fallible=True, error=DATE_RANGE)
declare("+", "int4 date", "date", _int_plus_date, stem="add", fallible=True, error=DATE_RANGE)
declare("-", "date int4", "date", _date_plus(-1), stem="subtract", fallible=True, error=DATE_RANGE)
declare("-", "date date", "int4", _date_minus_date, stem="subtract", fallible=True)
declare("+", "time interval", "time", _time_shift(1), stem="add")
declare("+", "interval time", "time", _swapped(_time_shift(1)), stem="add")
declare("-", "time interval", "time", _time_shift(-1), stem="subtract")
declare("-", "time time", "interval", _time_difference, stem="subtract")
declare("+", "date time", "timestamp", _date_plus_time, stem="add", fallible=True)
declare("+", "time date", "timestamp", _swapped(_date_plus_time), stem="add", fallible=True)
declare("isfinite", "date", "bool", _isfinite)
declare("isfinite", "interval", "bool", lambda types, a: pa.repeat(True, len(a)))
hidden("cast(time,time)", "time", "time", _round_stamp, one=_one_rounded)
hidden("cast(date,mz_timestamp)", "date", "mz_timestamp", _millis, fallible=True)
hidden("cast(interval,interval)", "interval", "interval", _declared_interval)
hidden("cast(time,interval)", "time", "interval", _interval_of_time)
hidden("cast(interval,time)", "interval", "time", _time_of_interval)

declare("make_date", "int4 int4 int4", "date", data_rows(_make_date), fallible=True)
declare("make_time", "int4 int4 float8", "time", data_rows(_make_time), fallible=True)
declare(
    "make_timestamp",
    "int4 int4 int4 int4 int4 float8",
    "timestamp",
    data_rows(_make_timestamp),
    fallible=True,
)
declare(
    "make_timestamptz",
    "int4 int4 int4 int4 int4 float8",
    "timestamptz",
    data_rows(_make_timestamp),
    fallible=True,
)
declare("to_timestamp", "float8", "timestamptz", data_rows(_to_timestamp), fallible=True)
declare(
    "timezone", "interval timestamptz", "timestamp", data_rows(_interval_zone(1)), fallible=True
)
declare(
    "timezone", "interval timestamp", "timestamptz", data_rows(_interval_zone(-1)), fallible=True
)
