"""Arithmetic of integers; overflow is an error."""

from collections.abc import Callable, Sequence
from math import gcd, lcm
from operator import add, mul, sub

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.functions.decimals import text_where
from foreshore.expr.functions.function import (
    Kernel,
    One,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
    overload,
)
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure, out_of_range, rowwise
from foreshore.types import SqlType, arrow_type

WIDTHS = {"int2": 16, "int4": 32, "int8": 64}


def infix(operator: str, *, total: bool = False) -> Rendering:
    """Return a rendering as `a operator b`, in TRY if it may fail."""

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        body = f"({args[0]} {operator} {args[1]})"
        return body if total else f"TRY{body}"

    return render


def calling(name: str) -> Rendering:
    """Return a rendering as a call of the engine's function `name`, which cannot fail."""

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        return f"{name}({', '.join(args)})"

    return render


def trying(name: str) -> Rendering:
    """Return a rendering as a call that is NULL if it fails."""

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        return f"TRY({name}({', '.join(args)}))"

    return render


Of = Callable[[Signature], Callable[[int, int], int]]


def _in_range(value: int, type: SqlType) -> int:
    bound = 1 << (WIDTHS[type.name] - 1)
    if not -bound <= value < bound:
        raise Failure(out_of_range(type))
    return value


def _exact(compute: Callable[[int, int], int]) -> Of:
    """Return the function of two integers for one row."""

    def of(types: Signature) -> Callable[[int, int], int]:
        bound = 1 << (WIDTHS[types.result.name] - 1)

        def exact(x: int, y: int) -> int:
            value = compute(x, y)
            if not -bound <= value < bound:
                raise Failure(out_of_range(types.result))
            return value

        return exact

    return of


def _checked(arrow: Callable[..., pa.Array], one: Of) -> Kernel:
    """Return a kernel: Arrow's checked function, and row by row if that finds an overflow."""

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        try:
            return arrow(a, b)
        except pa.ArrowInvalid:
            return rowwise(types, one(types), a, b)

    return kernel


def _truncated(x: int, y: int) -> int:
    if y == 0:
        raise Failure(DIVISION_BY_ZERO)
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _remainder(x: int, y: int) -> int:
    if y == 0:
        raise Failure(DIVISION_BY_ZERO)
    return abs(x) % abs(y) * (-1 if x < 0 else 1)


def _exact_of_one(compute: Callable[[int], int]) -> One:
    """Return the function of an integer for one row."""
    return lambda types: lambda x: _in_range(compute(x), types.result)


_ADD = _exact(add)
_SUBTRACT = _exact(sub)
_MULTIPLY = _exact(mul)
_DIVIDE = _exact(_truncated)


def _modulo(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    arrow = arrow_type(types.result)
    y = b.fill_null(1).to_numpy(zero_copy_only=False)
    x = a.fill_null(0).to_numpy(zero_copy_only=False)
    zero = y == 0
    safe = np.where(zero | (y == -1), 1, y)
    values = pa.array(np.fmod(x, safe).astype(x.dtype, copy=False), arrow, mask=zero)
    if not zero.any():
        return values
    return values, text_where(zero, DIVISION_BY_ZERO)


def _negate(types: Signature, a: pa.Array) -> Outcome:
    try:
        return pc.negate_checked(a)
    except pa.ArrowInvalid:
        return rowwise(types, lambda x: _in_range(-x, types.result), a)


def _abs(types: Signature, a: pa.Array) -> Outcome:
    try:
        return pc.abs_checked(a)
    except pa.ArrowInvalid:
        return rowwise(types, lambda x: _in_range(abs(x), types.result), a)


def _same(types: Signature, a: pa.Array) -> Outcome:
    return a


def _bits(exact: Callable[[int, int], int]) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        return rowwise(types, exact, a, b)

    return kernel


def _shift(left: bool) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        width = WIDTHS[types.result.name]
        # Like the CPU: shift counts are taken modulo 32 for int2 and int4, modulo 64 for int8.
        mask = 63 if width == 64 else 31

        def shift(x: int, by: int) -> int:
            by &= mask
            value = x << by if left else x >> by
            value &= (1 << width) - 1
            return value - (1 << width) if value >> (width - 1) else value

        return rowwise(types, shift, a, b)

    return kernel


def _range_error(types: Signature) -> str:
    return out_of_range(types.result)


def _try_spark(name: str) -> Rendering:
    """Return a rendering by Spark's try_ function; smallint, which it widens, is cast back."""

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        if types.result.name == "int2":
            operator = {"try_add": "+", "try_subtract": "-", "try_multiply": "*"}[name]
            wide = [f"CAST({a} AS INT)" for a in args]
            return f"TRY_CAST(({wide[0]} {operator} {wide[1]}) AS SMALLINT)"
        return f"{name}({', '.join(args)})"

    return render


def _spark_divide(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    # Spark's div returns bigint and fails for -2**63 div -1.
    name = dialect.type_name(types.result)
    a, b = (f"CAST({arg} AS BIGINT)" for arg in args)
    if types.result.name != "int8":
        return f"TRY_CAST(({a} div nullif({b}, 0)) AS {name})"
    if len(a) + len(b) > 300:
        return None
    return f"IF({b} = -1, try_subtract(CAST(0 AS BIGINT), {a}), {a} div nullif({b}, 0))"


def _spark_modulo(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    return f"CAST(try_mod({args[0]}, {args[1]}) AS {dialect.type_name(types.result)})"


def _divide_error(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    bound = dialect.literal(-(1 << (WIDTHS[types.result.name] - 1)), types.result)
    return (
        f"CASE WHEN {args[1]} = 0 AND {args[0]} IS NOT NULL THEN '{DIVISION_BY_ZERO}' "
        f"WHEN {args[1]} = -1 AND {args[0]} = {bound} THEN '{out_of_range(types.result)}' END"
    )


def _duckdb_divide(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    return f"TRY({args[0]} // {args[1]})"


for _t in WIDTHS:
    _two = f"{_t} {_t}"
    declare(
        "+",
        _two,
        _t,
        _checked(pc.add_checked, _ADD),
        one=_ADD,
        stem="add",
        fallible=True,
        error=_range_error,
        duckdb=infix("+"),
        spark=_try_spark("try_add"),
    )
    declare(
        "-",
        _two,
        _t,
        _checked(pc.subtract_checked, _SUBTRACT),
        one=_SUBTRACT,
        stem="subtract",
        fallible=True,
        error=_range_error,
        duckdb=infix("-"),
        spark=_try_spark("try_subtract"),
    )
    declare(
        "*",
        _two,
        _t,
        _checked(pc.multiply_checked, _MULTIPLY),
        one=_MULTIPLY,
        stem="multiply",
        fallible=True,
        error=_range_error,
        duckdb=infix("*"),
        spark=_try_spark("try_multiply"),
    )
    declare(
        "/",
        _two,
        _t,
        _checked(pc.divide_checked, _DIVIDE),
        one=_DIVIDE,
        stem="divide",
        fallible=True,
        error_sql=_divide_error,
        duckdb=_duckdb_divide,
        spark=_spark_divide,
    )
    declare(
        "% mod",
        _two,
        _t,
        _modulo,
        one=_exact(_remainder),
        stem="modulo",
        fallible=True,
        error=DIVISION_BY_ZERO,
        spark=_spark_modulo,
        duckdb=lambda d, t, a: (
            f"TRY(CASE WHEN {a[1]} = -1 THEN {a[0]} - {a[0]} ELSE {a[0]} % {a[1]} END)"
        ),
    )
    declare(
        "-",
        _t,
        _t,
        _negate,
        one=_exact_of_one(lambda x: -x),
        stem="negate",
        fallible=True,
        error=_range_error,
        duckdb=lambda d, t, a: f"TRY({d.literal(0, t.result)} - {a[0]})",
        spark=lambda d, t, a: (
            f"TRY_CAST(-CAST({a[0]} AS DECIMAL(20,0)) AS {d.type_name(t.result)})"
        ),
    )
    declare(
        "+", _t, _t, _same, stem="plus", duckdb=lambda d, t, a: a[0], spark=lambda d, t, a: a[0]
    )
    declare(
        "abs @",
        _t,
        _t,
        _abs,
        one=_exact_of_one(abs),
        fallible=True,
        error=_range_error,
        duckdb=trying("abs"),
        spark=lambda d, t, a: (
            f"TRY_CAST(abs(CAST({a[0]} AS DECIMAL(20,0))) AS {d.type_name(t.result)})"
        ),
    )
    declare("&", _two, _t, _bits(lambda x, y: x & y), stem="bitand", duckdb=infix("&", total=True))
    declare("|", _two, _t, _bits(lambda x, y: x | y), stem="bitor", duckdb=infix("|", total=True))
    declare("#", _two, _t, _bits(lambda x, y: x ^ y), stem="bitxor", duckdb=calling("xor"))
    declare("~", _t, _t, lambda types, a: pc.bit_wise_not(a), stem="bitnot")
    declare("<<", f"{_t} int4", _t, _shift(True), stem="shift_left")
    declare(">>", f"{_t} int4", _t, _shift(False), stem="shift_right")

for _t in ("int4", "int8"):
    declare(
        "gcd",
        f"{_t} {_t}",
        _t,
        lambda types, a, b: rowwise(types, lambda x, y: _in_range(gcd(x, y), types.result), a, b),
        fallible=True,
    )
    declare(
        "lcm",
        f"{_t} {_t}",
        _t,
        lambda types, a, b: rowwise(types, lambda x, y: _in_range(lcm(x, y), types.result), a, b),
        fallible=True,
    )


def _widened() -> None:
    """Declare the operators over two integer types as those over the wider type."""
    from foreshore.expr.functions.function import BY_KEY

    for name, stem in (("+", "add"), ("-", "subtract"), ("*", "multiply"), ("/", "divide")):
        for i, narrow in enumerate(WIDTHS):
            for wider in list(WIDTHS)[i + 1 :]:
                function = BY_KEY[f"{stem}({wider},{wider})"]
                overload(name, f"{narrow} {wider}", function)
                overload(name, f"{wider} {narrow}", function)


_widened()
