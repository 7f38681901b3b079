"""time with time zone: arithmetic, fields, zones and casts.

What PostgreSQL computes in the session's time zone uses UTC here; `zones.py` says how statements of
another zone are computed.
"""

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore import calendar
from foreshore.expr.functions.datetime import check_zone
from foreshore.expr.functions.fields import date_part, extract, extract_type
from foreshore.expr.functions.function import Outcome, Signature, declare, hidden
from foreshore.expr.functions.rows import collect, fail
from foreshore.expr.functions.temporal import (
    DATE_HIGHEST,
    DATE_LOWEST,
    DAY,
    HIGHEST,
    LEAST,
    LOWEST,
    MOST,
    SECOND,
    Interval,
    by_first,
    data_rows,
    zone_of,
)
from foreshore.text import parse_text, round_micros
from foreshore.zoned_times import at_offset, stored_zoned_time, zoned_time_of

_MOST_SECONDS = 2**31  # of an offset that a time holds


def _moved(datum: bytes, by: Interval, sign: int) -> bytes:
    micros, offset = zoned_time_of(datum)
    return stored_zoned_time((micros + sign * by[2]) % DAY, offset)


def _moment(day: int, datum: bytes) -> int:
    """Return the moment of a time of day on a date."""
    if day in (DATE_LOWEST, DATE_HIGHEST):
        return LOWEST if day == DATE_LOWEST else HIGHEST
    micros, offset = zoned_time_of(datum)
    moment = day * DAY + micros - offset * SECOND
    if not LEAST <= moment <= MOST:
        raise fail("22008", "timestamp out of range")
    return moment


def _rounded(types: Signature, a: pa.Array) -> Outcome:
    def one(datum: bytes) -> bytes:
        micros, offset = zoned_time_of(datum)
        length = types.result.length
        return stored_zoned_time(micros if length is None else round_micros(micros, length), offset)

    return data_rows(one)(types, a)


def _local(types: Signature, a: pa.Array) -> Outcome:
    digits = 6 if types.result.length is None else types.result.length
    return data_rows(lambda datum: round_micros(zoned_time_of(datum)[0], digits))(types, a)


def _zoned(types: Signature, a: pa.Array, zone: Any = None) -> Outcome:
    """Return times of day, or moments, at the offset of `zone`, by default in UTC."""
    of_moments, length = types.args[-1].name == "timestamptz", types.result.length

    def one(value: int) -> bytes | None:
        if of_moments and value in (LOWEST, HIGHEST):
            return None
        offset = _offset(zone, value if of_moments else None)
        micros = (value + offset * SECOND) % DAY if of_moments else value
        return stored_zoned_time(micros if length is None else round_micros(micros, length), offset)

    return data_rows(one)(Signature(types.args[-1:], types.result), a)


def _offset(zone: Any, moment: int | None) -> int:
    """Return the offset of a zone, at a moment if it is known; fails where it is not and counts."""
    if zone is None:
        return 0
    if moment is not None:
        return calendar.utc_offset(zone, moment)
    fixed: timedelta | None = zone.utcoffset(None)
    if fixed is None:
        raise fail("0A000", "a time without an offset is not supported in a zone with summer time")
    return round(fixed.total_seconds())


def _in_zone(types: Signature, name: str, a: pa.Array) -> Outcome:
    """Return the times at the offset of a zone."""
    offset = _offset(zone_of(name), None)
    return data_rows(lambda datum: at_offset(datum, offset))(
        Signature(types.args[1:], types.result), a
    )


def _at_interval(zone: Interval, datum: bytes) -> bytes:
    check_zone(zone)
    offset = zone[2] // SECOND
    if abs(offset) >= _MOST_SECONDS:
        raise fail("22009", "time zone displacement out of range")
    return at_offset(datum, offset)


def _read(types: Signature, name: str, a: pa.Array) -> Outcome:
    zone = name.removeprefix(":")
    return collect(
        types, lambda text: parse_text(text, types.result, zone=zone), ((t,) for t in a.to_pylist())
    )


def _field(field: Any) -> Any:
    """Return EXTRACT or date_part of one unit."""

    def one(types: Signature, unit: str, a: pa.Array) -> Outcome:
        values = [None if d is None else zoned_time_of(d) for d in a.to_pylist()]
        micros = pa.array([None if v is None else v[0] for v in values], pa.int64())
        offsets = np.array([0 if v is None else v[1] * SECOND for v in values], np.int64)
        return field(types, unit, micros, offsets)

    return one


declare("+", "timetz interval", "timetz", data_rows(lambda a, b: _moved(a, b, 1)), stem="add")
declare("+", "interval timetz", "timetz", data_rows(lambda b, a: _moved(a, b, 1)), stem="add")
declare("-", "timetz interval", "timetz", data_rows(lambda a, b: _moved(a, b, -1)), stem="subtract")
declare("+", "date timetz", "timestamptz", data_rows(_moment), stem="add", fallible=True)
declare(
    *("+", "timetz date", "timestamptz", data_rows(lambda a, day: _moment(day, a))),
    stem="add",
    fallible=True,
)
declare("timezone", "text timetz", "timetz", by_first(_in_zone), fallible=True)
declare("timezone", "interval timetz", "timetz", data_rows(_at_interval), fallible=True)
declare("extract", "text timetz", extract_type, by_first(_field(extract)), fallible=True)
declare("date_part", "text timetz", "float8", by_first(_field(date_part)), fallible=True)
hidden("cast(timetz,timetz)", "timetz", "timetz", _rounded)
hidden("cast(timetz,time)", "timetz", "time", _local)
for _t in ("time", "timestamptz"):
    hidden(f"cast({_t},timetz)", _t, "timetz", _zoned)
    hidden(
        *(f"timetz_of_{_t}(text,{_t})", f"text {_t}", "timetz"),
        by_first(lambda types, name, a: _zoned(types, a, zone_of(name))),
        fallible=True,
    )
hidden("timetz_of_text(text,text)", "text text", "timetz", by_first(_read), fallible=True)
