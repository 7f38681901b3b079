"""Intervals: months, days and microseconds; sums, products and normalisation."""

from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.expr.functions.function import (
    Outcome,
    Signature,
    declare,
    hidden,
)
from foreshore.expr.functions.interval_columns import by_columns, negated, scaled, sum_of
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure, collect, fail
from foreshore.expr.functions.temporal import (
    DAY,
    HOUR,
    INTERVAL_RANGE,
    MINUTE,
    Interval,
    checked_interval,
    data_rows,
    interval_fields,
)


def _add_intervals(a: Interval, b: Interval) -> Interval:
    return checked_interval(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _subtract_intervals(a: Interval, b: Interval) -> Interval:
    return checked_interval(a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _scaled(a: Interval, factor: float, divide: bool) -> Interval:
    """Return an interval times or divided by a float; fractions of months become days."""
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
    # Fractions of months become days (30 per month), those of days become rounded microseconds.
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
    if not abs(seconds) < 9.3e12:  # of infinity and NaN, too
        raise fail("22008", "interval out of range")
    micros = hours * HOUR + minutes * MINUTE + int(np.rint(seconds * 1e6))
    return checked_interval(years * 12 + months, weeks * 7 + days, micros)


def _interval_of_sums(months: Decimal, days: Decimal, micros: Decimal) -> Interval:
    return checked_interval(int(months), int(days), int(micros))


def _sums(types: Signature, *arrays: pa.Array) -> Outcome:
    return collect(types, _interval_of_sums, zip(*(a.to_pylist() for a in arrays), strict=True))


def between_intervals(low: Interval, high: Interval, share: float) -> Interval:
    """Return the interval at `share` of the way from `low` to `high`."""
    return _add_intervals(_scaled(_subtract_intervals(high, low), share, False), low)


_multiply = partial(scaled, divide=False)
_divide = partial(scaled, divide=True)

for _name, _args, _stem, _columns, _compute in (
    ("+", "interval interval", "add", sum_of, _add_intervals),
    ("-", "interval interval", "subtract", partial(sum_of, sign=-1), _subtract_intervals),
    ("-", "interval", "negate", negated, _negate_interval),
    ("*", "interval float8", "multiply", _multiply, lambda a, f: _scaled(a, f, False)),
    (
        *("*", "float8 interval", "multiply"),
        *(lambda f, a: _multiply(a, f), lambda f, a: _scaled(a, f, False)),
    ),
    ("/", "interval float8", "divide", _divide, lambda a, f: _scaled(a, f, True)),
):
    _kernel = by_columns(_columns, data_rows(_compute))
    declare(_name, _args, "interval", _kernel, stem=_stem, fallible=True)
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
for _name, _compute in (
    ("justify_hours", _justify_hours),
    ("justify_days", _justify_days),
    ("justify_interval", _justify_interval),
):
    declare(_name, "interval", "interval", data_rows(_compute), fallible=True)
for _n in range(1, 8):
    _args = " ".join(["int4"] * min(_n, 6) + (["float8"] if _n == 7 else []))
    declare("make_interval", _args, "interval", data_rows(_make_interval), fallible=True)
