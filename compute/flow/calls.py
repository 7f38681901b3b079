"""The functions that the kernel of linear programs knows, as instructions.

`register_of` gives the register of a call's value, None if the kernel does not know the function or
not for these types. Values and errors are those of the registry's functions.
"""

from typing import TYPE_CHECKING

from foreshore.compute.flow.arithmetic_calls import (
    MODES,
    MOST_POWER,
    absolute,
    arithmetic,
    average,
    cut,
    error_number,
    in_range,
    in_width,
    multiplied,
    rounded,
    words_of_integer,
)
from foreshore.compute.flow.convert import is_direct
from foreshore.compute.flow.kernels import calendar, wide
from foreshore.compute.flow.kernels import opcodes as op
from foreshore.compute.flow.layout import kind_of
from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.expr.functions.arithmetic import WIDTHS
from foreshore.expr.functions.casting import FIELD_OVERFLOW
from foreshore.expr.functions.decimals import limit_of, scale_of
from foreshore.expr.functions.fields import INFINITE, unit_of
from foreshore.expr.functions.parts import unit_of as unit_of_parts
from foreshore.expr.functions.temporal import (
    DAY,
    HIGHEST,
    INTERVAL_RANGE,
    LOWEST,
    TIMESTAMP_RANGE,
    integers,
    interval_fields,
)
from foreshore.expr.ir import Literal, Scalar
from foreshore.types import SqlType

if TYPE_CHECKING:
    from foreshore.compute.flow.compiler import Compiler

Args = tuple[Scalar, ...]
Types = list[SqlType]

_COMPARISONS = {
    "eq": (op.EQUAL, False),
    "ne": (op.NOT_EQUAL, False),
    "lt": (op.LESS, False),
    "le": (op.LESS_OR_EQUAL, False),
    "gt": (op.LESS, True),
    "ge": (op.LESS_OR_EQUAL, True),
}
_ORDERED = (op.LESS, op.LESS_OR_EQUAL)
_FIELDS = {
    "year": calendar.YEAR,
    "quarter": calendar.QUARTER,
    "month": calendar.MONTH,
    "day": calendar.DAY,
    "dow": calendar.WEEKDAY,
    "isodow": calendar.ISO_WEEKDAY,
    "doy": calendar.DAY_OF_YEAR,
    "hour": calendar.HOUR,
    "minute": calendar.MINUTE,
    "second": calendar.SECOND,
}
_TRUNCATIONS = {
    "year": calendar.YEAR,
    "quarter": calendar.QUARTER,
    "month": calendar.MONTH,
    "week": calendar.WEEK,
    "day": calendar.DAY,
    "hour": calendar.HOUR,
    "minute": calendar.MINUTE,
    "second": calendar.SECOND,
}
MOST_WIDTH = 1 << 62  # microseconds of a bin
_CLOCK = frozenset((calendar.HOUR, calendar.MINUTE, calendar.SECOND))


def register_of(compiler: "Compiler", function: str, args: Args, type: SqlType) -> int | None:
    """Return the register of a function's value, None if the kernel does not know it."""
    types = [type_of(arg) for arg in args]
    if function in _COMPARISONS:
        return _comparison(compiler, function, args, types)
    stem = function.partition("(")[0]
    match stem:
        case "add" | "subtract" | "multiply" | "divide" | "modulo" if len(args) == 2:
            return arithmetic(compiler, stem, args, types, type)
        case "negate" if type.name in WIDTHS:
            zero = compiler.emit(op.CONSTANT, compiler.constant(0, 0))
            value = compiler.emit(op.SUBTRACT, zero, compiler.register(args[0]))
            return in_width(compiler, value, type)
        case "negate" if type.name == "numeric" and types[0] == type:
            zero = compiler.emit(op.CONSTANT, compiler.constant(0, 0))
            return compiler.emit(op.SUBTRACT, zero, compiler.register(args[0]))
        case "abs" if type == types[0] and (type.name in WIDTHS or type.name == "numeric"):
            return absolute(compiler, args[0], type)
        case "round" | "trunc" | "ceil" | "floor" if types[0].name == type.name == "numeric":
            return rounded(compiler, MODES[stem], args, types, type)
        case "average":
            return average(compiler, args, types, type)
        case "cast":
            return _cast(compiler, args[0], types[0], type)
        case "extract":
            return _extract(compiler, args, types, type)
        case "date_trunc" | "date_trunc_total" if len(args) == 2 and types[1].name.startswith(
            "timestamp"
        ):
            field = _TRUNCATIONS.get(_unit(args[0]) or "")
            if field is None or types[1].name != "timestamp":
                return None
            error = error_number(compiler, TIMESTAMP_RANGE)
            return compiler.emit(op.TRUNCATE, compiler.register(args[1]), field, error)
        case "date_bin":
            return _bin(compiler, args)
    return _logic(compiler, function, args, types)


def _logic(compiler: "Compiler", function: str, args: Args, types: Types) -> int | None:
    match function:
        case "is_distinct" | "is_not_distinct" if _same_form(types) and all(map(is_direct, types)):
            register = compiler.emit(op.DISTINCT, *map(compiler.register, args))
            return register if function == "is_distinct" else compiler.emit(op.NOT, register)
        case "not":
            return compiler.emit(op.NOT, compiler.register(args[0]))
        case "is_null":
            return compiler.emit(op.IS_NULL, compiler.register(args[0]))
        case "is_not_null":
            return compiler.emit(op.IS_NOT_NULL, compiler.register(args[0]))
        case "coalesce":
            register = compiler.register(args[-1])
            for arg in reversed(args[:-1]):
                register = compiler.emit(op.COALESCE, compiler.register(arg), register)
            return register
        case "high_part(numeric)" | "low_part(numeric)":
            scale = scale_of(types[0])
            unit = compiler.constant(*words_of_integer(unit_of_parts(scale) * 10**scale))
            code = op.HIGH_PART if function == "high_part(numeric)" else op.LOW_PART
            return compiler.emit(code, compiler.register(args[0]), unit)
        case "is_true":
            false = compiler.emit(op.CONSTANT, compiler.constant(0, 0))
            return compiler.emit(op.COALESCE, compiler.register(args[0]), false)
    return None


# --- comparison ------------------------------------------------------------------------------


def _comparison(compiler: "Compiler", function: str, args: Args, types: Types) -> int | None:
    code, swapped = _COMPARISONS[function]
    if types[0].name == types[1].name == "numeric":
        scale = max(map(scale_of, types))
        by = [scale - scale_of(each) for each in types]
        if max(by) > MOST_POWER:
            return None
        pair = [_scaled(compiler, arg, each) for arg, each in zip(args, by, strict=True)]
        return compiler.emit(code, *(reversed(pair) if swapped else pair))
    if not _same_form(types):
        return None
    kind = kind_of(types[0])
    if kind != "float" and not all(map(is_direct, types)):
        return None
    if kind == "uuid" and code in _ORDERED:
        return None
    a, b = (compiler.register(arg) for arg in (reversed(args) if swapped else args))
    if kind == "float":
        a, b = compiler.emit(op.FLOAT_ORDER, a), compiler.emit(op.FLOAT_ORDER, b)
    elif kind == "bytes" and code in _ORDERED:
        order = compiler.emit(op.TEXT_ORDER, a, b)
        return compiler.emit(code, order, compiler.emit(op.CONSTANT, compiler.constant(0, 0)))
    return compiler.emit(code, a, b)


def _scaled(compiler: "Compiler", scalar: Scalar, by: int) -> int:
    """Return the register of a numeric times 10**by, at most the greatest integer."""
    register = compiler.register(scalar)
    if not by:
        return register
    return compiler.emit(op.SCALE, register, compiler.constant(*words_of_integer(10**by)))


def _same_form(types: Types) -> bool:
    """Whether values of two types are equal exactly if their words are (but for key forms)."""
    a, b = types
    if a.name == b.name == "numeric":
        return scale_of(a) == scale_of(b)
    return a.name == b.name or (
        kind_of(a) == kind_of(b) == "bytes" and is_direct(a) and is_direct(b)
    )


# --- casts and times -------------------------------------------------------------------------


def _cast(compiler: "Compiler", arg: Scalar, source: SqlType, target: SqlType) -> int | None:
    if source.name in WIDTHS and target.name in WIDTHS:
        register = compiler.register(arg)
        if WIDTHS[source.name] <= WIDTHS[target.name]:
            return register
        return in_width(compiler, register, target)
    if source.name == "numeric" and target.name in WIDTHS:
        whole = cut(compiler, compiler.register(arg), scale_of(source), wide.HALF_AWAY)
        return None if whole is None else in_width(compiler, whole, target)
    if source.name in WIDTHS and target.name == "float8":
        return compiler.emit(op.TO_FLOAT, compiler.register(arg))
    if target.name == "numeric" and (source.name in WIDTHS or source.name == "numeric"):
        by = scale_of(target) - scale_of(source)
        value: int | None = None
        if by >= 0:
            value = multiplied(compiler, compiler.register(arg), by, FIELD_OVERFLOW)
        elif target.length is not None:  # otherwise digits must not be lost
            value = cut(compiler, compiler.register(arg), -by, wide.HALF_AWAY)
        if value is None:
            return None
        most = limit_of(target) - 1
        return in_range(compiler, value, -most, most, FIELD_OVERFLOW)
    return None


def _unit(scalar: Scalar) -> str | None:
    if isinstance(scalar, Literal) and isinstance(scalar.value, str):
        return unit_of(scalar.value)
    return None


def _extract(compiler: "Compiler", args: Args, types: Types, type: SqlType) -> int | None:
    if len(args) != 2 or types[1].name not in ("date", "timestamp"):
        return None
    field = _FIELDS.get(_unit(args[0]) or "")
    is_date = types[1].name == "date"
    if field is None or (is_date and field in _CLOCK):
        return None
    if scale_of(type) != (6 if field == calendar.SECOND else 0):
        return None
    error = error_number(compiler, INFINITE) if field == calendar.YEAR else 0
    return compiler.emit(op.FIELD, compiler.register(args[1]), field, int(is_date), error)


def _bin(compiler: "Compiler", args: Args) -> int | None:
    """Return the register of the bin of a time, None unless width and origin are sound literals."""
    match args:
        case (Literal() as width, stamp, Literal() as origin):
            found = _bins(width, origin) if None not in (width.value, origin.value) else None
            if found is None:
                return None
            errors = [error_number(compiler, each) for each in (INTERVAL_RANGE, TIMESTAMP_RANGE)]
            return compiler.emit(
                op.BIN,
                compiler.register(stamp),
                compiler.constant(*found),
                compiler.constant(*errors),
            )
    return None


def _bins(width: Literal, origin: Literal) -> tuple[int, int] | None:
    """Return the microseconds of a width and of an origin, None if they are not sound."""
    fields = interval_fields(to_array([width.value], width.type))
    months, days, micros = (int(field[0]) for field in fields)
    (start,) = integers(to_array([origin.value], origin.type)).tolist()
    found = days * DAY + micros
    is_sound = not months and 0 < found < MOST_WIDTH and LOWEST < start < HIGHEST
    return (found, start) if is_sound else None
