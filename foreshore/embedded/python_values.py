"""The Python values of columns, for rows as tuples.

Arrow's own values, but for these:

    interval       datetime.timedelta where it has no months; else, and beyond what a timedelta
                   holds, pyarrow.MonthDayNano, which has months, days and nanoseconds
    json, jsonb    dict, list, str, int, float, bool, None: what json.loads gives. A number that no
                   float has exactly as written, or of more than 4,300 digits, is a Decimal
    date, time, timestamp, timestamptz
                   the text of SQL where Python has no such value: infinity, years before 1 and
                   after 9999, 24:00
    numeric        a Decimal without the zeros that Arrow's scale adds, if none was declared; also
                   NaN and the infinities

A JSON null and NULL are both None. Arrays have lists of these.
"""

import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import StatementTooComplex
from foreshore.exact_numeric import EXACT_NUMERIC, UNSCALED, decimals

JSON = pa.json_(pa.string())
DAY_MICROS = 86_400_000_000
_SURE_CHARACTERS = 16  # of a number that a float keeps: 15 digits and the point
_MOST_DIGITS = 4_300  # of an int that Python reads


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column; raises StatementTooComplex for JSON that is too deep."""
    if column.type == EXACT_NUMERIC:
        return [None if each is None else without_zeros(each) for each in decimals(column)]
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value(each) for each in column]
    if pa.types.is_time64(column.type):  # Arrow has 24:00 as 00:00
        midnights = pc.fill_null(pc.equal(column.cast(pa.int64()), DAY_MICROS), False).to_pylist()
        return ["24:00:00" if is_24 else v for v, is_24 in zip(values, midnights, strict=True)]
    convert = _converter(column.type)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _converter(type: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how values of a type that are not NULL are converted; None if they are not."""
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        convert = _converter(type.value_type)
        if convert is None:
            return None
        return lambda values: [None if v is None else convert(v) for v in values]
    if type == UNSCALED:
        return without_zeros
    if type == EXACT_NUMERIC:  # within a list
        return lambda v: without_zeros(Decimal(v["text"]) if v["value"] is None else v["value"])
    if type == pa.month_day_nano_interval():
        return _interval
    return value_of_json if type == JSON else None


def _value(scalar: pa.Scalar) -> Any:
    """Return the value of a scalar; the text of SQL for a date or time that Python has not."""
    if scalar.is_valid and isinstance(scalar, pa.ListScalar):
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _text(scalar)


def _text(scalar: pa.Scalar) -> Any:
    from foreshore.output_style import OutputStyle
    from foreshore.text_columns import text_column
    from foreshore.types import DATE, TIME_OF_DAY, TIMESTAMP, TIMESTAMPTZ

    type = scalar.type
    if pa.types.is_timestamp(type):
        found = TIMESTAMP if type.tz is None else TIMESTAMPTZ
    else:
        found = DATE if pa.types.is_date(type) else TIME_OF_DAY
    return text_column(pa.array([scalar]), found, OutputStyle())[0].as_py()


def without_zeros(value: Decimal) -> Decimal:
    """Return a number without trailing zeros behind the point."""
    if not value.is_finite():
        return value
    text = format(value, "f")
    return Decimal(text.rstrip("0").rstrip(".")) if "." in text else value


def _interval(value: Any) -> Any:
    if value.months:
        return value
    try:
        return datetime.timedelta(value.days, microseconds=value.nanoseconds // 1000)
    except OverflowError:
        return value


def value_of_json(text: str) -> Any:
    """Return a document as Python's objects; raises StatementTooComplex if it is too deep."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_number)
    except RecursionError:
        raise StatementTooComplex(
            "a JSON value is nested too deeply for Python", hint="arrow() has its text."
        ) from None


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _MOST_DIGITS else Decimal(text)


def _number(text: str) -> float | Decimal:
    found = float(text)
    if len(text) <= _SURE_CHARACTERS and "e" not in text and "E" not in text:
        return found
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of 18 digits
        return found
    return found if math.isfinite(found) and Decimal(repr(found)) == exact else exact
