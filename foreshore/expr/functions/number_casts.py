"""Casts of numerics without a declared scale, but for those from and to text.

A cast to a numeric of a declared scale rounds; to one of a planned scale, it fails if a digit would
be lost. The numeric of a cast from a number that shows no trailing zeros has none.
"""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import numbers
from foreshore.expr.functions.casting import INTEGERS
from foreshore.expr.functions.function import Kernel, Outcome, Renderer, Signature, hidden
from foreshore.expr.functions.jsontext import kind_of, loads
from foreshore.expr.functions.number import NO_REST, rows_of
from foreshore.expr.functions.rows import Failure, fail, out_of_range
from foreshore.number_text import numeric_text
from foreshore.numbers import column_of
from foreshore.text import format_text, parse_text
from foreshore.types import NUMBER, NUMBER_PARTS, NUMERIC_DIGITS, UNCONSTRAINED_SCALE, SqlType

_WHOLE_DIGITS = NUMERIC_DIGITS - UNCONSTRAINED_SCALE
_INTEGER = pa.decimal128(19, 0)
_TYPE = pa.decimal128(NUMERIC_DIGITS, UNCONSTRAINED_SCALE)
_BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}


# --- to numbers -------------------------------------------------------------------------------


def _is_sure(type: SqlType) -> bool:
    """Return whether decimals of numbers hold all values of a type, which show its scale."""
    scale = type.scale or 0
    length = {"int2": 5, "int4": 10}.get(type.name) or type.length or NUMERIC_DIGITS
    return not type.trim and scale <= UNCONSTRAINED_SCALE and length - scale <= _WHOLE_DIGITS


def _from_numeric(types: Signature, a: pa.Array) -> Outcome:
    (type,) = types.args
    if type.trim or (type.scale or 0) > UNCONSTRAINED_SCALE:
        return column_of([_shown(value, type) for value in a.to_pylist()])
    try:
        value = (a.cast(_INTEGER) if pa.types.is_integer(a.type) else a).cast(_TYPE)
    except pa.ArrowInvalid:
        return column_of([None if v is None else Decimal(v) for v in a.to_pylist()])
    scale = pa.repeat(pa.scalar(type.scale or 0, pa.int16()), len(a))
    fields = [value, pa.repeat(NO_REST, len(a)), scale]
    return pa.StructArray.from_arrays(fields, fields=list(NUMBER_PARTS))


def _shown(value: Decimal | None, type: SqlType) -> Decimal | None:
    if value is None:
        return None
    return numbers.trimmed(value) if type.trim else value


def _from_numeric_sql(dialect: Renderer, types: Signature, args: Any) -> str | None:
    (type,) = types.args
    if not _is_sure(type) or _has_limit(types):
        return None
    name = f"DECIMAL({NUMERIC_DIGITS},{UNCONSTRAINED_SCALE})"
    scale = f"CAST({type.scale or 0} AS SMALLINT)"
    if dialect.name == "duckdb":
        made = f"{{'value': CAST({args[0]} AS {name}), 'rest': ''::BLOB, 'scale': {scale}}}"
    else:
        made = f"named_struct('value', CAST({args[0]} AS {name}), 'rest', X'', 'scale', {scale})"
    return f"CASE WHEN {args[0]} IS NOT NULL THEN {made} END"


def _from_text(types: Signature, a: pa.Array) -> Outcome:
    texts = [None if d is None else format_text(d, types.args[0]) for d in a.to_pylist()]
    return column_of([None if text is None else Decimal(text) for text in texts])


def _from_float(types: Signature, a: pa.Array) -> Outcome:
    digits = 6 if types.args[0].name == "float4" else 15

    def convert(value: float) -> Decimal:
        if value != value or value in (float("inf"), float("-inf")):
            return Decimal(value)
        return numbers.bounded(Decimal(f"{value:.{digits}g}"))

    return rows_of(convert)(types, a)


def _from_jsonb(types: Signature, a: pa.Array) -> Outcome:
    def convert(text: str) -> Decimal:
        value = loads(text)
        if not isinstance(value, Decimal):
            raise fail("22023", f"cannot cast jsonb {kind_of(text)} to type numeric")
        return numbers.bounded(value)

    return rows_of(convert)(types, a)


# --- from numbers -----------------------------------------------------------------------------


def _to_numeric(types: Signature, a: pa.Array) -> Outcome:
    type = types.result

    def convert(value: Decimal) -> str:
        if value.is_infinite() and type.length is not None:
            raise fail("22003", "numeric field overflow")
        return numeric_text(value, type)

    return rows_of(convert)(types, a)


def _to_integer(types: Signature, a: pa.Array) -> Outcome:
    name, bound = str(types.result), _BOUNDS[types.result.name]

    def convert(value: Decimal) -> int:
        if not value.is_finite():
            word = "NaN" if value.is_nan() else "infinity"
            raise fail("0A000", f"cannot convert {word} to {name}")
        if value and value.adjusted() > 20:
            raise Failure(out_of_range(types.result))
        whole = int(value.to_integral_value(ROUND_HALF_UP))
        if not -bound <= whole < bound:
            raise Failure(out_of_range(types.result))
        return whole

    return rows_of(convert)(types, a)


def _to_float(types: Signature, a: pa.Array) -> Outcome:
    return rows_of(lambda value: parse_text(numbers.shown(value), types.result))(types, a)


def _to_other(types: Signature, a: pa.Array) -> Outcome:
    """Cast by way of the text of the whole number."""

    def convert(value: Decimal) -> Any:
        if not value.is_finite():
            raise fail("0A000", f"cannot convert {numbers.shown(value)} to {types.result}")
        whole = value.to_integral_value(ROUND_HALF_UP) if value.adjusted() < 40 else value
        return parse_text(numbers.shown(whole), types.result)

    return rows_of(convert)(types, a)


def _has_limit(types: Signature) -> bool:
    return types.result.length is not None


def _limited(types: Signature, a: pa.Array) -> Outcome:
    """Round numbers to the declared scale, which fails for those with too many digits."""
    precision, scale = types.result.length, types.result.scale
    assert precision is not None, types
    assert scale is not None, types
    of_numbers = Signature((NUMBER,), types.result)
    return rows_of(lambda value: numbers.limited(value, precision, scale))(of_numbers, a)


def to_number(name: str, kernel: Kernel, *, fallible: bool = False, **options: Any) -> None:
    """Declare the cast to numeric, which may have a precision and a scale to hold the values to."""

    def limiting(types: Signature, a: pa.Array) -> Outcome:
        outcome = kernel(types, a)
        if not _has_limit(types):
            return outcome
        made, failed = _errors_of(outcome)
        kept, errors = _errors_of(_limited(types, made))
        if failed is not None:
            errors = failed if errors is None else pc.coalesce(failed, errors)
        return kept if errors is None else (kept, errors)

    fails = None if fallible else _has_limit
    hidden(f"cast({name},number)", name, "number", limiting, fallible=True, fails=fails, **options)


def _errors_of(outcome: Outcome) -> tuple[pa.Array, pa.Array | None]:
    return outcome if isinstance(outcome, tuple) else (outcome, None)


for _name in ("numeric", *INTEGERS, "mz_timestamp", "uint2", "uint4"):
    to_number(_name, _from_numeric, duckdb=_from_numeric_sql, spark=_from_numeric_sql)
hidden("cast(number,number)", "number", "number", _limited, fallible=True)
to_number("uint8", _from_text)
for _name in ("float4", "float8"):
    to_number(_name, _from_float)
    hidden(f"cast(number,{_name})", "number", _name, _to_float, fallible=True)
to_number("jsonb", _from_jsonb, fallible=True)
hidden("cast(number,numeric)", "number", "numeric", _to_numeric, fallible=True)
for _name in INTEGERS:
    hidden(f"cast(number,{_name})", "number", _name, _to_integer, fallible=True)
for _name in ("mz_timestamp", "uint2", "uint4", "uint8"):
    hidden(f"cast(number,{_name})", "number", _name, _to_other, fallible=True)
