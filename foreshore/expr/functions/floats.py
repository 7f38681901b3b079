"""Floating point: IEEE arithmetic with overflow and underflow as errors.

A finite operation with an infinite result is an overflow; one with a zero result from nonzero
operands is an underflow. Both are errors, as in PostgreSQL. real is computed in single precision
after each operation.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.errors import data_error
from foreshore.expr.functions.function import (
    Kernel,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
    hidden,
    overload,
)
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, WithSingle, fail, mapped
from foreshore.types import FLOAT8, arrow_type

OVERFLOW = data_error("22003", "value out of range: overflow")
UNDERFLOW = data_error("22003", "value out of range: underflow")
# These renderings repeat their arguments; longer arguments use the kernel, which does not.
LONG = 160


def floats(array: pa.Array) -> Any:
    """Return the NumPy form, 0 for NULL."""
    filled = array.fill_null(0.0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False)


def checked(
    types: Signature,
    values: Any,
    *,
    overflow: Any = None,
    underflow: Any = None,
    divided: Any = None,
) -> Outcome:
    """Return values and errors, from the masks of rows with each error."""
    arrow = arrow_type(types.result)
    faults = [
        (mask, text)
        for mask, text in (
            (divided, DIVISION_BY_ZERO),
            (overflow, OVERFLOW),
            (underflow, UNDERFLOW),
        )
        if mask is not None and mask.any()
    ]
    if not faults:
        return pa.array(values, arrow)
    errors = np.full(len(values), None, dtype=object)
    for mask, text in reversed(faults):
        errors[mask] = text
    failed = np.array([e is not None for e in errors])
    return pa.array(values, arrow, mask=failed), pa.array(errors.tolist(), pa.string())


def _binary(kind: str) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        x, y = floats(a), floats(b)
        with np.errstate(all="ignore"):
            match kind:
                case "+":
                    values = x + y
                case "-":
                    values = x - y
                case "*":
                    values = x * y
                case _:
                    values = x / y
            infinite = np.isinf(values) & ~np.isinf(x) & ~np.isinf(y)
            if kind == "*":
                return checked(
                    types,
                    values,
                    overflow=infinite,
                    underflow=(values == 0) & (x != 0) & (y != 0),
                )
            if kind == "/":
                zero = (y == 0) & ~np.isnan(x)
                return checked(
                    types,
                    values,
                    divided=zero,
                    overflow=infinite & ~zero,
                    underflow=(values == 0) & (x != 0) & ~np.isinf(y),
                )
            return checked(types, values, overflow=infinite)

    return kernel


def _finite(dialect: Renderer, sql: str) -> str:
    """Return whether the float is finite (false for NaN), as SQL."""
    inf = "CAST('Infinity' AS DOUBLE)"
    return f"({sql} < {inf} AND {sql} > -{inf})"


def _binary_error(kind: str) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        if not _renders(dialect, kind, types, args):
            return None
        a, b = args
        body = _body(dialect, kind, types, args)
        over = f"{_finite(dialect, a)} AND {_finite(dialect, b)} AND NOT {_finite(dialect, body)}"
        parts = []
        if kind == "/":
            nan = "CAST('NaN' AS DOUBLE)"
            parts.append(f"WHEN {b} = 0 AND {a} <> {nan} THEN '{DIVISION_BY_ZERO}'")
        parts.append(f"WHEN {over} THEN '{OVERFLOW}'")
        if kind == "*":
            parts.append(f"WHEN {body} = 0 AND {a} <> 0 AND {b} <> 0 THEN '{UNDERFLOW}'")
        if kind == "/":
            infinite = f"({b} = CAST('Infinity' AS DOUBLE) OR {b} = -CAST('Infinity' AS DOUBLE))"
            parts.append(
                f"WHEN {b} <> 0 AND {body} = 0 AND {a} <> 0 AND NOT {infinite} THEN '{UNDERFLOW}'"
            )
        return f"CASE {' '.join(parts)} END"

    return render


def _renders(dialect: Renderer, kind: str, types: Signature, args: Sequence[str]) -> bool:
    """Return whether the operation has a rendering; Spark divides reals as doubles."""
    if types.result.name == "float4" and kind == "/" and dialect.name == "spark":
        return False
    return sum(map(len, args)) <= LONG


def _body(dialect: Renderer, kind: str, types: Signature, args: Sequence[str]) -> str:
    if kind != "/":
        return f"({args[0]} {kind} {args[1]})"
    name = dialect.type_name(types.result)
    return f"({args[0]} / nullif({args[1]}, CAST(0 AS {name})))"


def _binary_sql(kind: str) -> Rendering:
    error = _binary_error(kind)

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        if not _renders(dialect, kind, types, args):
            return None
        body = _body(dialect, kind, types, args)
        if kind == "/":
            name = dialect.type_name(types.result)
            body = f"CASE WHEN {args[1]} = 0 THEN {args[0]} + CAST('NaN' AS {name}) ELSE {body} END"
        return f"(CASE WHEN ({error(dialect, types, args)}) IS NULL THEN {body} END)"

    return render


def _unary_math(compute: Callable[[float], float]) -> Kernel:
    """Return the kernel of a function of Python's math (that is, libm), row by row."""

    def row(x: float) -> float:
        try:
            result = compute(x)
        except OverflowError:
            raise fail("22003", "value out of range: overflow") from None
        except ValueError:
            raise fail("22003", "input is out of range") from None
        return result

    return mapped(row)


def _sqrt(x: float) -> float:
    if x < 0:
        raise fail("2201F", "cannot take square root of a negative number")
    return math.sqrt(x)


def _cbrt(x: float) -> float:
    return float(np.cbrt(x))


def _log(compute: Callable[[float], float]) -> Callable[[float], float]:
    def log(x: float) -> float:
        if x == 0:
            raise fail("2201E", "cannot take logarithm of zero")
        if x < 0:
            raise fail("2201E", "cannot take logarithm of a negative number")
        return compute(x)

    return log


def _exp(x: float) -> float:
    result = math.exp(x)
    if result == 0 and not math.isinf(x):
        raise fail("22003", "value out of range: underflow")
    return result


def _power(x: float, y: float) -> float:
    if x == 1 or y == 0:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if x == 0 and y < 0:
        raise fail("2201F", "zero raised to a negative power is undefined")
    if x < 0 and math.isfinite(y) and y != math.floor(y):
        raise fail(
            "2201F", "a negative number raised to a non-integer power yields a complex result"
        )
    try:
        result = math.pow(x, y)
    except OverflowError:
        raise fail("22003", "value out of range: overflow") from None
    if result == 0 and x != 0 and math.isfinite(x) and math.isfinite(y):
        raise fail("22003", "value out of range: underflow")
    return result


def _rounding(compute: Callable[[Any], Any]) -> Kernel:
    return WithSingle(
        lambda types, a: pa.array(compute(floats(a)), arrow_type(types.result)),
        lambda types: (lambda value: float(compute(value))) if types.args == (FLOAT8,) else None,
    )


def _negate(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(-floats(a), a.type)


def _plain(text: str) -> Rendering:
    return lambda dialect, types, args: text.format(*args)


_STEMS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
for _kind, _stem in _STEMS.items():
    for _t in ("float4", "float8"):
        _function = declare(
            _kind,
            f"{_t} {_t}",
            _t,
            _binary(_kind),
            stem=_stem,
            fallible=True,
            error_sql=_binary_error(_kind),
            duckdb=_binary_sql(_kind),
            spark=_binary_sql(_kind),
        )
    overload(_kind, "float4 float8", _function)
    overload(_kind, "float8 float4", _function)

for _t in ("float4", "float8"):
    declare(
        "-", _t, _t, _negate, stem="negate", duckdb=_plain("(-({0}))"), spark=_plain("(-({0}))")
    )
    declare("+", _t, _t, lambda types, a: a, stem="plus")
    declare(
        "abs @",
        _t,
        _t,
        _rounding(np.abs),
        duckdb=_plain("abs({0})"),
        spark=_plain("abs({0})"),
    )

declare("round", "float8", "float8", _rounding(np.rint))
declare("trunc", "float8", "float8", _rounding(np.trunc))
declare("ceil ceiling", "float8", "float8", _rounding(np.ceil))
declare("floor", "float8", "float8", _rounding(np.floor))
declare("sign", "float8", "float8", _rounding(lambda x: np.where(np.isnan(x), 0.0, np.sign(x))))
declare("sqrt |/", "float8", "float8", _unary_math(_sqrt), fallible=True)
declare("cbrt ||/", "float8", "float8", _unary_math(_cbrt))
declare("exp", "float8", "float8", _unary_math(_exp), fallible=True)
declare("ln", "float8", "float8", _unary_math(_log(math.log)), fallible=True)
declare("log log10", "float8", "float8", _unary_math(_log(math.log10)), fallible=True)
declare("power pow ^", "float8 float8", "float8", mapped(_power), fallible=True)
declare("degrees", "float8", "float8", _unary_math(math.degrees), fallible=True)
declare("radians", "float8", "float8", _unary_math(lambda x: x / 57.29577951308232), fallible=True)
declare("pi", "", "float8", lambda types: pa.array([math.pi]))
for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"):
    declare(_name, "float8", "float8", _unary_math(getattr(math, _name)), fallible=True)
declare("atan2", "float8 float8", "float8", mapped(math.atan2))


# --- finishing of aggregates ------------------------------------------------------------------


def _average(types: Signature, total: pa.Array, count: pa.Array) -> Outcome:
    n = floats(count.cast(pa.float64()))
    with np.errstate(all="ignore"):
        return pa.array(floats(total) / n, pa.float64(), mask=n == 0)


hidden("average(float8,int8)", "float8 int8", "float8", _average)
