"""Text of numbers: PostgreSQL's input functions, and the output function of numeric.

The input functions take what all of `foreshore.text` take: the text, its type, the session's zone
and the transaction's time. They raise a DataError.
"""

import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import isinf

import numpy as np

from foreshore import calendar, numbers
from foreshore.array_text import SPACES
from foreshore.datetime_text import parse_datetime
from foreshore.digits import is_digits
from foreshore.errors import DataError, FeatureNotSupported, NumericValueOutOfRange
from foreshore.input_errors import invalid_syntax
from foreshore.output_style import OutputStyle
from foreshore.types import NUMERIC_DIGITS, REG_NAMES, Datum, SqlType

INTEGERS = {  # the least and the greatest value
    "int2": (-(2**15), 2**15 - 1),
    "int4": (-(2**31), 2**31 - 1),
    "int8": (-(2**63), 2**63 - 1),
}
OID_NAMES = frozenset(("oid", "xid", "cid", *REG_NAMES))

_INTEGER = re.compile(r"([+-]?)([0-9]+)\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_HEX_FLOAT = re.compile(r"[+-]?0[xX][0-9a-fA-F.]+(?:[pP][+-]?[0-9]+)?\Z")
_NUMERIC = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?\Z")
_NOT_FINITE = {
    "nan": "NaN",
    **dict.fromkeys(("inf", "infinity", "+inf", "+infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}
_WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def parse_integer(text: str, type: SqlType, zone: str, now: int | None) -> int:
    """Return the value of an int2, int4 or int8."""
    match = _INTEGER.match(text.strip(SPACES))
    if match is None:
        raise invalid_syntax(type, text)
    low, high = INTEGERS[type.name]
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 20 or not low <= (value := int(match[1] + digits)) <= high:
        raise NumericValueOutOfRange(f'value "{text}" is out of range for type {type}')
    return value


def parse_oid(text: str, type: SqlType, zone: str, now: int | None) -> int:
    """Return the number of an oid or reg* type, modulo 2**32."""
    stripped = text.strip(SPACES)
    if type.name in REG_NAMES and stripped == "-":
        return 0
    if not _INTEGER.match(stripped):
        if type.name in REG_NAMES and stripped:
            raise FeatureNotSupported(f'the name "{text}" cannot be looked up as {type} here')
        raise invalid_syntax(type, text)
    value = int(stripped[:40])
    if not -(2**31) <= value < 2**32:
        raise NumericValueOutOfRange(f'value "{text}" is out of range for type {type}')
    return value % 2**32


def parse_mz_timestamp(text: str, type: SqlType, zone: str, now: int | None) -> int:
    """Return milliseconds, from their number or from the text of a timestamptz."""
    stripped = text.strip(SPACES)
    if is_digits(stripped):
        if len(stripped) > 19 or int(stripped) >= 2**63:
            raise NumericValueOutOfRange(f'value "{text}" is out of range for type {type}')
        return int(stripped)
    if not stripped or stripped[0] in "+-":
        raise invalid_syntax(type, text)
    try:
        micros = parse_datetime(text, "timestamptz", calendar.zone_named(zone), now)
    except DataError:
        raise invalid_syntax(type, text) from None
    if micros < 0 or micros == calendar.TIMESTAMP_INFINITY:
        raise NumericValueOutOfRange(f'value "{text}" is out of range for type {type}')
    return micros // 1000


def parse_float(text: str, type: SqlType, zone: str, now: int | None) -> float:
    """Return the value of a float4 or float8."""
    stripped = text.strip(SPACES)
    if _FLOAT.match(stripped):
        value = float(stripped)
        exact_zero = not re.sub(r"[eE].*", "", stripped).strip("+-0.")
    elif _HEX_FLOAT.match(stripped):
        try:
            value = float.fromhex(stripped)
        except (ValueError, OverflowError):
            raise invalid_syntax(type, text) from None
        exact_zero = not re.sub(r"[pP].*", "", stripped).strip("+-0.xX")
    else:
        word = stripped.lower()
        unsigned = word[1:] if word[:1] in ("+", "-") else word
        if unsigned in ("inf", "infinity"):
            return float("-inf") if word[0] == "-" else float("inf")
        if unsigned == "nan":
            return float("nan")
        raise invalid_syntax(type, text)
    if type.name == "float4":
        with np.errstate(over="ignore", under="ignore"):
            value = (
                float(np.float32(stripped)) if _FLOAT.match(stripped) else float(np.float32(value))
            )
    if isinf(value) or (value == 0 and not exact_zero):
        raise NumericValueOutOfRange(f'"{stripped}" is out of range for type {type}')
    return value


def parse_numeric(text: str, type: SqlType, zone: str, now: int | None) -> str:
    """Return the datum of a numeric, rounded to its declared scale."""
    stripped = text.strip(SPACES)
    match = _NUMERIC.match(stripped)
    if match is None or not (match[2] or match[3]):
        if re.fullmatch(r"[+-]?(?:nan|inf|infinity)", stripped, re.IGNORECASE):
            if stripped[-1].lower() == "n" and stripped[0] in "+-":
                raise invalid_syntax(type, text)
            raise FeatureNotSupported(f'the numeric value "{stripped}" is not supported')
        raise invalid_syntax(type, text)
    if match[4] is not None and abs(int(match[4][:12])) > 131_072:
        raise NumericValueOutOfRange("value overflows numeric format")
    return numeric_text(Decimal(stripped), type)


def parse_number(text: str, type: SqlType, zone: str, now: int | None) -> str:
    """Return the datum of a numeric as it is written, or rounded to a scale beyond `numeric`'s."""
    stripped = text.strip(SPACES)
    match = _NUMERIC.match(stripped)
    if match is None or not (match[2] or match[3]):
        word = _NOT_FINITE.get(stripped.lower())
        if word is None:
            raise invalid_syntax(type, text)
        return word if type.length is None else numbers.shown(_limited(Decimal(word), type))
    if match[4] is not None and len(match[4].lstrip("+-0")) > 9:
        raise numbers.overflow()
    value = Decimal(stripped)
    if numbers.scale_of(value) > numbers.MOST_SCALE:
        raise numbers.overflow()
    return numbers.shown(numbers.bounded(value) if type.length is None else _limited(value, type))


def _limited(value: Decimal, type: SqlType) -> Decimal:
    assert type.length is not None, type
    assert type.scale is not None, type
    return numbers.limited(value, type.length, type.scale)


def format_number(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    """Return a numeric without a scale, which is its datum or its three parts."""
    if isinstance(datum, dict):  # as Arrow returns it
        return numbers.shown(numbers.number_of(datum["value"], datum["rest"], datum["scale"]))
    return str(datum)


def numeric_text(value: Decimal, type: SqlType) -> str:
    """Return `value` as a datum of the numeric `type`, rounded half up to a declared scale.

    Raises `numeric field overflow` if it has more digits than declared or supported.
    """
    assert type.scale is not None, type
    if not value.is_finite():
        raise FeatureNotSupported(f'the numeric value "{value}" is not supported')
    kept = NUMERIC_DIGITS - type.scale
    if value and value.adjusted() >= 120:
        rounded = value
    else:
        rounded = value.quantize(Decimal(1).scaleb(-type.scale), context=_WIDE)
    if type.length is None and rounded != value:
        raise NumericValueOutOfRange(
            "numeric field overflow",
            detail=f"At most {type.scale} digits after the decimal point can be kept here.",
            hint="Round the value, or declare a precision and a scale.",
        )
    whole = kept if type.length is None else type.length - type.scale
    if rounded and rounded.adjusted() >= whole:
        limit = f"10^{whole}" if whole else "1"
        precision = NUMERIC_DIGITS if type.length is None else type.length
        raise NumericValueOutOfRange(
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {type.scale} must round to an"
            f" absolute value less than {limit}.",
        )
    return _format_decimal(rounded, type.trim)


def _format_decimal(value: Decimal, trim: bool) -> str:
    text = format(value, "f")
    if trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def format_numeric(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    """Return a numeric with as many digits as its type shows."""
    value = datum if isinstance(datum, Decimal) else Decimal(str(datum))
    if not type.trim and type.scale is not None:
        try:
            value = value.quantize(Decimal(1).scaleb(-type.scale), context=_WIDE)
        except InvalidOperation:
            raise AssertionError(f"{value} does not fit {type}") from None
    return _format_decimal(value, type.trim)
