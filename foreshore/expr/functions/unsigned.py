"""Arithmetic, bits and casts of unsigned integers; a result out of range is an error."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.datum import to_array
from foreshore.errors import data_error
from foreshore.expr.functions.casting import INTEGERS
from foreshore.expr.functions.comparison import NAMES
from foreshore.expr.functions.decimals import limit_of, rescale, scale_of, unscaled
from foreshore.expr.functions.function import (
    BY_KEY,
    Kernel,
    Outcome,
    Signature,
    declare,
    hidden,
    overload,
)
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, out_of_range
from foreshore.types import SqlType
from foreshore.unsigned import GREATEST, column_of, numbers_of

_BITS = {"uint2": 16, "uint4": 32, "uint8": 64}
_SIGNED = {"int2": 2**15, "int4": 2**31, "int8": 2**63}


def _too_far(shown: object, type: SqlType) -> str:
    return data_error("22003", f'"{shown}" {type} out of range')


def _valid(*arrays: pa.Array) -> Any:
    found = np.ones(len(arrays[0]), dtype=bool)
    for array in arrays:
        found &= array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _fitted(types: Signature, values: Any, valid: Any, shown: Callable[[int], object]) -> Outcome:
    """Return the values, with errors where the result's type cannot hold them."""
    greatest = GREATEST[types.result.name]
    fits = np.asarray((values >= 0) & (values <= greatest), dtype=bool) | ~valid
    column = column_of(values.tolist(), valid & fits, types.result)
    if fits.all():
        return column
    errors = [
        None if ok else _too_far(shown(at), types.result) for at, ok in enumerate(fits.tolist())
    ]
    return column, pa.array(errors, pa.string())


def _binary(operator: str, compute: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        x, y = (numbers_of(each).astype(object) for each in (a, b))
        return _fitted(types, compute(x, y), _valid(a, b), lambda at: f"{x[at]} {operator} {y[at]}")

    return kernel


def _divided(compute: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        x, y = numbers_of(a), numbers_of(b)
        valid = _valid(a, b)
        zero = (y == 0) & valid
        values = compute(x, np.where(y == 0, np.ones_like(y), y))
        column = column_of(values.tolist(), valid & ~zero, types.result)
        if not zero.any():
            return column
        return column, pa.array([DIVISION_BY_ZERO if z else None for z in zero], pa.string())

    return kernel


def _within(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of bits, cut to those of the type."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        mask = GREATEST[types.result.name]
        numbers = [
            (numbers_of(a) if t.name in GREATEST else unscaled(a)).astype(object)
            for a, t in zip(arrays, types.args, strict=True)
        ]
        values = compute(*numbers, _BITS[types.result.name]) & mask
        return column_of(values.tolist(), _valid(*arrays), types.result)

    return kernel


def _negated(types: Signature, a: pa.Array) -> Outcome:
    x = -numbers_of(a).astype(object)
    return _fitted(types, x, _valid(a), lambda at: x[at])


def _same(types: Signature, a: pa.Array) -> Outcome:
    return a


# --- casts ------------------------------------------------------------------------------------


def _from_integer(types: Signature, a: pa.Array) -> Outcome:
    values = (numbers_of(a) if types.args[0].name in GREATEST else unscaled(a)).astype(object)
    return _fitted(types, values, _valid(a), lambda at: values[at])


def _from_numeric(types: Signature, a: pa.Array) -> Outcome:
    values = rescale(unscaled(a), -scale_of(types.args[0])).astype(object)
    return _fitted(types, values, _valid(a), lambda at: values[at])


def _from_float(types: Signature, a: pa.Array) -> Outcome:
    data = a.fill_null(0).to_numpy(zero_copy_only=False)
    finite = np.isfinite(data)
    values = np.array([int(v) if ok else -1 for v, ok in zip(np.rint(data), finite, strict=True)])

    def shown(at: int) -> object:
        if not finite[at]:
            return data[at]
        text = format(Decimal(str(np.rint(data[at]))), "f")
        return text.partition(".")[0]

    return _fitted(types, values.astype(object), _valid(a), shown)


def _to_integer(types: Signature, a: pa.Array) -> Outcome:
    values = numbers_of(a).astype(object)
    valid = _valid(a)
    fits = np.asarray(values < _SIGNED[types.result.name], dtype=bool) | ~valid
    kept = [
        v if ok and there else None
        for v, ok, there in zip(values.tolist(), fits, valid, strict=True)
    ]
    column = to_array(kept, types.result)
    if fits.all():
        return column
    errors = [
        None if ok else _too_far(v, types.result)
        for v, ok in zip(values.tolist(), fits, strict=True)
    ]
    return column, pa.array(errors, pa.string())


def _to_numeric(types: Signature, a: pa.Array) -> Outcome:
    scale, limit = scale_of(types.result), limit_of(types.result)
    values, valid = numbers_of(a).astype(object), _valid(a)
    fits = np.asarray(values * 10**scale < limit, dtype=bool) | ~valid
    kept = [
        str(v) if ok and there else None
        for v, ok, there in zip(values.tolist(), fits, valid, strict=True)
    ]
    column = to_array(kept, types.result)
    if fits.all():
        return column
    overflow = out_of_range(types.result)
    return column, pa.array([None if ok else overflow for ok in fits], pa.string())


def _to_float(types: Signature, a: pa.Array) -> Outcome:
    valid = _valid(a).tolist()
    values = [float(v) if ok else None for v, ok in zip(numbers_of(a).tolist(), valid, strict=True)]
    return to_array(values, types.result)


def _to_bool(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(numbers_of(a) != 0, pa.bool_(), mask=~_valid(a))


def _numeric_may_fail(types: Signature) -> bool:
    digits = {"uint2": 5, "uint4": 10, "uint8": 20}[types.args[0].name]
    return bool(10 ** (digits + scale_of(types.result)) > limit_of(types.result))


def _declare(name: str) -> None:
    two = f"{name} {name}"
    for operator, stem, compute in (
        ("+", "add", lambda x, y: x + y),
        ("-", "subtract", lambda x, y: x - y),
        ("*", "multiply", lambda x, y: x * y),
    ):
        declare(operator, two, name, _binary(operator, compute), stem=stem, fallible=True)
    for names, stem, compute in (
        ("/", "divide", lambda x, y: x // y),
        ("% mod", "modulo", lambda x, y: x % y),
    ):
        declare(
            names,
            two,
            name,
            _divided(compute),
            stem=stem,
            fallible=True,
            error=DIVISION_BY_ZERO,
        )
    for operator, stem, combine in (
        ("&", "bitand", lambda x, y, bits: x & y),
        ("|", "bitor", lambda x, y, bits: x | y),
        ("#", "bitxor", lambda x, y, bits: x ^ y),
    ):
        declare(operator, two, name, _within(combine), stem=stem)
    declare("~", name, name, _within(lambda x, bits: x ^ ((1 << bits) - 1)), stem="bitnot")
    for by in ("uint4", "int4"):
        declare("<<", f"{name} {by}", name, _within(_left), stem="shift_left")
        declare(">>", f"{name} {by}", name, _within(_right), stem="shift_right")
    declare("-", name, name, _negated, stem="negate", fallible=True)
    declare("+", name, name, _same, stem="plus")
    declare("abs @", name, name, _same)
    for other in (*INTEGERS, *(each for each in GREATEST if each != name)):
        fallible = other not in GREATEST or _BITS[other] > _BITS[name]
        hidden(f"cast({other},{name})", other, name, _from_integer, fallible=fallible)
    for other in INTEGERS:
        hidden(f"cast({name},{other})", name, other, _to_integer, fallible=True)
    hidden(f"cast(numeric,{name})", "numeric", name, _from_numeric, fallible=True)
    hidden(
        f"cast({name},numeric)",
        name,
        "numeric",
        _to_numeric,
        fallible=True,
        fails=_numeric_may_fail,
    )
    for other in ("float4", "float8"):
        hidden(f"cast({other},{name})", other, name, _from_float, fallible=True)
        hidden(f"cast({name},{other})", name, other, _to_float)
    hidden(f"cast({name},bool)", name, "bool", _to_bool)


def _left(x: Any, by: Any, bits: int) -> Any:
    return np.array([v << (n % bits) for v, n in zip(x, by, strict=True)], dtype=object)


def _right(x: Any, by: Any, bits: int) -> Any:
    return np.array([v >> (n % bits) for v, n in zip(x, by, strict=True)], dtype=object)


for _name in GREATEST:
    _declare(_name)
# The type in which operands of two types are computed.
_COMMON = {
    ("uint2", "uint4"): "uint4",
    ("uint2", "uint8"): "uint8",
    ("uint4", "uint8"): "uint8",
    ("uint2", "int2"): "int4",
    ("uint2", "int4"): "int4",
    ("uint2", "int8"): "int8",
    **{("uint4", each): "int8" for each in INTEGERS},
    **{("uint8", each): "numeric" for each in INTEGERS},
}
for _pair, _wide in _COMMON.items():
    for _surface, _stem in (("+", "add"), ("-", "subtract"), ("*", "multiply"), ("/", "divide")):
        for _both in (_pair, _pair[::-1]):
            overload(_surface, " ".join(_both), BY_KEY[f"{_stem}({_wide},{_wide})"])
# A bigint and a uint8 compare as numerics, which hold both.
for _kind, _surface in NAMES.items():
    for _other in INTEGERS:
        for _operands in (f"uint8 {_other}", f"{_other} uint8"):
            overload(_surface, _operands, BY_KEY[_kind], "numeric numeric")
