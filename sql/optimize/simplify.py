"""Simplify scalars: fold constants, propagate truth values and NULLs.

Errors are preserved: a call that fails stays, and an operand that may fail is dropped only if a
guard (a FALSE in And, a branch not taken) would have suppressed its error as well.
"""

from collections.abc import Sequence

from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import constant, may_fold
from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.ir import FALSE, TRUE, And, Call, Case, ErrorOf, Literal, Once, Or, Scalar
from foreshore.expr.split import Test, can_fail
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.sql.optimize.nullability import may_be_null
from foreshore.types import BOOL, TEXT

NEGATED = {
    "eq": "ne",
    "ne": "eq",
    "lt": "ge",
    "ge": "lt",
    "gt": "le",
    "le": "gt",
    "is_null": "is_not_null",
    "is_not_null": "is_null",
    "is_true": "is_not_true",
    "is_not_true": "is_true",
    "is_false": "is_not_false",
    "is_not_false": "is_false",
    "is_distinct": "is_not_distinct",
    "is_not_distinct": "is_distinct",
}


def simplify(scalar: Scalar, nullable: Sequence[bool], fallible: Test) -> Scalar:
    """Return a scalar of the same value and errors; `nullable` lists the nullable columns."""
    operands = operands_of(scalar)
    if not operands:
        return scalar if not isinstance(scalar, And | Or) else _truth(isinstance(scalar, And))
    simplified = tuple(simplify(operand, nullable, fallible) for operand in operands)
    if simplified != operands:
        scalar = with_operands(scalar, simplified)
    match scalar:
        case And():
            return _connective(scalar, simplified, TRUE, FALSE)
        case Or():
            return _connective(scalar, simplified, FALSE, TRUE)
        case Case():
            return _case(scalar)
        case ErrorOf(expr=expr):
            return scalar if can_fail(expr, fallible) else Literal(None, TEXT)
        case Once(expr=expr):
            return scalar if operands_of(expr) else expr
        case Call():
            return _call(scalar, nullable, fallible)
        case _:
            return scalar


def _truth(value: bool) -> Literal:
    return TRUE if value else FALSE


def _connective(
    scalar: And | Or, args: Sequence[Scalar], neutral: Literal, decisive: Literal
) -> Scalar:
    """Simplify And or Or; a `decisive` operand determines the result, errors included."""
    flat: dict[Scalar, None] = {}
    for arg in args:
        inner = arg.args if type(arg) is type(scalar) else (arg,)
        for part in inner:
            if part == decisive:
                return decisive
            if part != neutral:
                flat[part] = None
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat))
    return type(scalar)(tuple(flat))


def _case(case: Case) -> Scalar:
    branches: list[tuple[Scalar, Scalar]] = []
    otherwise = case.otherwise
    for condition, result in case.branches:
        if isinstance(condition, Literal):
            if condition.value is not True:
                continue
            otherwise = result
            break
        branches.append((condition, result))
    if not branches and type_of(otherwise) == case.type:
        return otherwise
    return Case(tuple(branches), otherwise, case.type)


def _call(call: Call, nullable: Sequence[bool], fallible: Test) -> Scalar:
    match call:
        case Call(function="is_null" | "is_not_null", args=(arg,)):
            if not may_be_null(arg, nullable) and not can_fail(arg, fallible):
                return _truth(call.function == "is_not_null")
        case Call(function="is_not_true", args=(arg,)) if not may_be_null(arg, nullable):
            return _call(Call("not", (arg,), BOOL), nullable, fallible)
        case Call(function="is_not_false" | "is_true", args=(arg,)):
            if not may_be_null(arg, nullable):
                return arg
        case Call(function="coalesce", args=args):
            kept = []
            for arg in args:
                if isinstance(arg, Literal) and arg.value is None:
                    continue
                kept.append(arg)
                if not may_be_null(arg, nullable):
                    break
            if not kept:
                return Literal(None, call.type)
            if len(kept) == 1 and type_of(kept[0]) == call.type:
                return kept[0]
            return Call("coalesce", tuple(kept), call.type)
        case Call(function="not", args=(And() | Or() | Call() as arg,)):
            negated = _negated(arg)
            if negated is not None:
                return simplify(negated, nullable, fallible)
    if _is_null_by_strictness(call, fallible):
        return Literal(None, call.type)
    if all(isinstance(arg, Literal) for arg in call.args) and may_fold(call):
        value = constant(call)
        return call if isinstance(value, str) else value
    return call


def _negated(scalar: And | Or | Call) -> Scalar | None:
    """Return NOT `scalar` with the NOT moved inward, or None if it cannot be moved."""
    match scalar:
        case And(args=args):
            return Or(tuple(Call("not", (arg,), BOOL) for arg in args))
        case Or(args=args):
            return And(tuple(Call("not", (arg,), BOOL) for arg in args))
        case Call(function="not", args=(inner,)):
            return inner
        case Call(function=name, args=args) if name in NEGATED:
            return Call(NEGATED[name], args, BOOL)
        case _:
            return None


def _is_null_by_strictness(call: Call, fallible: Test) -> bool:
    """Return whether a NULL argument makes `call` NULL and no other argument may fail."""
    if not any(isinstance(arg, Literal) and arg.value is None for arg in call.args):
        return False
    return scalar_function(call.function).strict and not any(
        can_fail(arg, fallible) for arg in call.args
    )
