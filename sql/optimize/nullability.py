"""Derive which columns may be NULL from the collections read and the plan above them.

A `Column` records the nullability known where it was written, but rules move columns, and a wrong
flag gives wrong answers. So no flag is trusted: nullability is derived from the leaves, and
`refresh` writes it back into the plan.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.ir import (
    And,
    Call,
    Case,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Once,
    Or,
    Parameter,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.traversal import inputs_of

Nullable = tuple[bool, ...]
NEVER_NULL = frozenset(
    (
        "is_null",
        "is_not_null",
        "is_true",
        "is_not_true",
        "is_false",
        "is_not_false",
        "is_distinct",
        "is_not_distinct",
        "single_row_check",
        "row_security",
    )
)
# Strict functions that return a value for all non-NULL arguments, or fail: comparisons and
# arithmetic.
TOTAL = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "not", "add", "subtract", "multiply", "divide")
)


def is_total(function: str) -> bool:
    """Return whether `function` is strict, and NULL only if an argument is NULL."""
    return function.partition("(")[0] in TOTAL


def may_be_null(scalar: Scalar, nullable: Sequence[bool]) -> bool:
    """Return whether `scalar` may be NULL if the columns in `nullable` may be."""
    match scalar:
        case Column(index=index):
            return nullable[index]
        case Literal(value=value):
            return value is None
        case Parameter():
            return scalar.nullable
        case And(args=args) | Or(args=args):
            return any(may_be_null(arg, nullable) for arg in args)
        case Case(branches=branches, otherwise=otherwise):
            results = [result for _, result in branches]
            return any(may_be_null(result, nullable) for result in (*results, otherwise))
        case Call(function=function, args=args):
            if function in NEVER_NULL:
                return False
            if function == "coalesce":
                return all(may_be_null(arg, nullable) for arg in args)
            if is_total(function):
                return any(may_be_null(arg, nullable) for arg in args)
            return True
        case Once(expr=expr):
            return may_be_null(expr, nullable)
        case _:
            return True


def rejected_as_null(predicate: Scalar) -> frozenset[int]:
    """Return the columns for which `predicate` is never TRUE if one of them is NULL."""
    match predicate:
        case And(args=args):
            return frozenset().union(*map(rejected_as_null, args))
        case Or(args=args):
            each = list(map(rejected_as_null, args))
            return each[0].intersection(*each[1:]) if each else frozenset()
        case Call(function="is_not_null" | "is_true", args=(arg,)):
            return strict_in(arg)
        case _:
            return strict_in(predicate)


def strict_in(scalar: Scalar) -> frozenset[int]:
    """Return the columns for which `scalar` is NULL if one of them is."""
    match scalar:
        case Column(index=index):
            return frozenset((index,))
        case Call(function=function, args=args):
            if is_total(function) or scalar_function(function).strict:
                return frozenset().union(*map(strict_in, args))
            return frozenset()
        case _:
            return frozenset()


def nullable_columns(relation: Relation, known: dict[int, Nullable] | None = None) -> Nullable:
    """Return for each column of `relation` whether it may be NULL; `known` is of its locals."""
    known = known or {}
    if isinstance(relation, Let):
        inner = {**known, relation.number: nullable_columns(relation.value, known)}
        return nullable_columns(relation.body, inner)
    below = [nullable_columns(input, known) for input in inputs_of(relation)]
    return nullable_above(relation, below, known)


def nullable_above(
    node: Relation, below: Sequence[Nullable], known: Mapping[int, Nullable]
) -> Nullable:
    """Return which columns of `node`, not a Let, may be NULL, given those of its inputs."""
    match node:
        case Constant(rows=rows, columns=columns):
            return tuple(any(row[i] is None for row, _ in rows) for i in range(len(columns)))
        case Get(columns=columns):
            return tuple(column.nullable for column in columns)
        case LocalGet(number=number, columns=columns):
            return known.get(number, tuple(True for _ in columns))
        case Map(scalars=scalars):
            nullable = below[0]
            for scalar in scalars:
                nullable = (*nullable, may_be_null(scalar, nullable))
            return nullable
        case Filter(predicates=predicates):
            rejected = rejected_as_null(And(predicates))
            return tuple(may and i not in rejected for i, may in enumerate(below[0]))
        case Project(outputs=outputs):
            return tuple(below[0][i] for i in outputs)
        case FlatMap(columns=columns):
            return (*below[0], *(column.nullable for column in columns))
        case Join():
            return _of_join(node, [may for each in below for may in each])
        case Reduce(group_key=group_key, aggregates=aggregates):
            return (
                *(may_be_null(scalar, below[0]) for scalar in group_key),
                *(aggregate.function != "count" for aggregate in aggregates),
            )
        case TopK() | TemporalFilter() | Negate() | Threshold():
            return below[0]
        case Window(functions=functions):
            return (*below[0], *(function.nullable for function in functions))
        case Union():
            return tuple(map(any, zip(*below, strict=True)))
        case Let() | JoinOn() | LetRec() | Recursive():
            raise AssertionError(f"not here: {node}")
        case _:
            assert_never(node)


def _of_join(join: Join, nullable: list[bool]) -> Nullable:
    """Return which columns of a join may be NULL: both sides of an equivalence, or neither.

    In a join where NULL does not equal NULL, no column of an equivalence is NULL.
    """
    for position, equivalence in enumerate(join.equivalences):
        safe = position in join.null_safe
        if not safe or not all(may_be_null(scalar, nullable) for scalar in equivalence):
            for scalar in equivalence:
                if isinstance(scalar, Column):
                    nullable[scalar.index] = False
    return tuple(nullable)
