"""Bounds of numbers: calls over numerics that surely do not overflow.

    numeric(15, 2) * (1 - numeric(15, 2))      at most 10^15 * (10^15 + 100) units: infallible
    numeric * numeric                          not known

A bound is one of the absolute value, in units of the type's scale. A declared precision gives one,
as all values of a type have no more digits; `foreshore.expr.narrow` declares what a collection's
values have.
"""

from decimal import Context, Decimal
from functools import lru_cache

from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Case, Literal, Scalar
from foreshore.types import NUMERIC_DIGITS, SqlType

LIMIT = 10**NUMERIC_DIGITS
_CONTEXT = Context(prec=200)
_BITS = {"int2": 15, "int4": 31, "int8": 63}
_SUMS = frozenset(["add(numeric,numeric)", "subtract(numeric,numeric)"])
_PRODUCT = "multiply(numeric,numeric)"
_SAME = frozenset(["negate(numeric)", "plus(numeric)", "abs(numeric)", "relabel"])


def is_arithmetic(call: Call) -> bool:
    """Whether a call is a sum, a difference or a product of numerics."""
    return call.function in _SUMS or call.function == _PRODUCT


def never_overflows(call: Call) -> bool:
    """Whether a call that fails by overflow only does not do so, whatever the values."""
    if not is_arithmetic(call):
        return False
    found = bound_of(call)
    return found is not None and found < LIMIT


@lru_cache(65_536)
def bound_of(scalar: Scalar) -> int | None:
    """Return a bound of a number, None if there is none known."""
    type = type_of(scalar)
    if type.name in _BITS:
        return 1 << _BITS[type.name]
    if type.name != "numeric":
        return None
    found = _computed(scalar, type)
    if type.length is None:
        return found
    declared = int(10**type.length)
    return declared if found is None else min(found, declared)


def _computed(scalar: Scalar, type: SqlType) -> int | None:
    """Return the bound of a numeric that follows from its operands."""
    scale = type.scale or 0
    match scalar:
        case Literal(value=None):
            return 0
        case Literal(value=value):
            return abs(int(Decimal(str(value)).scaleb(scale, _CONTEXT)))
        case Case(branches=branches, otherwise=otherwise):
            return _most([*(result for _, result in branches), otherwise], scale)
        case Call(function="coalesce", args=args):
            return _most(args, scale)
        case Call(function=function, args=args) if function in _SUMS:
            parts = [_rescaled(arg, scale) for arg in args]
            return None if None in parts else sum(part for part in parts if part is not None)
        case Call(function=function, args=(left, right)) if function == _PRODUCT:
            a, b = bound_of(left), bound_of(right)
            scales = (type_of(left).scale or 0) + (type_of(right).scale or 0)
            return None if a is None or b is None or scales != scale else a * b
        case Call(function=function, args=(arg,)) if function in _SAME or (
            function.startswith("cast(") and type.name == "numeric"
        ):
            return _rescaled(arg, scale)
        case _:
            return None


def _most(scalars: "list[Scalar] | tuple[Scalar, ...]", scale: int) -> int | None:
    bounds = [_rescaled(scalar, scale) for scalar in scalars]
    return None if None in bounds else max((b for b in bounds if b is not None), default=0)


def _rescaled(scalar: Scalar, scale: int) -> int | None:
    """Return the bound of a number in units of another scale."""
    found = bound_of(scalar)
    if found is None:
        return None
    by = scale - (type_of(scalar).scale or 0)
    return found * int(10**by) if by >= 0 else found // int(10**-by) + 1
