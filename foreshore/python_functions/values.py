"""Conversion between columns of arguments or results and lists of Python's values.

| kind | Python |
|---|---|
| bool, integers, floats, text, bytea | bool, int, float, str, bytes |
| decimal, uuid, json | Decimal, UUID, what json.loads returns; sent as text |
| date, time, timestamp, timestamptz | those of datetime; a timestamptz has the zone UTC |
| interval | `Interval`; a timedelta is taken, too |
| `kind[]` | list |

A value that has no form in Python, such as the date 'infinity', and a result that has none of the
function's type, are errors of their rows.
"""

import datetime
import json
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import index
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import data_error
from foreshore.list_items import items_of

MOST_TEXT = 1000  # characters of a message
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_DAY_MICROS = 86_400_000_000
_WIDTHS = {"int2": (16, "smallint"), "int4": (32, "integer"), "int8": (64, "bigint")}
_TIMES = {
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
}
_ZERO = data_error("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
# Kinds of which Arrow makes and takes the same Python values, checking them.
_DIRECT = frozenset(("bool", "int2", "int4", "int8", "text", "bytea"))
_EXACT = {
    "bool": bool,
    "int2": int,
    "int4": int,
    "int8": int,
    "float8": float,
    "text": str,
    "bytea": bytes,
}


class Interval(NamedTuple):
    """An interval of SQL, whose months and days have no fixed length."""

    months: int
    days: int
    microseconds: int


class Wrong(Exception):
    """A value cannot be converted; the text is that of `data_error`."""


def described(error: BaseException) -> str:
    """Return the name of an exception and its text."""
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:MOST_TEXT].replace("\0", "")


# --- arguments --------------------------------------------------------------------------------


def to_python(array: pa.Array, kind: str) -> list[Any]:
    """Return the values of a column; in place of a value that Python lacks there is a `Wrong`."""
    if kind.endswith("[]"):
        return _lists(array, kind.removesuffix("[]"))
    if kind in _DIRECT or kind in ("float4", "float8"):
        return list(array.to_pylist())
    match kind:
        case "date":
            data = array.view(pa.int32()).to_pylist()
        case "time" | "timestamp" | "timestamptz":
            data = array.view(pa.int64()).to_pylist()
        case "interval":
            return [
                None if v is None else Interval(v["months"], v["days"], v["micros"])
                for v in array.to_pylist()
            ]
        case _:
            data = array.to_pylist()
    convert = _TO_PYTHON[kind]
    return [None if each is None else _converted(convert, each, kind) for each in data]


def _converted(convert: Callable[[Any], Any], datum: Any, kind: str) -> Any:
    try:
        return convert(datum)
    except (OverflowError, ValueError, RecursionError):  # json: long integers, deep documents
        name, state = _TIMES.get(kind, kind), "22008" if kind in _TIMES else "22003"
        return Wrong(data_error(state, f"{name} out of range for Python"))


def _lists(array: pa.Array, kind: str) -> list[Any]:
    items = to_python(items_of(array), kind)
    ends, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    found: list[Any] = []
    for start, end, is_there in zip(ends, ends[1:], valid, strict=False):
        one = items[start - ends[0] : end - ends[0]] if is_there else None
        wrong = [each for each in one or () if isinstance(each, Wrong)]
        found.append(wrong[0] if wrong else one)
    return found


def _time_of_day(micros: int) -> datetime.time:
    if micros >= _DAY_MICROS:
        raise OverflowError  # 24:00:00
    return (_EPOCH + datetime.timedelta(microseconds=micros)).time()


_TO_PYTHON: dict[str, Callable[[Any], Any]] = {
    "date": lambda days: datetime.date.fromordinal(days + _EPOCH_DAY),
    "time": _time_of_day,
    "timestamp": lambda micros: _EPOCH + datetime.timedelta(microseconds=micros),
    "timestamptz": lambda micros: (_EPOCH + datetime.timedelta(microseconds=micros)).replace(
        tzinfo=datetime.UTC
    ),
    "decimal": Decimal,
    "uuid": uuid.UUID,
    "json": json.loads,
}


# --- results ----------------------------------------------------------------------------------


def from_python(
    values: Sequence[Any], kind: str, arrow: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of results, and the errors of rows whose value does not fit, which are NULL.

    `arrow` is the column's type.
    """
    exact = _EXACT.get(kind)
    if exact is not None and set(map(type, values)) <= {exact, type(None)}:
        try:
            array = pa.array(values, arrow)
        except (pa.ArrowException, OverflowError, UnicodeError):
            pass  # row by row, to find those that do not fit
        else:
            if kind != "text" or not _has_zero(array):
                return array, {}
    convert = _converter(kind)
    made: list[Any] = []
    errors: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            made.append(None if value is None else convert(value))
        except Wrong as wrong:
            made.append(None)
            errors[place] = str(wrong)
        except MemoryError:
            raise
        except Exception as error:  # of methods of the value, such as __float__
            made.append(None)
            errors[place] = data_error("38000", described(error))
    return _column(made, kind, arrow), errors


def plain(value: Any) -> Any:
    """Return numerics without zeros at the end of their fractions, also those of lists.

    1.0 and 1.00 are one value of SQL, so what takes values back may get either.
    """
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    if exponent >= 0 or digits[-1]:
        return value
    zeros = next(at for at, digit in enumerate(reversed(digits)) if digit)
    zeros = min(zeros, -exponent)
    return Decimal((sign, digits[: len(digits) - zeros], exponent + zeros))


def check_texts(array: pa.Array) -> None:
    """Raise Wrong if a text of a column, or of its lists, cannot be one."""
    while pa.types.is_list(array.type):
        array = array.flatten()
    if pa.types.is_string(array.type) and _has_zero(array):
        raise Wrong(_ZERO)


def _has_zero(array: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring(array, "\0")).as_py())


def _column(made: list[Any], kind: str, arrow: pa.DataType) -> pa.Array:
    """Return the column of converted values."""
    if kind.endswith("[]"):
        offsets: list[int | None] = []
        items: list[Any] = []
        for each in made:
            offsets.append(None if each is None else len(items))
            items.extend(each or ())
        offsets.append(len(items))
        values = _column(items, kind.removesuffix("[]"), arrow.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=arrow)
    if kind in ("date", "time", "timestamp", "timestamptz"):
        return pa.array(made, pa.int32() if kind == "date" else pa.int64()).view(arrow)
    return pa.array(made, arrow)


def _converter(kind: str) -> Callable[[Any], Any]:
    if kind.endswith("[]"):
        return lambda value: _list(value, _converter(kind.removesuffix("[]")))
    if kind in _WIDTHS:
        return lambda value: _integer(value, kind)
    return _FROM_PYTHON[kind]


def _list(value: Any, convert: Callable[[Any], Any]) -> list[Any]:
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise _unlike(value, "array")
    return [None if each is None else convert(each) for each in value]


def _unlike(value: Any, name: str) -> Wrong:
    return Wrong(
        data_error("42804", f"a value of Python type {type(value).__name__} is not of type {name}")
    )


def _integer(value: Any, kind: str) -> int:
    width, name = _WIDTHS[kind]
    try:
        number = index(value)
    except TypeError:
        if not (isinstance(value, float | Decimal) and value == value // 1):
            raise _unlike(value, name) from None
        number = int(value)
    if not -(1 << (width - 1)) <= number < 1 << (width - 1):
        raise Wrong(data_error("22003", f"{name} out of range"))
    return number


def _bool(value: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise _unlike(value, "boolean")


def _float(value: Any) -> float:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise _unlike(value, "double precision")
    try:
        return float(value)
    except OverflowError:
        raise Wrong(data_error("22003", "value out of range: overflow")) from None


def _real(value: Any) -> float:
    number = _float(value)
    if math.isfinite(number) and abs(number) > 3.4028235677973366e38:
        raise Wrong(data_error("22003", "value out of range: overflow"))
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unlike(value, "text")
    if "\0" in value:
        raise Wrong(_ZERO)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Wrong(data_error("22021", "a string with a lone surrogate is no UTF8")) from None
    return str(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _unlike(value, "bytea")
    return bytes(value)


def _decimal(value: Any) -> str:
    if isinstance(value, str | bytes | bool):
        raise _unlike(value, "numeric")
    try:
        if isinstance(value, float) or not hasattr(value, "__index__"):
            number = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
        else:
            number = Decimal(index(value))
    except (TypeError, ValueError, ArithmeticError):
        raise _unlike(value, "numeric") from None
    return "NaN" if number.is_nan() else str(number)


def _uuid(value: Any) -> str:
    if not isinstance(value, uuid.UUID):
        raise _unlike(value, "uuid")
    return str(value)


def _json(value: Any) -> str:
    try:
        return _text(json.dumps(value, allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise Wrong(data_error("22P02", f"a value is no JSON: {error}")) from None


def _date(value: Any) -> int:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise _unlike(value, "date")
    return value.toordinal() - _EPOCH_DAY


def _time(value: Any) -> int:
    if not isinstance(value, datetime.time) or value.tzinfo is not None:
        raise _unlike(value, "time without time zone")
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000
    return micros + value.microsecond


def _timestamp(value: Any) -> int:
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        raise _unlike(value, "timestamp without time zone")
    return (value - _EPOCH) // _MICROSECOND


def _timestamptz(value: Any) -> int:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise _unlike(value, "timestamp with time zone")
    return (value - _EPOCH.replace(tzinfo=datetime.UTC)) // _MICROSECOND


def _interval(value: Any) -> dict[str, int]:
    if isinstance(value, datetime.timedelta):
        micros = value.seconds * 1_000_000 + value.microseconds
        value = Interval(0, value.days, micros)
    if not (isinstance(value, tuple) and len(value) == 3 and all(type(v) is int for v in value)):
        raise _unlike(value, "interval")
    months, days, micros = value
    if max(abs(months), abs(days)) >= 1 << 31 or abs(micros) >= 1 << 63:
        raise Wrong(data_error("22008", "interval out of range"))
    return {"months": months, "days": days, "micros": micros}


_FROM_PYTHON: dict[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "float4": _real,
    "float8": _float,
    "text": _text,
    "bytea": _bytes,
    "decimal": _decimal,
    "uuid": _uuid,
    "json": _json,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
}
