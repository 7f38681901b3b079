"""Arithmetic that the kernel of linear programs knows, as instructions.

Each function gives the register of a value, None if the kernel does not know it for these types.
"""

from typing import TYPE_CHECKING

from foreshore.compute.flow.kernels import floats, wide
from foreshore.compute.flow.kernels import opcodes as op
from foreshore.expr.functions.arithmetic import WIDTHS
from foreshore.expr.functions.decimals import LIMIT, OVERFLOW, scale_of
from foreshore.expr.functions.floats import OVERFLOW as FLOAT_OVERFLOW
from foreshore.expr.functions.floats import UNDERFLOW
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, out_of_range
from foreshore.expr.ir import Literal, Scalar
from foreshore.types import SqlType

if TYPE_CHECKING:
    from foreshore.compute.flow.compiler import Compiler

Args = tuple[Scalar, ...]
Types = list[SqlType]

_ARITHMETIC = {"add": op.ADD, "subtract": op.SUBTRACT, "multiply": op.MULTIPLY}
_FLOATS = {
    "add": floats.ADD,
    "subtract": floats.SUBTRACT,
    "multiply": floats.MULTIPLY,
    "divide": floats.DIVIDE,
}
MODES = {
    "round": wide.HALF_AWAY,
    "trunc": wide.DOWN,
    "ceil": wide.CEILING,
    "floor": wide.FLOOR,
}
MOST_POWER = 37  # of ten, that 127 bits hold


def arithmetic(
    compiler: "Compiler", stem: str, args: Args, types: Types, type: SqlType
) -> int | None:
    """Return the register of a sum, difference, product, quotient or remainder."""
    if all(each == types[0] == type and each.name in WIDTHS for each in types):
        return _of_integers(compiler, stem, args, type)
    if type.name == "numeric" and all(each.name == "numeric" for each in types):
        return _of_numerics(compiler, stem, args, types, type)
    if type.name == "float8" and all(each.name == "float8" for each in types) and stem in _FLOATS:
        a, b = map(compiler.register, args)
        return compiler.emit(op.FLOAT, a, b, _FLOATS[stem], _float_errors(compiler))
    return None


def _of_integers(compiler: "Compiler", stem: str, args: Args, type: SqlType) -> int:
    a, b = map(compiler.register, args)
    if stem in _ARITHMETIC:
        error = error_number(compiler, out_of_range(type))
        return in_width(compiler, compiler.emit(_ARITHMETIC[stem], a, b, error), type)
    zero = error_number(compiler, DIVISION_BY_ZERO)
    if stem == "modulo":
        return compiler.emit(op.WHOLE, a, b, zero, 1)
    return in_width(compiler, compiler.emit(op.WHOLE, a, b, zero, 0), type)


def in_width(compiler: "Compiler", register: int, type: SqlType) -> int:
    """Return the register of an integer that fails if it is not within `type`."""
    bound = 1 << (WIDTHS[type.name] - 1)
    return in_range(compiler, register, -bound, bound - 1, out_of_range(type))


def in_range(compiler: "Compiler", register: int, least: int, greatest: int, error: str) -> int:
    """Return the register of an integer that fails if it is not within bounds."""
    first, last = (compiler.constant(*words_of_integer(each)) for each in (least, greatest))
    return compiler.emit(op.RANGE, register, first, last, error_number(compiler, error))


def _of_numerics(
    compiler: "Compiler", stem: str, args: Args, types: Types, type: SqlType
) -> int | None:
    if stem not in (*_ARITHMETIC, "divide"):
        return None
    a, b = map(compiler.register, args)
    if stem == "divide":
        return _quotient(compiler, a, b, types, type)
    error = error_number(compiler, OVERFLOW)
    if stem == "multiply":
        if sum(map(scale_of, types)) != scale_of(type):
            return None
        result = compiler.emit(op.MULTIPLY, a, b, error)
    else:
        by = [scale_of(type) - scale_of(each) for each in types]
        if min(by) or not 0 <= max(by) <= MOST_POWER:
            return None
        if not any(by):
            result = compiler.emit(_ARITHMETIC[stem], a, b)
        else:
            if stem == "subtract":
                zero = compiler.emit(op.CONSTANT, compiler.constant(0, 0))
                b = compiler.emit(op.SUBTRACT, zero, b)
            power = compiler.constant(*words_of_integer(10 ** max(by)))
            first, second = (a, b) if by[0] else (b, a)
            result = compiler.emit(op.SCALED_SUM, first, second, power, error)
    return in_range(compiler, result, 1 - LIMIT, LIMIT - 1, OVERFLOW)


def multiplied(compiler: "Compiler", register: int, by: int, error: str) -> int | None:
    """Return the register of a numeric times 10**by; it fails if it is too large."""
    if not by:
        return register
    if by > MOST_POWER:
        return None
    unit = compiler.emit(op.CONSTANT, compiler.constant(*words_of_integer(10**by)))
    return compiler.emit(op.MULTIPLY, register, unit, error_number(compiler, error))


def cut(compiler: "Compiler", register: int, by: int, mode: int) -> int | None:
    """Return the register of a numeric divided by 10**by and rounded."""
    if not by:
        return register
    if by > MOST_POWER:
        return None
    unit = compiler.constant(*words_of_integer(10**by))
    return compiler.emit(op.ROUND, register, unit, mode)


def rounded(compiler: "Compiler", mode: int, args: Args, types: Types, type: SqlType) -> int | None:
    """Return the register of a numeric rounded to a known number of digits."""
    scale, target, digits = scale_of(types[0]), scale_of(type), 0
    if len(args) == 2:
        if not isinstance(args[1], Literal) or not isinstance(args[1].value, int):
            return None
        digits = args[1].value
    value: int | None = compiler.register(args[0])
    if digits < scale:
        value, scale = cut(compiler, compiler.register(args[0]), scale - digits, mode), digits
    if value is None or target < scale:
        return None
    value = multiplied(compiler, value, target - scale, OVERFLOW)
    return None if value is None else in_range(compiler, value, 1 - LIMIT, LIMIT - 1, OVERFLOW)


def absolute(compiler: "Compiler", arg: Scalar, type: SqlType) -> int:
    """Return the register of an absolute value."""
    value = compiler.register(arg)
    zero = compiler.emit(op.CONSTANT, compiler.constant(0, 0))
    negative = compiler.emit(op.LESS, value, zero)
    value = compiler.emit(op.SELECT, negative, compiler.emit(op.SUBTRACT, zero, value), value)
    return in_width(compiler, value, type) if type.name in WIDTHS else value


def _quotient(compiler: "Compiler", a: int, b: int, types: Types, type: SqlType) -> int:
    """Return the register of a quotient of numerics."""
    packed = 0
    for place, value in enumerate(
        (*map(scale_of, types), scale_of(type), *(each.trim for each in types))
    ):
        packed |= int(value) << (8 * place)
    overflow = error_number(compiler, OVERFLOW)
    scales = compiler.constant(packed, overflow)
    result = compiler.emit(op.DIVIDE, a, b, scales, error_number(compiler, DIVISION_BY_ZERO))
    return in_range(compiler, result, 1 - LIMIT, LIMIT - 1, OVERFLOW)


def average(compiler: "Compiler", args: Args, types: Types, type: SqlType) -> int | None:
    """Return the register of a sum divided by a count, NULL if that is 0."""
    if types[1].name != "int8" or types[0].name not in ("numeric", "float8"):
        return None
    total, count = map(compiler.register, args)
    count = compiler.emit(op.NULL_IF_ZERO, count)
    if types[0].name == "numeric":
        return _quotient(compiler, total, count, types, type)
    count = compiler.emit(op.TO_FLOAT, count)
    return compiler.emit(op.FLOAT, total, count, floats.AVERAGE, _float_errors(compiler))


def _float_errors(compiler: "Compiler") -> int:
    errors = (FLOAT_OVERFLOW, UNDERFLOW, DIVISION_BY_ZERO)
    return compiler.constant(*(error_number(compiler, each) for each in errors))


def error_number(compiler: "Compiler", text: str) -> int:
    """Return the number of an error's text."""
    return compiler.interner.number(text.encode())


def words_of_integer(value: int) -> tuple[int, int]:
    """Return the low and the high word of an integer of 128 bits."""
    low = value & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low, value >> 64
