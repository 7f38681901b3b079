"""Helpers for rules: move scalars to other columns, substitute, split conjunctions."""

from collections.abc import Callable, Mapping, Sequence

from foreshore.expr.ir import TRUE, And, Column, Literal, Scalar
from foreshore.expr.traversal import operands_of, with_operands

MAX_NODES = 200  # maximum size of a scalar after substituting definitions


def replace_columns(scalar: Scalar, change: Callable[[Column], Scalar]) -> Scalar:
    """Return `scalar` with `change` applied to each column in it."""
    if isinstance(scalar, Column):
        return change(scalar)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    changed = tuple(replace_columns(operand, change) for operand in operands)
    return scalar if changed == operands else with_operands(scalar, changed)


def remap(scalar: Scalar, places: Mapping[int, int] | Sequence[int]) -> Scalar:
    """Return `scalar` with its columns moved to `places`."""
    return replace_columns(scalar, lambda c: Column(places[c.index], c.type, c.nullable))


def substitute(scalar: Scalar, definitions: Sequence[Scalar | None]) -> Scalar:
    """Return `scalar` with each column replaced by its definition, if it has one."""
    return replace_columns(scalar, lambda c: definitions[c.index] or c)


def conjuncts(predicates: Sequence[Scalar]) -> list[Scalar]:
    """Return the distinct operands of the conjunction of `predicates`."""
    result: dict[Scalar, None] = {}
    stack = list(reversed(predicates))
    while stack:
        predicate = stack.pop()
        if isinstance(predicate, And):
            stack.extend(reversed(predicate.args))
        elif predicate != TRUE:
            result[predicate] = None
    return list(result)


def conjunction(predicates: Sequence[Scalar]) -> Scalar:
    """Return the conjunction of `predicates`, of which there is at least one."""
    return predicates[0] if len(predicates) == 1 else And(tuple(predicates))


def size_of(scalar: Scalar) -> int:
    """Return the number of nodes of `scalar`."""
    count = 0
    stack = [scalar]
    while stack:
        count += 1
        stack.extend(operands_of(stack.pop()))
    return count


def is_never_true(predicate: Scalar) -> bool:
    """Return whether `predicate` is the constant FALSE or NULL."""
    return isinstance(predicate, Literal) and predicate.value is not True
