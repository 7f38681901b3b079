"""Numeric: exact decimals on planned scales.

A sum has the larger scale, a product the sum of the scales, a quotient at least 20; at most
`MAX_PLANNED_SCALE`. A result that its type cannot hold exactly is an error and is never rounded,
except where PostgreSQL rounds: quotients and roots to about 16 significant digits, by its rule.
"""

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import floor
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.datum import numeric_datum
from foreshore.digits import is_digits
from foreshore.expr.functions.decimals import (
    OVERFLOW,
    Ints,
    divide_half_up,
    errors_where,
    magnitude,
    pack,
    rescale,
    scale_of,
    truncate_divide,
    unscaled,
    valid_of,
    wide,
    widen,
)
from foreshore.expr.functions.function import (
    NO_LITERAL,
    Kernel,
    Literals,
    One,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
    hidden,
)
from foreshore.expr.functions.quotients import (
    either_error,
    quotients,
    rounded_result,
    with_errors,
)
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure, WithSingle, fail
from foreshore.expr.functions.spreads import SPREADS
from foreshore.types import (
    MAX_PLANNED_SCALE,
    NUMERIC_DIGITS,
    UNCONSTRAINED_SCALE,
    Datum,
    SqlType,
    numeric_of_scale,
)

_EXACT = Context(prec=NUMERIC_DIGITS)
_WIDE = Context(prec=4 * NUMERIC_DIGITS)
Types = tuple[SqlType, ...]


def _trim(types: Types) -> bool:
    return any(t.trim for t in types)


def larger(types: Types, literals: Literals) -> SqlType:
    """Return the type of a sum."""
    return numeric_of_scale(max(map(scale_of, types)), trim=_trim(types))


def product(types: Types, literals: Literals) -> SqlType:
    """Return the type of a product.

    Values of unconstrained columns have few digits after the point but may have many before it.
    """
    scale = sum(map(scale_of, types))
    if scale > MAX_PLANNED_SCALE:
        both = all(t.trim for t in types)
        scale = UNCONSTRAINED_SCALE if both else MAX_PLANNED_SCALE
    return numeric_of_scale(scale, trim=_trim(types))


def quotient(types: Types, literals: Literals) -> SqlType:
    """Return the type of a quotient, an average, a root."""
    return numeric_of_scale(max(UNCONSTRAINED_SCALE, *map(scale_of, types[:1])), trim=True)


def whole(types: Types, literals: Literals) -> SqlType:
    """Return the type of values without a fraction."""
    return numeric_of_scale(0)


def same(types: Types, literals: Literals) -> SqlType:
    """Return the type of the argument without its declared precision."""
    return numeric_of_scale(scale_of(types[0]), trim=types[0].trim)


def rounded(types: Types, literals: Literals) -> SqlType:
    """Return the type of round(x, n), with scale n if it is known."""
    digits = literals[1] if literals is not None else NO_LITERAL
    if isinstance(digits, str) and is_digits(digits.strip().lstrip("+-")):
        digits = int(digits)
    if isinstance(digits, int):
        return numeric_of_scale(min(max(digits, 0), MAX_PLANNED_SCALE))
    return numeric_of_scale(scale_of(types[0]), trim=True)


def _aligned(types: Signature, a: pa.Array, b: pa.Array) -> tuple[Ints, Ints, int]:
    scale = max(map(scale_of, types.args))
    x = rescale(unscaled(a), scale - scale_of(types.args[0]))
    y = rescale(unscaled(b), scale - scale_of(types.args[1]))
    return x, y, scale


def _add(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    x, y, scale = _aligned(types, a, b)
    x, y = widen(magnitude(x) + magnitude(y), x, y)
    return pack(x + y, valid_of(a, b), scale)


def _subtract(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    x, y, scale = _aligned(types, a, b)
    x, y = widen(magnitude(x) + magnitude(y), x, y)
    return pack(x - y, valid_of(a, b), scale)


def _multiply(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    x, y = unscaled(a), unscaled(b)
    x, y = widen(magnitude(x) * magnitude(y), x, y)
    exact, valid = x * y, valid_of(a, b)
    surplus = sum(map(scale_of, types.args)) - scale_of(types.result)
    if not surplus:
        return pack(exact, valid, scale_of(types.result))
    unit = 10**surplus
    inexact = (wide(exact) % unit) != 0
    values, errors = pack(wide(exact) // unit, valid, scale_of(types.result))
    lost = errors_where(np.asarray(inexact, dtype=bool), OVERFLOW)
    if lost is None:
        return values, errors
    return with_errors(values, lost if errors is None else either_error(errors, lost))


def _exactly(compute: Callable[[Decimal, Decimal], Decimal]) -> One:
    """Return the function of two numerics for one row; the result has all its digits, or fails."""

    def one(types: Signature) -> Callable[..., Datum]:
        target = Decimal(1).scaleb(-scale_of(types.result))

        def compute_one(a: str, b: str) -> Datum:
            exact = compute(Decimal(a), Decimal(b))
            try:
                value = _EXACT.plus(_EXACT.quantize(exact, target))
            except InvalidOperation:
                raise Failure(OVERFLOW) from None
            if value != exact:
                raise Failure(OVERFLOW)
            return numeric_datum(value, types.result)

        return compute_one

    return one


def _divide(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    return quotients(unscaled(a), unscaled(b), types.args, types.result, valid_of(a, b))


def _by_integers(compute: Callable[[Ints, Ints], Ints], whole_result: bool) -> Kernel:
    """Return the kernel of an operation on aligned integers with a nonzero second operand."""

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        x, y, scale = _aligned(types, a, b)
        zero = np.asarray(y == 0, dtype=bool)
        values = compute(wide(x), np.where(zero, 1, wide(y)))
        packed, errors = pack(values, valid_of(a, b), 0 if whole_result else scale)
        divided = errors_where(zero, DIVISION_BY_ZERO)
        return (packed, errors) if divided is None else with_errors(packed, divided)

    return kernel


def _remainder(x: Ints, y: Ints) -> Ints:
    return np.where(x < 0, -1, 1) * (np.abs(x) % np.abs(y))


def _unary(compute: Callable[[Ints], Ints]) -> Kernel:
    def kernel(types: Signature, a: pa.Array) -> Outcome:
        return pack(compute(unscaled(a)), valid_of(a), scale_of(types.result))

    return kernel


def _to_digits(cut: Callable[[Ints, int], Ints], rounding: str) -> Kernel:
    """Return the kernel of round(x, n) or trunc(x, n), or of the forms without n."""

    def one(types: Signature) -> Callable[..., Datum]:
        result = types.result
        target = Decimal(1).scaleb(-scale_of(result))

        def compute(text: str, digits: int = 0) -> Datum:
            value = Decimal(text)
            try:
                if digits < scale_of(types.args[0]):
                    unit = Decimal(1).scaleb(-max(digits, -NUMERIC_DIGITS))
                    value = value.quantize(unit, rounding, _EXACT)
                value = _EXACT.plus(_EXACT.quantize(value, target))  # no -0
            except InvalidOperation:
                raise Failure(OVERFLOW) from None
            return numeric_datum(value, result)

        return compute

    def kernel(types: Signature, a: pa.Array, b: pa.Array | None = None) -> Outcome:
        scale, values = scale_of(types.args[0]), unscaled(a)
        target = scale_of(types.result)
        valid = valid_of(a) if b is None else valid_of(a, b)
        digits = np.zeros(len(values), np.int64) if b is None else np.clip(unscaled(b), -200, 200)
        if len(digits) and bool((digits == digits[0]).all()):
            return pack(cut_at(values, scale, int(digits[0]), target, cut), valid, target)
        out = np.zeros(len(values), dtype=object)
        for count in np.unique(digits).tolist():
            here = digits == count
            out[here] = wide(cut_at(values[here], scale, count, target, cut))
        return pack(out, valid, target)

    return WithSingle(kernel, one)


def cut_at(
    values: Ints, scale: int, digits: int, target: int, cut: Callable[[Ints, int], Ints]
) -> Ints:
    """Return `values` of `scale` with only `digits` after the point, in units of `target`."""
    if digits >= scale:
        return rescale(values, target - scale)
    kept = cut(values, 10 ** (scale - digits))
    if target >= digits:
        return rescale(kept, target - digits)
    return rescale(kept, target - digits)


def _whole(compute: Callable[[Ints, int], Ints]) -> Kernel:
    def kernel(types: Signature, a: pa.Array) -> Outcome:
        scale, values = scale_of(types.args[0]), unscaled(a)
        return pack(compute(wide(values), 10**scale), valid_of(a), 0)

    def one(types: Signature) -> Callable[..., Datum]:
        scale = scale_of(types.args[0])
        unit = 10**scale
        return lambda text: str(compute(int(_EXACT.scaleb(Decimal(text), scale)), unit))

    return WithSingle(kernel, one)


def _sign(values: Ints, unit: int) -> Ints:
    return (values > 0) * 1 - (values < 0) * 1


# --- roots, logarithms, powers: row by row, in wide decimals ----------------------------------

_CONTEXT = Context(prec=120, Emax=10_000, Emin=-10_000)


def _decimal_rows(types: Signature, compute: Callable[..., Any], *arrays: pa.Array) -> Outcome:
    from foreshore.expr.functions.rows import rowwise

    scale = scale_of(types.result)

    def checked(*values: Decimal) -> str:
        shown = [
            (v.normalize(_CONTEXT) if t.trim else v)
            for v, t in zip(values, types.args, strict=True)
        ]
        result, digits = compute(*shown)
        value = rounded_result(result, max(digits, 0), scale)
        if abs(value) >= Decimal(10) ** (NUMERIC_DIGITS - scale):
            raise fail("22003", "value overflows numeric format")
        return format(value, "f")

    return rowwise(types, checked, *arrays)


def _places(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)


def _base_weight(value: Decimal) -> int:
    return floor(value.adjusted() / 4) if value else 0


def _sqrt(x: Decimal) -> tuple[Decimal, int]:
    if x < 0:
        raise fail("2201F", "cannot take square root of a negative number")
    weight = _base_weight(x)
    sweight = (weight + 1) * 4 // 2 - 1 if weight >= 0 else -((-(weight + 1) * 4) // 2) - 1
    return _CONTEXT.sqrt(x), max(16 - sweight, _places(x), 0)


def _estimate_ln_weight(x: Decimal) -> int:
    """Return the decimal weight of ln(x), as PostgreSQL estimates it."""
    if Decimal("0.9") <= x <= Decimal("1.1"):
        rest = x - 1
        return rest.adjusted() if rest else 0
    return int(_CONTEXT.log10(abs(_CONTEXT.ln(x))))


def _ln(x: Decimal) -> tuple[Decimal, int]:
    _check_logarithm(x)
    return _CONTEXT.ln(x), max(16 - _estimate_ln_weight(x), _places(x), 0)


def _check_logarithm(x: Decimal) -> None:
    if x == 0:
        raise fail("2201E", "cannot take logarithm of zero")
    if x < 0:
        raise fail("2201E", "cannot take logarithm of a negative number")


def _log10(x: Decimal) -> tuple[Decimal, int]:
    return _log(Decimal(10), x)


def _log(base: Decimal, x: Decimal) -> tuple[Decimal, int]:
    _check_logarithm(base)
    _check_logarithm(x)
    below = _CONTEXT.ln(base)
    if below == 0:
        raise fail("22012", "division by zero")
    result = _CONTEXT.divide(_CONTEXT.ln(x), below)
    weight = _estimate_ln_weight(x) - _estimate_ln_weight(base)
    return result, max(16 - weight, _places(base), _places(x), 0)


def _exp(x: Decimal) -> tuple[Decimal, int]:
    weight = int(x * Decimal("0.434294481903252"))
    if weight > NUMERIC_DIGITS:
        raise fail("22003", "value overflows numeric format")
    weight = max(weight, -1000)
    return _CONTEXT.exp(x), max(16 - weight, _places(x), 0)


def _power(base: Decimal, exponent: Decimal) -> tuple[Decimal, int]:
    if base == 0 and exponent < 0:
        raise fail("2201F", "zero raised to a negative power is undefined")
    if base < 0 and exponent != exponent.to_integral_value():
        raise fail(
            "2201F", "a negative number raised to a non-integer power yields a complex result"
        )
    if base == 0:
        return (Decimal(0) if exponent else Decimal(1)), 16
    size = exponent * _CONTEXT.log10(abs(base))
    if size > NUMERIC_DIGITS:
        raise fail("22003", "value overflows numeric format")
    digits = max(16 - int(size), _places(base), _places(exponent), 0)
    if size < -200:
        return Decimal(0), digits
    return _CONTEXT.power(base, exponent), digits


def _precise(compute: Callable[..., tuple[Decimal, int]]) -> Kernel:
    return lambda types, *arrays: _decimal_rows(types, compute, *arrays)


# --- renderings -------------------------------------------------------------------------------


def decimal_name(scale: int) -> str:
    """Return the name of decimal types, which is the same in both engines."""
    return f"DECIMAL({NUMERIC_DIGITS},{scale})"


def _sum_sql(operator: str, spark_name: str) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        scale = scale_of(types.result)
        sides = [
            a if scale_of(t) == scale else f"TRY_CAST({a} AS {decimal_name(scale)})"
            for a, t in zip(args, types.args, strict=True)
        ]
        if dialect.name == "duckdb":
            return f"TRY({sides[0]} {operator} {sides[1]})"
        return f"{spark_name}({sides[0]}, {sides[1]})"

    return render


def _sure_sum_sql(operator: str) -> Rendering:
    """Return the rendering of a sum that does not overflow."""

    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        scale = scale_of(types.result)
        sides = [
            a if scale_of(t) == scale else f"CAST({a} AS {decimal_name(scale)})"
            for a, t in zip(args, types.args, strict=True)
        ]
        return f"({sides[0]} {operator} {sides[1]})"

    return render


def _product_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    if sum(map(scale_of, types.args)) != scale_of(types.result):
        return None
    if dialect.name == "duckdb":
        return f"TRY({args[0]} * {args[1]})"
    return f"try_multiply({args[0]}, {args[1]})"


_ADD = _sum_sql("+", "try_add")
_SUBTRACT = _sum_sql("-", "try_subtract")
_TWO = "numeric numeric"

declare(
    "+",
    _TWO,
    larger,
    _add,
    one=_exactly(_WIDE.add),
    stem="add",
    fallible=True,
    error=OVERFLOW,
    duckdb=_ADD,
    duckdb_sure=_sure_sum_sql("+"),
    spark=_ADD,
)
declare(
    "-",
    _TWO,
    larger,
    _subtract,
    one=_exactly(_WIDE.subtract),
    stem="subtract",
    fallible=True,
    error=OVERFLOW,
    duckdb=_SUBTRACT,
    duckdb_sure=_sure_sum_sql("-"),
    spark=_SUBTRACT,
)
declare(
    "*",
    _TWO,
    product,
    _multiply,
    one=_exactly(_WIDE.multiply),
    stem="multiply",
    fallible=True,
    error=OVERFLOW,
    duckdb=_product_sql,
    duckdb_sure=lambda dialect, types, args: f"({args[0]} * {args[1]})",
    spark=_product_sql,
)
declare("/", _TWO, quotient, _divide, stem="divide", fallible=True)
declare("% mod", _TWO, larger, _by_integers(_remainder, False), stem="modulo", fallible=True)
declare("div", _TWO, whole, _by_integers(truncate_divide, True), fallible=True)
declare(
    "-",
    "numeric",
    same,
    _unary(lambda v: -v if v.dtype == object else -wide(v) if magnitude(v) >= 2**63 else -v),
    stem="negate",
    duckdb=lambda d, t, a: f"(-({a[0]}))",
    spark=lambda d, t, a: f"(-({a[0]}))",
)
declare("+", "numeric", same, lambda types, a: a, stem="plus")
declare(
    "abs @",
    "numeric",
    same,
    _unary(lambda v: np.abs(wide(v)) if magnitude(v) >= 2**63 else np.abs(v)),
    duckdb=lambda d, t, a: f"abs({a[0]})",
    spark=lambda d, t, a: f"abs({a[0]})",
)
declare("round", "numeric", whole, _to_digits(divide_half_up, ROUND_HALF_UP), fallible=True)
declare("round", "numeric int4", rounded, _to_digits(divide_half_up, ROUND_HALF_UP), fallible=True)
declare("trunc", "numeric", whole, _to_digits(truncate_divide, ROUND_DOWN), fallible=True)
declare("trunc", "numeric int4", rounded, _to_digits(truncate_divide, ROUND_DOWN), fallible=True)
declare("ceil ceiling", "numeric", whole, _whole(lambda v, unit: -((-v) // unit)), fallible=True)
declare("floor", "numeric", whole, _whole(lambda v, unit: v // unit), fallible=True)
declare("sign", "numeric", whole, _whole(_sign))
declare("sqrt", "numeric", quotient, _precise(_sqrt), fallible=True)
declare("exp", "numeric", quotient, _precise(_exp), fallible=True)
declare("ln", "numeric", quotient, _precise(_ln), fallible=True)
declare("log log10", "numeric", quotient, _precise(_log10), fallible=True)
declare("log", _TWO, quotient, _precise(_log), fallible=True)
declare("power pow ^", _TWO, quotient, _precise(_power), fallible=True)
declare(
    "trim_scale",
    "numeric",
    lambda types, literals: numeric_of_scale(scale_of(types[0]), trim=True),
    lambda types, a: a,
)


# --- finishing of aggregates ------------------------------------------------------------------


def _average(types: Signature, total: pa.Array, count: pa.Array) -> Outcome:
    """Divide a sum by the count; NULL if that is 0."""
    counts = unscaled(count)
    valid = valid_of(total, pa.array(np.where(counts == 0, None, counts), pa.int64()))
    divisor = (types.args[0], numeric_of_scale(0))
    return quotients(
        unscaled(total), np.where(counts == 0, 1, counts), divisor, types.result, valid
    )


def _variance(sample: bool, root: bool) -> Kernel:
    def kernel(types: Signature, total: pa.Array, squares: pa.Array, count: pa.Array) -> Outcome:
        from foreshore.expr.functions.rows import rowwise

        scale = scale_of(types.result)

        def compute(x: Decimal, xx: Decimal, n: int) -> str | None:
            if n < (2 if sample else 1):
                return None
            top = _CONTEXT.subtract(_CONTEXT.multiply(n, xx), _CONTEXT.multiply(x, x))
            if top <= 0:
                return "0"
            under = Decimal(n * (n - 1) if sample else n * n)
            shown = (top.normalize(_CONTEXT), under)
            digits = min(_division_digits(*shown), 100)
            value = _CONTEXT.divide(*shown)
            value = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _CONTEXT)
            if root:
                value = _CONTEXT.sqrt(value)  # with the scale of the variance
            value = rounded_result(value, digits, scale)
            if abs(value) >= Decimal(10) ** (NUMERIC_DIGITS - scale):
                raise fail("22003", "value overflows numeric format")
            return format(value, "f")

        return rowwise(types, compute, total, squares, count)

    return kernel


def _division_digits(x: Decimal, y: Decimal) -> int:
    """Return the scale of x / y in PostgreSQL."""

    def first(value: Decimal) -> int:
        return int(abs(value).scaleb(-4 * _base_weight(value)))

    weight = _base_weight(x) - _base_weight(y) - (first(x) <= first(y))
    return max(16 - 4 * weight, _places(x), _places(y), 0)


hidden("average(numeric,int8)", "numeric int8", quotient, _average, fallible=True)
for _name, _sample, _root in SPREADS:
    hidden(
        f"{_name}(numeric,numeric,int8)",
        "numeric numeric int8",
        quotient,
        _variance(_sample, _root),
        fallible=True,
    )
