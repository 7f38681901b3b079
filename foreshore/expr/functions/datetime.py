"""Dates, times and intervals: arithmetic, truncation, fields, zones. The session's zone is UTC."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import calendar
from foreshore.errors import DatabaseError, data_error
from foreshore.expr.datum import from_array, to_array
from foreshore.expr.functions.decimals import pack, text_where
from foreshore.expr.functions.function import (
    NO_LITERAL,
    Kernel,
    Literals,
    Outcome,
    Renderer,
    Signature,
    declare,
    hidden,
)
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure, collect, fail, only_value
from foreshore.expr.functions.temporal import (
    DATE_HIGHEST,
    DATE_LEAST,
    DATE_LOWEST,
    DATE_MOST,
    DATE_RANGE,
    DAY,
    HIGHEST,
    HOUR,
    INTERVAL_RANGE,
    LEAST,
    LOWEST,
    MINUTE,
    SECOND,
    TIMESTAMP_RANGE,
    add_months,
    civil,
    column,
    from_civil,
    integers,
    is_infinite,
    is_infinite_date,
    iso_week,
    nulls,
)
from foreshore.types import SqlType, arrow_type, numeric_of_scale

STAMPS = ("timestamp", "timestamptz")


def data_rows(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel that applies `compute` to data (see `foreshore.types`), row by row."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        return collect(types, compute, zip(*data, strict=True))

    return kernel


def _faulty(types: Signature, values: Any, mask: Any, outside: Any, text: str) -> Outcome:
    """Return a column with errors where `outside`."""
    if mask is not None:
        outside = outside & ~mask
    arrow = arrow_type(types.result)
    if not outside.any():
        return column(values, arrow, mask)
    missing = outside if mask is None else outside | mask
    kept = np.where(missing, 0, values)
    return column(kept, arrow, missing), text_where(outside, text)


# --- intervals ---------------------------------------------------------------------------------


def interval_fields(array: pa.Array) -> tuple[Any, Any, Any]:
    """Return months, days and microseconds as int64, 0 for NULL."""
    months, days, micros = (
        array.field(i).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        for i in range(3)
    )
    return months, days, micros


def checked_interval(months: int, days: int, micros: int) -> tuple[int, int, int]:
    """Return the interval, an error where a field does not fit."""
    if (
        not -(2**31) <= months < 2**31
        or not -(2**31) <= days < 2**31
        or not -(2**63) <= micros < 2**63
    ):
        raise Failure(INTERVAL_RANGE)
    return months, days, micros


Interval = tuple[int, int, int]


def _add_intervals(a: Interval, b: Interval) -> Interval:
    return checked_interval(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _subtract_intervals(a: Interval, b: Interval) -> Interval:
    return checked_interval(a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _round_even(value: Fraction) -> int:
    return round(value)


def _scaled(a: Interval, factor: float, divide: bool) -> Interval:
    """Return an interval times or divided by a float, what is left of months going into days."""
    if factor != factor or (factor in (float("inf"), float("-inf")) and not divide):
        raise Failure(INTERVAL_RANGE)
    if divide and factor == 0:
        raise Failure(DIVISION_BY_ZERO)

    def apply(x: int) -> float:
        try:
            return x / factor if divide else x * factor
        except OverflowError:
            raise Failure(INTERVAL_RANGE) from None

    def whole(x: float) -> int:
        if not -9.3e18 < x < 9.3e18:
            raise Failure(INTERVAL_RANGE)
        return int(x)

    months = whole(apply(a[0]))
    days = whole(apply(a[1]))
    # Fractions of months become days of 30 to a month, those of days seconds; rounded as to micros.
    month_days = (apply(a[0]) - months) * 30
    month_days = _micro_rounded(month_days)
    seconds = _micro_rounded((apply(a[1]) - days + month_days - int(month_days)) * 86400)
    if abs(seconds) >= 86400:
        days += int(seconds / 86400)
        seconds -= int(seconds / 86400) * 86400
    days += int(month_days)
    micros = whole(float(np.rint(apply(a[2]) + seconds * 1_000_000)))
    return checked_interval(months, days, micros)


def _micro_rounded(x: float) -> float:
    return float(np.rint(x * 1_000_000) / 1_000_000)


def _negate_interval(a: Interval) -> Interval:
    return checked_interval(-a[0], -a[1], -a[2])


def _justify_hours(a: Interval) -> Interval:
    months, days, micros = a
    whole = (
        int(micros / DAY)
        if abs(micros) < 2**53
        else (abs(micros) // DAY) * (1 if micros > 0 else -1)
    )
    days, micros = days + whole, micros - whole * DAY
    if days > 0 > micros:
        days, micros = days - 1, micros + DAY
    elif days < 0 < micros:
        days, micros = days + 1, micros - DAY
    return checked_interval(months, days, micros)


def _justify_days(a: Interval) -> Interval:
    months, days, micros = a
    whole = abs(days) // 30 * (1 if days > 0 else -1)
    months, days = months + whole, days - whole * 30
    if months > 0 > days:
        months, days = months - 1, days + 30
    elif months < 0 < days:
        months, days = months + 1, days - 30
    return checked_interval(months, days, micros)


def _justify_interval(a: Interval) -> Interval:
    months, days, micros = a
    whole = abs(micros) // DAY * (1 if micros > 0 else -1)
    days, micros = days + whole, micros - whole * DAY
    whole = abs(days) // 30 * (1 if days > 0 else -1)
    months, days = months + whole, days - whole * 30
    if months > 0 and (days < 0 or (days == 0 and micros < 0)):
        months, days = months - 1, days + 30
    elif months < 0 and (days > 0 or (days == 0 and micros > 0)):
        months, days = months + 1, days - 30
    if days > 0 > micros:
        days, micros = days - 1, micros + DAY
    elif days < 0 < micros:
        days, micros = days + 1, micros - DAY
    return checked_interval(months, days, micros)


def _make_interval(*parts: Any) -> Interval:
    given = [*parts, 0, 0, 0, 0, 0, 0]
    years, months, weeks, days, hours, minutes, seconds = given[:7]
    micros = hours * HOUR + minutes * MINUTE + int(np.rint(seconds * 1e6))
    return checked_interval(years * 12 + months, weeks * 7 + days, micros)


# --- timestamps --------------------------------------------------------------------------------


def _shift_stamps(sign: int) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        values, (months, days, micros) = integers(a), interval_fields(b)
        if types.args[0].name == "date":
            values = _stamps_of_dates(values)[0]
        mask, infinite = nulls(a, b), is_infinite(values)
        base = np.where(infinite, 0, values)
        out, outside = _shifted(base, months * sign, days * sign, micros * sign)
        out = np.where(infinite, values, out)
        return _faulty(types, out, mask, outside & ~infinite, TIMESTAMP_RANGE)

    return kernel


def _shifted(base: Any, months: Any, days: Any, micros: Any) -> tuple[Any, Any]:
    whole, rest = base // DAY, base % DAY
    if months.any():
        whole = np.where(months == 0, whole, add_months(whole, months))
    whole = whole + days
    # In floats to see what int64 would lose; exact where it is near enough to matter.
    rough = whole.astype(np.float64) * DAY + rest + micros.astype(np.float64)
    outside = (rough < LEAST - 1e6) | (rough > 9.2233720e18)
    with np.errstate(all="ignore"):
        out = whole * DAY + rest + micros
    return out, outside | (out < LEAST)


def _stamps_of_dates(days: Any) -> tuple[Any, Any]:
    """Return midnights as timestamps, and which dates are beyond all timestamps."""
    infinite = is_infinite_date(days)
    outside = ~infinite & ((days < DATE_LEAST) | (days > 106_751_990))
    out = np.where(infinite | outside, 0, days) * DAY
    out = np.where(days == DATE_LOWEST, LOWEST, out)
    return np.where(days == DATE_HIGHEST, HIGHEST, out), outside


def _date_to_stamp(types: Signature, a: pa.Array) -> Outcome:
    out, outside = _stamps_of_dates(integers(a))
    text = data_error("22008", "date out of range for timestamp")
    return _faulty(types, out, nulls(a), outside, text)


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
    # PostgreSQL rounds what it counts from 2000.
    epoch = 0 if types.result.name == "time" else 946_684_800 * SECOND
    infinite = is_infinite(values)
    offset = np.where(infinite, 0, values) - epoch
    half = np.sign(offset) * ((np.abs(offset) + unit // 2) // unit * unit)
    return column(np.where(infinite, values, half + epoch), arrow_type(types.result), nulls(a))


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


def intervals(months: Any, days: Any, micros: Any, mask: Any = None) -> pa.Array:
    """Return a column of intervals."""
    arrow = arrow_type(SqlType("interval"))
    fields = [
        pa.array(values.astype(np.int32 if i < 2 else np.int64), arrow.field(i).type)
        for i, values in enumerate((months, days, micros))
    ]
    nothing = None if mask is None or not mask.any() else pa.array(mask)
    return pa.StructArray.from_arrays(fields, fields=list(arrow), mask=nothing)


def _date_plus(sign: int) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        days = integers(a)
        by = b.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * sign
        infinite, out = is_infinite_date(days), days + by
        outside = ~infinite & ((out < DATE_LEAST) | (out > DATE_MOST))
        return _faulty(types, np.where(infinite, days, out), nulls(a, b), outside, DATE_RANGE)

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
    out = np.where(infinite, stamps, np.where(infinite, 0, stamps) + integers(b))
    return _faulty(types, out, nulls(a, b), outside, TIMESTAMP_RANGE)


def _age(a: int, b: int) -> Interval:
    """Return the interval from b to a in years, months, days and time, each field of one sign."""
    if a in (LOWEST, HIGHEST) or b in (LOWEST, HIGHEST):
        raise fail("22008", "cannot subtract infinite timestamps")
    later, earlier = (a, b) if a >= b else (b, a)
    (y1, m1, d1), t1 = calendar.civil_from_days(later // DAY), later % DAY
    (y2, m2, d2), t2 = calendar.civil_from_days(earlier // DAY), earlier % DAY
    micros, days, months = t1 - t2, d1 - d2, (y1 - y2) * 12 + m1 - m2
    if micros < 0:
        micros, days = micros + DAY, days - 1
    while days < 0:
        days += calendar.days_in_month(y2, m2)  # borrowed from the month of the earlier one
        months -= 1
    return (months, days, micros) if a >= b else (-months, -days, -micros)


# --- truncation and fields ---------------------------------------------------------------------

_ALIASES = {
    "usec": "microseconds", "usecs": "microseconds", "microsecond": "microseconds",
    "useconds": "microseconds", "usecond": "microseconds", "us": "microseconds",
    "microsecon": "microseconds",
    "msec": "milliseconds", "msecs": "milliseconds", "millisecond": "milliseconds",
    "mseconds": "milliseconds", "msecond": "milliseconds", "ms": "milliseconds",
    "millisecon": "milliseconds",
    "sec": "second", "secs": "second", "seconds": "second", "s": "second",
    "min": "minute", "mins": "minute", "minutes": "minute", "m": "minute",
    "hr": "hour", "hrs": "hour", "hours": "hour", "h": "hour",
    "days": "day", "d": "day", "weeks": "week", "w": "week",
    "mon": "month", "mons": "month", "months": "month",
    "qtr": "quarter", "years": "year", "yr": "year", "yrs": "year", "y": "year",
    "decades": "decade", "dec": "decade", "decs": "decade",
    "centuries": "century", "cent": "century", "c": "century",
    "millennia": "millennium", "mil": "millennium", "mils": "millennium",
    "timezone_h": "timezone_hour", "timezone_m": "timezone_minute",
}  # fmt: skip
TRUNCATIONS = frozenset(
    [
        "microseconds",
        "milliseconds",
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
        "decade",
        "century",
        "millennium",
    ]
)
_CLOCK = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "milliseconds": 1000, "microseconds": 1}


def unit_of(name: str) -> str:
    """Return the canonical name of a unit of time."""
    lowered = name.strip().lower() if not name.isupper() else name.lower()
    return _ALIASES.get(lowered, lowered)


def display(type: SqlType) -> str:
    """Return the name that errors about units call a type by."""
    return str(type)


def _unknown_unit(unit: str, type: SqlType, *, known: bool) -> Failure:
    if known:
        return fail("0A000", f'unit "{unit}" not supported for type {display(type)}')
    return fail("22023", f'unit "{unit}" not recognized for type {display(type)}')


KNOWN_UNITS = TRUNCATIONS | frozenset(
    [
        "dow",
        "isodow",
        "doy",
        "isoyear",
        "epoch",
        "julian",
        "timezone",
        "timezone_hour",
        "timezone_minute",
    ]
)


def _truncate_days(unit: str, days: Any) -> Any:
    if unit == "week":
        return days - (days + 3) % 7
    if unit == "day":
        return days
    year, month, _ = civil(days)
    one = np.ones_like(year)
    match unit:
        case "month":
            return from_civil(year, month, one)
        case "quarter":
            return from_civil(year, (month - 1) // 3 * 3 + 1, one)
        case "year":
            start = year
        case "decade":
            start = np.where(year > 0, year // 10 * 10, -((8 - (year - 1)) // 10) * 10)
        case "century":
            start = np.where(
                year > 0, (year + 99) // 100 * 100 - 99, -((99 - (year - 1)) // 100) * 100 + 1
            )
        case _:
            start = np.where(
                year > 0,
                (year + 999) // 1000 * 1000 - 999,
                -((999 - (year - 1)) // 1000) * 1000 + 1,
            )
    return from_civil(start, one, one)


def _truncate(unit: str, values: Any) -> Any:
    infinite = is_infinite(values)
    safe = np.where(infinite, 0, values)
    if unit in _CLOCK:
        out = safe // _CLOCK[unit] * _CLOCK[unit]
    else:
        out = _truncate_days(unit, safe // DAY) * DAY
    return np.where(infinite, values, out)


def _by_unit(one: Callable[..., Outcome]) -> Kernel:
    """Return the kernel of a function whose first argument names a unit, mostly one for all rows."""

    def kernel(types: Signature, units: pa.Array, a: pa.Array, *rest: pa.Array) -> Outcome:
        arrow = arrow_type(types.result)
        single = only_value(units)
        if single is not None:
            return _try_unit(one, types, single, a, *rest)
        pieces: list[pa.Array] = [pa.nulls(1, arrow)]
        failures: list[pa.Array] = [pa.nulls(1, pa.string())]
        places = np.zeros(len(a), dtype=np.int64)  # where each row is in the pieces; 0 is NULL
        size = 1
        for unit in units.unique().to_pylist():
            if unit is None:
                continue
            same = pc.equal(units, unit).fill_null(False).to_numpy(zero_copy_only=False)
            where = np.flatnonzero(same)
            taken = [x.take(pa.array(where)) for x in (a, *rest)]
            outcome = _try_unit(one, types, unit, *taken)
            got, failed = outcome if isinstance(outcome, tuple) else (outcome, None)
            places[where] = size + np.arange(len(where))
            size += len(where)
            pieces.append(got)
            failures.append(pa.nulls(len(where), pa.string()) if failed is None else failed)
        order = pa.array(places)
        return pa.concat_arrays(pieces).take(order), pa.concat_arrays(failures).take(order)

    return kernel


def _try_unit(one: Any, types: Signature, unit: str, *arrays: pa.Array) -> Outcome:
    try:
        return one(types, unit, *arrays)
    except Failure as failure:
        count = len(arrays[0])
        return pa.nulls(count, arrow_type(types.result)), pa.array([failure.text] * count)


def _date_trunc(types: Signature, name: str, a: pa.Array) -> Outcome:
    unit = unit_of(name)
    type = types.args[1]
    if unit not in TRUNCATIONS:
        raise _unknown_unit(name.lower(), type, known=unit.startswith("timezone"))
    return column(_truncate(unit, integers(a)), arrow_type(types.result), nulls(a))


def _date_trunc_zone(types: Signature, name: str, a: pa.Array, zones: pa.Array) -> Outcome:
    unit = unit_of(name)
    if unit not in TRUNCATIONS:
        raise _unknown_unit(name.lower(), types.args[1], known=unit.startswith("timezone"))

    def compute(micros: int, zone_name: str) -> int:
        if micros in (LOWEST, HIGHEST):
            return micros
        zone = _zone_of(zone_name)
        local = micros + calendar.utc_offset(zone, micros) * SECOND
        cut = int(_truncate(unit, np.array([local], dtype=np.int64))[0])
        return cut - calendar.local_offset(zone, cut) * SECOND

    data = zip(from_array(a, types.args[1]), zones.to_pylist(), strict=True)
    return collect(types, compute, data)


def _trunc_interval(types: Signature, name: str, a: pa.Array) -> Outcome:
    unit = unit_of(name)
    if unit not in TRUNCATIONS:
        raise _unknown_unit(name.lower(), types.args[1], known=unit.startswith("timezone"))
    if unit == "week":
        raise fail("0A000", f'unit "{name.lower()}" not supported for type interval')
    spans = {
        "millennium": 12_000,
        "century": 1200,
        "decade": 120,
        "year": 12,
        "quarter": 3,
        "month": 1,
    }
    months, days, micros = interval_fields(a)
    zero = np.zeros_like(days)
    if unit in spans:
        cut = np.sign(months) * (np.abs(months) // spans[unit] * spans[unit])
        return intervals(cut, zero, zero, nulls(a))
    if unit == "day":
        return intervals(months, days, zero, nulls(a))
    step = _CLOCK[unit]
    return intervals(months, days, np.sign(micros) * (np.abs(micros) // step * step), nulls(a))


# Fields whose values are seconds, in units of their scale of digits after the point.
FIELD_SCALES = {"second": 6, "epoch": 6, "milliseconds": 3, "julian": 20}
# Fields that an infinite time has: infinity itself, which no numeric of ours is.
_UNBOUNDED = frozenset(["year", "decade", "century", "millennium", "epoch", "julian", "isoyear"])
_NOT_OF_DATE = frozenset(
    [
        "microseconds",
        "milliseconds",
        "second",
        "minute",
        "hour",
        "timezone",
        "timezone_hour",
        "timezone_minute",
    ]
)


def _bc(year: Any) -> Any:
    return np.where(year > 0, year, year - 1)


def _calendar_field(unit: str, days: Any) -> Any:
    if unit in ("week", "isoyear"):
        year, week = iso_week(days)
        return week if unit == "week" else _bc(year)
    if unit == "dow":
        return (days + 4) % 7
    if unit == "isodow":
        return (days + 3) % 7 + 1
    year, month, day = civil(days)
    one = np.ones_like(year)
    match unit:
        case "day":
            return day
        case "month":
            return month
        case "quarter":
            return (month - 1) // 3 + 1
        case "year":
            return _bc(year)
        case "decade":
            return np.where(year >= 0, year // 10, -((8 - (year - 1)) // 10))
        case "century":
            return np.where(year > 0, (year + 99) // 100, -((99 - (year - 1)) // 100))
        case "millennium":
            return np.where(year > 0, (year + 999) // 1000, -((999 - (year - 1)) // 1000))
        case "doy":
            return days - from_civil(year, one, one) + 1
        case _:
            return None


def _clock_field(unit: str, micros: Any) -> Any:
    """Return a field of times of day in units of its scale."""
    match unit:
        case "hour":
            return micros // HOUR
        case "minute":
            return micros // MINUTE % 60
        case "second":
            return micros % MINUTE
        case "milliseconds":
            return micros % MINUTE
        case "microseconds":
            return micros % MINUTE
        case _:
            return None


def _field_units(types: Signature, unit: str, name: str, a: pa.Array) -> tuple[Any, int, Any]:
    """Return a field's values as integers, the scale they are counted in, and which are infinite."""
    type = types.args[1]
    values = integers(a)
    scale = {"second": 6, "milliseconds": 3, "epoch": 6}.get(unit, 0)
    if type.name == "time":
        if unit == "epoch":
            return values, 6, np.zeros(len(values), bool)
        field = _clock_field(unit, values)
        if field is None:
            raise _unknown_unit(name.lower(), type, known=unit in KNOWN_UNITS)
        return field, scale, np.zeros(len(values), bool)
    if type.name == "date":
        if unit in _NOT_OF_DATE or unit not in KNOWN_UNITS:
            raise _unknown_unit(name.lower(), type, known=unit in KNOWN_UNITS)
        infinite = is_infinite_date(values)
        days = np.where(infinite, 0, values)
        if unit == "epoch":
            return days * 86_400, 0, infinite
        if unit == "julian":
            return days + 2_440_588, 0, infinite
        return _calendar_field(unit, days), 0, infinite
    infinite = is_infinite(values)
    safe = np.where(infinite, 0, values)
    if unit == "epoch":
        return safe, 6, infinite
    if unit.startswith("timezone"):
        if type.name != "timestamptz":
            raise _unknown_unit(name.lower(), type, known=True)
        return np.zeros_like(safe), 0, infinite
    if unit == "julian":
        units = [round(Fraction(m, DAY) * 10**20 + 2_440_588 * 10**20) for m in safe.tolist()]
        return np.array(units, dtype=object), 20, infinite
    field = _clock_field(unit, safe % DAY)
    if field is None:
        field = _calendar_field(unit, safe // DAY)
    if field is None:
        raise _unknown_unit(name.lower(), type, known=False)
    return field, scale, infinite


def _field_of_interval(types: Signature, unit: str, name: str, a: pa.Array) -> tuple[Any, int, Any]:
    months, days, micros = interval_fields(a)

    def whole(x: Any, by: int) -> Any:
        return np.sign(x) * (np.abs(x) // by)

    none = np.zeros(len(months), bool)
    year, month = whole(months, 12), np.sign(months) * (np.abs(months) % 12)
    match unit:
        case "year":
            return year, 0, none
        case "decade":
            return whole(year, 10), 0, none
        case "century":
            return whole(year, 100), 0, none
        case "millennium":
            return whole(year, 1000), 0, none
        case "month":
            return month, 0, none
        case "quarter":
            return whole(month, 3) + 1, 0, none
        case "day":
            return days, 0, none
        case "hour":
            return whole(micros, HOUR), 0, none
        case "minute":
            return np.sign(micros) * (np.abs(micros) // MINUTE % 60), 0, none
        case "second":
            return np.sign(micros) * (np.abs(micros) % MINUTE), 6, none
        case "milliseconds":
            return np.sign(micros) * (np.abs(micros) % MINUTE), 3, none
        case "microseconds":
            return np.sign(micros) * (np.abs(micros) % MINUTE), 0, none
        case "epoch":
            seconds = year * 31_557_600 + month * 2_592_000 + days * 86_400
            return seconds.astype(object) * SECOND + micros.astype(object), 6, none
        case _:
            known = unit in KNOWN_UNITS or unit == "week"
            raise _unknown_unit(name.lower(), types.args[1], known=known)


def _field(types: Signature, name: str, a: pa.Array) -> tuple[Any, int, Any, Any]:
    unit = unit_of(name)
    compute = _field_of_interval if types.args[1].name == "interval" else _field_units
    values, scale, infinite = compute(types, unit, name, a)
    mask = nulls(a)
    if mask is not None:
        infinite = infinite & ~mask
    missing = infinite if mask is None else infinite | mask
    failing = infinite if unit in _UNBOUNDED else np.zeros(len(infinite), bool)
    return values, scale, missing, failing


_INFINITE = data_error("0A000", "the numeric value Infinity is not supported")


def _extract(types: Signature, name: str, a: pa.Array) -> Outcome:
    values, scale, missing, failing = _field(types, name, a)
    target = types.result.scale or 0
    values = np.where(missing, 0, values)
    if scale < target:
        values = values.astype(object) * 10 ** (target - scale)
    elif scale > target:
        values = values // 10 ** (scale - target)
    result, _ = pack(values, pa.array(~missing) if missing.any() else None, target)
    if not failing.any():
        return result
    return result, text_where(failing, _INFINITE)


def _date_part(types: Signature, name: str, a: pa.Array) -> Outcome:
    values, scale, missing, failing = _field(types, name, a)
    if types.args[1].name in STAMPS or types.args[1].name == "date":
        signs = integers(a) > 0
        out = np.array([v / 10**scale for v in values.tolist()], dtype=np.float64)
        out = np.where(failing, np.where(signs, np.inf, -np.inf), out)
        missing = missing & ~failing
    else:
        out = np.array([v / 10**scale for v in values.tolist()], dtype=np.float64)
    return pa.array(out, pa.float64(), mask=missing)


def extract_type(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    """Return the type of EXTRACT: as many digits as the field has."""
    field = literals[0] if literals is not None else NO_LITERAL
    if isinstance(field, str):
        unit = unit_of(field)
        if types[1].name == "date" and unit in ("epoch", "julian"):
            return numeric_of_scale(0)
        return numeric_of_scale(FIELD_SCALES.get(unit, 0), trim=unit == "julian")
    return numeric_of_scale(6, trim=True)


# Fields that engines give as PostgreSQL does, by DuckDB's and Spark's names.
_NATIVE_FIELDS = {
    "year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute",
    "quarter": "quarter", "week": "week", "doy": "doy",
}  # fmt: skip


def quoted_literal(sql: str) -> str | None:
    """Return the text if `sql` is a plain string constant."""
    inner = sql[1:-1]
    if len(sql) >= 2 and sql[0] == sql[-1] == "'" and "'" not in inner and "\\" not in inner:
        return inner
    return None


def _bounds(dialect: Renderer, type: SqlType, sql: str) -> str:
    """Return SQL that is TRUE for times which any engine computes with, AD and not infinite."""
    low, high = ("0001-01-02", "9999-01-01")
    name = dialect.type_name(type)
    return f"{sql} >= CAST('{low}' AS {name}) AND {sql} < CAST('{high}' AS {name})"


def _extract_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    text, value = quoted_literal(args[0]), args[1]
    if (
        text is None
        or types.args[1].name not in ("timestamp", "timestamptz", "date")
        or len(value) > 120
    ):
        return None
    unit = unit_of(text)
    if unit in _NOT_OF_DATE and types.args[1].name == "date":
        return None
    field = _NATIVE_FIELDS.get(unit)
    if unit in ("dow", "isodow"):
        if dialect.name == "duckdb":
            body = f"extract({unit} FROM {value})"
        else:
            body = f"(dayofweek({value}) - 1)" if unit == "dow" else f"(weekday({value}) + 1)"
    elif field is not None:
        body = f"extract({field} FROM {value})"
    else:
        return None
    result = dialect.type_name(types.result)
    kernel = dialect.arrow_call(_key_of(types), types, args)  # type: ignore[attr-defined]
    return (
        f"(CASE WHEN {_bounds(dialect, types.args[1], value)} THEN CAST({body} AS {result})"
        f" WHEN {value} IS NOT NULL THEN {kernel} END)"
    )


def _key_of(types: Signature) -> str:
    return (
        f"{'date_part' if types.result.name == 'float8' else 'extract'}(text,{types.args[1].name})"
    )


def _date_trunc_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    text, value = quoted_literal(args[0]), args[1]
    if text is None or len(value) > 120:
        return None
    unit = unit_of(text)
    if unit not in ("second", "minute", "hour", "day", "week", "month", "quarter", "year"):
        return None
    name = dialect.type_name(types.result)
    kernel = dialect.arrow_call(f"date_trunc(text,{types.args[1].name})", types, args)  # type: ignore[attr-defined]
    return (
        f"(CASE WHEN {_bounds(dialect, types.args[1], value)}"
        f" THEN CAST(date_trunc('{unit}', {value}) AS {name})"
        f" WHEN {value} IS NOT NULL THEN {kernel} END)"
    )


def total_unit(key: str, literals: Literals, types: tuple[SqlType, ...]) -> bool:
    """Whether a call whose unit is known cannot fail."""
    unit = literals[0] if literals is not None else NO_LITERAL
    if not isinstance(unit, str):
        return False
    name = unit_of(unit)
    if len(types) != 2:
        return False
    if key.startswith("date_trunc"):
        return name in TRUNCATIONS and (name != "week" or types[1].name != "interval")
    if types[1].name not in ("timestamp", "timestamptz", "date"):
        return False
    if types[1].name == "date" and name in _NOT_OF_DATE:
        return False
    if name.startswith("timezone"):
        return False
    return name in KNOWN_UNITS and (key.startswith("date_part") or name not in _UNBOUNDED)


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
        raise fail("22008", f"date out of range: {year}-{month:02}-{day:02}")
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
    return _make_date(year, month, day) * DAY + _make_time(hour, minute, second)


def _to_timestamp(seconds: float) -> int:
    if seconds != seconds:
        raise fail("22008", "timestamp cannot be NaN")
    if seconds in (float("inf"), float("-inf")):
        return HIGHEST if seconds > 0 else LOWEST
    # PostgreSQL counts from 2000 in floats and rounds there.
    micros = float(np.rint((seconds - 946_684_800.0) * 1e6))
    if not LEAST - 946_684_800e6 <= micros < 9.2233720e18:
        raise fail("22008", f'timestamp out of range: "{seconds:g}"')
    return int(micros) + 946_684_800 * SECOND


def _zone_of(name: str) -> Any:
    """Return the zone of AT TIME ZONE, where a bare offset counts westwards, as POSIX has it."""
    offset = re.match(r"([+-]?)(\d.*)", name.strip())
    if offset is not None:
        name = ("+" if offset[1] == "-" else "-") + offset[2]
    return calendar.zone_named(name)


def _at_zone(zone_name: str, micros: int) -> int:
    """Return the local time of a timestamptz."""
    if micros in (LOWEST, HIGHEST):
        return micros
    zone = _zone_of(zone_name)
    return micros + calendar.utc_offset(zone, micros) * SECOND


def _of_zone(zone_name: str, micros: int) -> int:
    """Return the timestamptz of a local time."""
    if micros in (LOWEST, HIGHEST):
        return micros
    zone = _zone_of(zone_name)
    return micros - calendar.local_offset(zone, micros) * SECOND


def _interval_zone(sign: int) -> Callable[[Interval, int], int]:
    def compute(zone: Interval, micros: int) -> int:
        if zone[0] or zone[1]:
            raise fail("22023", "interval time zone must not include months or days")
        return micros if micros in (LOWEST, HIGHEST) else micros + sign * zone[2]

    return compute


def _zone(convert: Callable[[str, int], int]) -> Kernel:
    return data_rows(convert)


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
    outside = values > 9_223_372_036_854_775
    return _faulty(types, np.where(outside, 0, values) * 1000, nulls(a), outside, TIMESTAMP_RANGE)


def _time_of_interval(types: Signature, a: pa.Array) -> Outcome:
    return column(interval_fields(a)[2] % DAY, pa.time64("us"), nulls(a))


def _interval_of_time(types: Signature, a: pa.Array) -> Outcome:
    micros = integers(a)
    zero = np.zeros_like(micros)
    return intervals(zero, zero, micros, nulls(a))


def _interval_of_sums(months: Decimal, days: Decimal, micros: Decimal) -> Interval:
    return checked_interval(int(months), int(days), int(micros))


def _sums(types: Signature, *arrays: pa.Array) -> Outcome:
    return collect(types, _interval_of_sums, zip(*(a.to_pylist() for a in arrays), strict=True))


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
declare("+", "interval interval", "interval", data_rows(_add_intervals), stem="add", fallible=True)
declare(
    "-",
    "interval interval",
    "interval",
    data_rows(_subtract_intervals),
    stem="subtract",
    fallible=True,
)
declare("-", "interval", "interval", data_rows(_negate_interval), stem="negate", fallible=True)
declare(
    "*",
    "interval float8",
    "interval",
    data_rows(lambda a, f: _scaled(a, f, False)),
    stem="multiply",
    fallible=True,
)
declare(
    "*",
    "float8 interval",
    "interval",
    data_rows(lambda f, a: _scaled(a, f, False)),
    stem="multiply",
    fallible=True,
)
declare(
    "/",
    "interval float8",
    "interval",
    data_rows(lambda a, f: _scaled(a, f, True)),
    stem="divide",
    fallible=True,
)
hidden(
    "average(interval,int8)",
    "interval int8",
    "interval",
    data_rows(lambda a, n: None if n == 0 else _scaled(a, float(n), True)),
    fallible=True,
)
hidden(
    "interval_of_sums(numeric,numeric,numeric)",
    "numeric numeric numeric",
    "interval",
    _sums,
    fallible=True,
)
for _i, _part in enumerate(("months", "days", "micros")):
    hidden(
        f"interval_{_part}(interval)",
        "interval",
        "int8",
        lambda types, a, i=_i: pa.array(interval_fields(a)[i], pa.int64()),
        duckdb=lambda d, t, a, p=_part: f"CAST(({a[0]}).{p} AS BIGINT)",
        spark=lambda d, t, a, p=_part: f"CAST(({a[0]}).{p} AS BIGINT)",
    )
declare("justify_hours", "interval", "interval", data_rows(_justify_hours), fallible=True)
declare("justify_days", "interval", "interval", data_rows(_justify_days), fallible=True)
declare("justify_interval", "interval", "interval", data_rows(_justify_interval), fallible=True)
for _n in range(1, 8):
    _args = " ".join(["int4"] * min(_n, 6) + (["float8"] if _n == 7 else []))
    declare("make_interval", _args, "interval", data_rows(_make_interval), fallible=True)

for _t in STAMPS:
    declare(
        "+",
        f"{_t} interval",
        _t,
        _shift_stamps(1),
        stem="add",
        fallible=True,
        error=TIMESTAMP_RANGE,
    )
    declare(
        "+",
        f"interval {_t}",
        _t,
        _swapped(_shift_stamps(1)),
        stem="add",
        fallible=True,
        error=TIMESTAMP_RANGE,
    )
    declare(
        "-",
        f"{_t} interval",
        _t,
        _shift_stamps(-1),
        stem="subtract",
        fallible=True,
        error=TIMESTAMP_RANGE,
    )
    declare("-", f"{_t} {_t}", "interval", _difference, stem="subtract", fallible=True)
    declare("age", f"{_t} {_t}", "interval", data_rows(_age), fallible=True)
    declare("isfinite", _t, "bool", _isfinite)
    hidden(f"cast(date,{_t})", "date", _t, _date_to_stamp, fallible=True)
    hidden(f"cast({_t},date)", _t, "date", _stamp_to_date)
    hidden(f"cast({_t},time)", _t, "time", _stamp_to_time)
    hidden(f"cast({_t},{_t})", _t, _t, _round_stamp)
    hidden(f"cast({_t},mz_timestamp)", _t, "mz_timestamp", _millis, fallible=True)
    hidden(f"cast(mz_timestamp,{_t})", "mz_timestamp", _t, _from_millis, fallible=True)
declare(
    "+",
    "date interval",
    "timestamp",
    _shift_stamps(1),
    stem="add",
    fallible=True,
    error=TIMESTAMP_RANGE,
)
declare(
    "+",
    "interval date",
    "timestamp",
    _swapped(_shift_stamps(1)),
    stem="add",
    fallible=True,
    error=TIMESTAMP_RANGE,
)
declare(
    "-",
    "date interval",
    "timestamp",
    _shift_stamps(-1),
    stem="subtract",
    fallible=True,
    error=TIMESTAMP_RANGE,
)
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
hidden("cast(timestamp,timestamptz)", "timestamp", "timestamptz", _round_stamp)
hidden("cast(timestamptz,timestamp)", "timestamptz", "timestamp", _round_stamp)
hidden("cast(time,time)", "time", "time", _round_stamp)
hidden("cast(date,mz_timestamp)", "date", "mz_timestamp", _millis, fallible=True)
hidden("cast(time,interval)", "time", "interval", _interval_of_time)
hidden("cast(interval,time)", "interval", "time", _time_of_interval)

for _t in STAMPS:
    declare(
        "date_trunc",
        f"text {_t}",
        _t,
        _by_unit(_date_trunc),
        fallible=True,
        duckdb=_date_trunc_sql,
        spark=_date_trunc_sql,
    )
declare(
    "date_trunc", "text timestamptz text", "timestamptz", _by_unit(_date_trunc_zone), fallible=True
)
declare("date_trunc", "text interval", "interval", _by_unit(_trunc_interval), fallible=True)
for _t in ("timestamp", "timestamptz", "date", "time", "interval"):
    _render = _extract_sql if _t in ("timestamp", "timestamptz", "date") else None
    declare(
        "extract",
        f"text {_t}",
        extract_type,
        _by_unit(_extract),
        fallible=True,
        duckdb=_render,
        spark=_render,
    )
    declare(
        "date_part",
        f"text {_t}",
        "float8",
        _by_unit(_date_part),
        fallible=True,
        duckdb=_render,
        spark=_render,
    )

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
declare("timezone", "text timestamptz", "timestamp", _zone(_at_zone), fallible=True)
declare("timezone", "text timestamp", "timestamptz", _zone(_of_zone), fallible=True)
declare(
    "timezone", "interval timestamptz", "timestamp", data_rows(_interval_zone(1)), fallible=True
)
declare(
    "timezone", "interval timestamp", "timestamptz", data_rows(_interval_zone(-1)), fallible=True
)

__all__ = ["DatabaseError", "to_array"]
