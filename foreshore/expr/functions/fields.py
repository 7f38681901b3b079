"""Fields of dates, times and intervals: EXTRACT, date_part and date_trunc."""

import math
from collections.abc import Callable, Sequence
from decimal import Context
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.datum import numeric_datum
from foreshore.errors import data_error
from foreshore.expr.functions.decimals import pack, text_where
from foreshore.expr.functions.function import (
    NO_LITERAL,
    Literals,
    Outcome,
    Renderer,
    Signature,
    declare,
    quoted_literal,
)
from foreshore.expr.functions.rows import Failure, WithSingle, fail
from foreshore.expr.functions.temporal import (
    DAY,
    HOUR,
    LEAST,
    LOWEST,
    MINUTE,
    SECOND,
    TIMESTAMP_RANGE,
    by_first,
    chosen,
    civil,
    faulty,
    from_civil,
    integers,
    interval_fields,
    intervals,
    is_infinite,
    is_infinite_date,
    iso_week,
    nulls,
)
from foreshore.types import TEXT, Datum, SqlType, numeric_of_scale

STAMPS = ("timestamp", "timestamptz")

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
# Units of a day or more: a value truncated to one is a midnight.
_YEARLY = frozenset(["month", "quarter", "year", "decade", "century", "millennium"])
TRUNCATED_DAYS = TRUNCATIONS - {"microseconds", "milliseconds", "second", "minute", "hour"}
_CLOCK = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "milliseconds": 1000, "microseconds": 1}


def unit_of(name: str) -> str:
    """Return the canonical name of a unit of time."""
    lowered = name.strip().lower() if not name.isupper() else name.lower()
    return _ALIASES.get(lowered, lowered)


def display(type: SqlType) -> str:
    """Return the name of a type in errors about units."""
    return str(type)


def _unknown_unit(unit: str, type: SqlType, *, known: bool) -> Failure:
    if known:
        return fail("0A000", f'unit "{unit}" not supported for type {display(type)}')
    return fail("22023", f'unit "{unit}" not recognized for type {display(type)}')


OFFSET_FIELDS = frozenset(["timezone", "timezone_hour", "timezone_minute"])
KNOWN_UNITS = TRUNCATIONS | OFFSET_FIELDS | {"dow", "isodow", "doy", "isoyear", "epoch", "julian"}


def _truncate_days(unit: str, days: Any) -> Any:
    if unit == "week":
        return days - (days + 3) % 7
    if unit == "day":
        return days
    year, month, _ = civil(days)
    match unit:
        case "month":
            return from_civil(year, month, 1)
        case "quarter":
            return from_civil(year, (month - 1) // 3 * 3 + 1, 1)
        case "year":
            start = year
        case "decade":
            start = chosen(year > 0, year // 10 * 10, -((8 - (year - 1)) // 10) * 10)
        case "century":
            start = chosen(
                year > 0, (year + 99) // 100 * 100 - 99, -((99 - (year - 1)) // 100) * 100 + 1
            )
        case _:
            start = chosen(
                year > 0,
                (year + 999) // 1000 * 1000 - 999,
                -((999 - (year - 1)) // 1000) * 1000 + 1,
            )
    return from_civil(start, 1, 1)


def truncated(unit: str, values: Any) -> Any:
    """Return timestamps truncated to the unit, one of `TRUNCATIONS`."""
    infinite = is_infinite(values)
    safe = chosen(infinite, 0, values)
    if unit in _CLOCK:
        out = safe // _CLOCK[unit] * _CLOCK[unit]
    else:
        out = _truncate_days(unit, safe // DAY) * DAY
    return chosen(infinite, values, out)


def truncation(name: str, type: SqlType) -> str:
    """Return the unit `name` for truncating times of `type`; raises Failure."""
    unit = unit_of(name)
    if unit not in TRUNCATIONS:
        raise _unknown_unit(name.lower(), type, known=unit.startswith("timezone"))
    return unit


def _date_trunc(types: Signature, name: str, a: pa.Array) -> Outcome:
    unit = truncation(name, types.args[1])
    values = integers(a)
    out = truncated(unit, values)
    return faulty(types, out, nulls(a), (out < LEAST) & (values != LOWEST), TIMESTAMP_RANGE)


def _one_truncated(types: Signature) -> Callable[..., Any]:
    """Return date_trunc of single values."""

    def one(name: str, value: int) -> int:
        found: int = truncated(truncation(name, types.args[1]), value)
        if found < LEAST and value != LOWEST:
            raise Failure(TIMESTAMP_RANGE)
        return found

    return one


def _trunc_error(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    """Return SQL for the error of a time whose unit, a literal, begins before all times."""
    text, value = quoted_literal(args[0]), args[1]
    if text is None or unit_of(text) not in _YEARLY:
        return None
    first = int(_first_boundary(unit_of(text)))
    from_, to = (dialect.literal(each, types.args[1]) for each in (LEAST, first))
    error = dialect.literal(TIMESTAMP_RANGE, TEXT)
    return f"CASE WHEN {value} >= {from_} AND {value} < {to} THEN {error} END"


@cache
def _first_boundary(unit: str) -> int:
    """Return the first timestamp at which a unit of months or years begins."""
    days = np.arange(LEAST // DAY, LEAST // DAY + 400_000)
    return int(days[_truncate_days(unit, days) == days][0]) * DAY


def _trunc_interval(types: Signature, name: str, a: pa.Array) -> Outcome:
    unit = truncation(name, types.args[1])
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


# Fields whose values are seconds, and the digits after the point of their units.
FIELD_SCALES = {"second": 6, "epoch": 6, "milliseconds": 3, "julian": 20}
# Fields that are infinite for an infinite time, which our numeric cannot represent.
_UNBOUNDED = frozenset(["year", "decade", "century", "millennium", "epoch", "julian", "isoyear"])
_NOT_OF_DATE = OFFSET_FIELDS | {"microseconds", "milliseconds", "second", "minute", "hour"}


def _bc(year: Any) -> Any:
    return chosen(year > 0, year, year - 1)


def _calendar_field(unit: str, days: Any) -> Any:
    if unit in ("week", "isoyear"):
        year, week = iso_week(days)
        return week if unit == "week" else _bc(year)
    if unit == "dow":
        return (days + 4) % 7
    if unit == "isodow":
        return (days + 3) % 7 + 1
    year, month, day = civil(days)
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
            return chosen(year >= 0, year // 10, -((8 - (year - 1)) // 10))
        case "century":
            return chosen(year > 0, (year + 99) // 100, -((99 - (year - 1)) // 100))
        case "millennium":
            return chosen(year > 0, (year + 999) // 1000, -((999 - (year - 1)) // 1000))
        case "doy":
            return days - from_civil(year, 1, 1) + 1
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


def _offset_field(unit: str, seconds: Any) -> Any:
    """Return a field of offsets from UTC, all of one sign."""
    sign, size = np.sign(seconds), np.abs(seconds)
    match unit:
        case "timezone_hour":
            return sign * (size // 3600)
        case "timezone_minute":
            return sign * (size // 60 % 60)
        case _:
            return seconds


def _julian(micros: int) -> int:
    """Return the Julian day of a time, with 20 digits after the point."""
    return round(Fraction(micros, DAY) * 10**20 + 2_440_588 * 10**20)


def _field_units(
    types: Signature, unit: str, name: str, values: Any, offsets: Any
) -> tuple[Any, int, Any]:
    """Return a field of times as integers, their scale, and which of them are infinite."""
    type = types.args[1]
    never = values != values
    scale = {"second": 6, "milliseconds": 3, "epoch": 6}.get(unit, 0)
    if type.name in ("time", "timetz"):
        if unit == "epoch":
            return values - offsets, 6, never
        if unit.startswith("timezone") and type.name == "timetz":
            return _offset_field(unit, offsets // SECOND + values * 0), 0, never
        field = _clock_field(unit, values)
        if field is None:
            raise _unknown_unit(name.lower(), type, known=unit in KNOWN_UNITS)
        return field, scale, never
    if type.name == "date":
        if unit in _NOT_OF_DATE or unit not in KNOWN_UNITS:
            raise _unknown_unit(name.lower(), type, known=unit in KNOWN_UNITS)
        infinite = is_infinite_date(values)
        days = chosen(infinite, 0, values)
        if unit == "epoch":
            return days * 86_400, 0, infinite
        if unit == "julian":
            return days + 2_440_588, 0, infinite
        return _calendar_field(unit, days), 0, infinite
    infinite = is_infinite(values)
    safe = chosen(infinite, 0, values)
    if unit == "epoch":
        return safe, 6, infinite
    if unit.startswith("timezone"):
        if type.name != "timestamptz":
            raise _unknown_unit(name.lower(), type, known=True)
        return _offset_field(unit, offsets // SECOND + safe * 0), 0, infinite
    safe = safe + offsets
    if unit == "julian":
        if isinstance(safe, int):
            return _julian(safe), 20, infinite
        return np.array([_julian(m) for m in safe.tolist()], dtype=object), 20, infinite
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


def _field(types: Signature, name: str, a: pa.Array, offsets: Any) -> tuple[Any, int, Any, Any]:
    unit = unit_of(name)
    if types.args[1].name == "interval":
        values, scale, infinite = _field_of_interval(types, unit, name, a)
    else:
        values, scale, infinite = _field_units(types, unit, name, integers(a), offsets)
    mask = nulls(a)
    if mask is not None:
        infinite = infinite & ~mask
    missing = infinite if mask is None else infinite | mask
    failing = infinite if unit in _UNBOUNDED else np.zeros(len(infinite), bool)
    return values, scale, missing, failing


_EXACT = Context(prec=60)
INFINITE = data_error("0A000", "the numeric value Infinity is not supported")


def extract(types: Signature, name: str, a: pa.Array, offsets: Any = 0) -> Outcome:
    """Return EXTRACT of one unit; `offsets` are the zone's offsets, in microseconds east."""
    values, scale, missing, failing = _field(types, name, a, offsets)
    target = types.result.scale or 0
    values = np.where(missing, 0, values)
    if scale < target:
        values = values.astype(object) * 10 ** (target - scale)
    elif scale > target:
        values = values // 10 ** (scale - target)
    result, _ = pack(values, pa.array(~missing) if missing.any() else None, target)
    if not failing.any():
        return result
    return result, text_where(failing, INFINITE)


def date_part(types: Signature, name: str, a: pa.Array, offsets: Any = 0) -> Outcome:
    """Return date_part of one unit, like `extract`."""
    values, scale, missing, failing = _field(types, name, a, offsets)
    if types.args[1].name in STAMPS or types.args[1].name == "date":
        signs = integers(a) > 0
        out = np.array([v / 10**scale for v in values.tolist()], dtype=np.float64)
        out = np.where(failing, np.where(signs, np.inf, -np.inf), out)
        missing = missing & ~failing
    else:
        out = np.array([v / 10**scale for v in values.tolist()], dtype=np.float64)
    return pa.array(out, pa.float64(), mask=missing)


def _one_field(types: Signature) -> Callable[..., Datum] | None:
    """Return EXTRACT, or date_part, of single values."""
    source, result = types.args[1], types.result
    if source.name == "interval":
        return None
    target = result.scale or 0

    def one(name: str, value: int) -> Datum:
        unit = unit_of(name)
        units, scale, is_infinite = _field_units(types, unit, name, value, 0)
        if is_infinite:
            if unit not in _UNBOUNDED:
                return None
            if result.name == "float8":
                return math.inf if value > 0 else -math.inf
            raise Failure(INFINITE)
        if result.name == "float8":
            return float(units / 10**scale)
        if scale < target:
            units *= 10 ** (target - scale)
        else:
            units //= 10 ** (scale - target)
        return numeric_datum(_EXACT.scaleb(int(units), -target), result)

    return one


def extract_type(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    """Return the type of EXTRACT, with the digits of the field."""
    field = literals[0] if literals is not None else NO_LITERAL
    if isinstance(field, str):
        unit = unit_of(field)
        if types[1].name == "date" and unit in ("epoch", "julian"):
            return numeric_of_scale(0)
        return numeric_of_scale(FIELD_SCALES.get(unit, 0), trim=unit == "julian")
    return numeric_of_scale(6, trim=True)


# Fields that engines compute as PostgreSQL does, by DuckDB's and Spark's names.
_NATIVE_FIELDS = {
    "year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute",
    "quarter": "quarter", "week": "week", "doy": "doy",
}  # fmt: skip


def _bounds(dialect: Renderer, type: SqlType, sql: str) -> str:
    """Return SQL that is TRUE for finite AD times, which all engines handle."""
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
    """Return whether a call with a known unit cannot fail."""
    unit = literals[0] if literals is not None else NO_LITERAL
    if not isinstance(unit, str):
        return False
    name = unit_of(unit)
    if len(types) != 2:
        return False
    if key.startswith("date_trunc"):
        if types[1].name == "interval":
            return name in TRUNCATIONS and name != "week"
        return name in TRUNCATIONS - _YEARLY
    if types[1].name not in ("timestamp", "timestamptz", "date"):
        return False
    if types[1].name == "date" and name in _NOT_OF_DATE:
        return False
    if name.startswith("timezone"):
        return False
    return name in KNOWN_UNITS and (key.startswith("date_part") or name not in _UNBOUNDED)


for _t in STAMPS:
    declare(
        "date_trunc",
        f"text {_t}",
        _t,
        WithSingle(by_first(_date_trunc), _one_truncated),
        fallible=True,
        duckdb=_date_trunc_sql,
        spark=_date_trunc_sql,
        error_sql=_trunc_error,
    )
declare("date_trunc", "text interval", "interval", by_first(_trunc_interval), fallible=True)
for _t in ("timestamp", "timestamptz", "date", "time", "interval"):
    _render = _extract_sql if _t in ("timestamp", "timestamptz", "date") else None
    declare(
        "extract",
        f"text {_t}",
        extract_type,
        WithSingle(by_first(extract), _one_field),
        fallible=True,
        duckdb=_render,
        spark=_render,
    )
    declare(
        "date_part",
        f"text {_t}",
        "float8",
        WithSingle(by_first(date_part), _one_field),
        fallible=True,
        duckdb=_render,
        spark=_render,
    )
