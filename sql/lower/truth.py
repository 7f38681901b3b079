"""Predicates of which only TRUE counts: IN becomes EXISTS, NOT IN becomes NOT EXISTS.

In WHERE and ON, in conditions of CASE, and under AND and OR there, FALSE and NULL have the same
effect. So `x IN (q)` may be replaced by "some row of q equals x", and `x NOT IN (q)` by "no row of
q equals x, and no comparison with one is NULL".
"""

from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Column,
    Exists,
    Filter,
    Literal,
    Or,
    OuterColumn,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.traversal import with_operands
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.types import BOOL


def call(function: str, *args: Scalar) -> Call:
    """Return a call that returns a truth value."""
    return Call(function, args, BOOL)


def for_truth(scalar: Scalar) -> Scalar:
    """Return a scalar that is TRUE exactly if `scalar` is, with IN as EXISTS where sufficient."""
    if not has_subquery(scalar):
        return scalar
    match scalar:
        case AnySubquery(predicate=predicate, relation=relation):
            return Exists(Filter(relation, (predicate,)))
        case And(args=args) | Or(args=args):
            return with_operands(scalar, tuple(map(for_truth, args)))
        case Call(function="not", args=(arg,)):
            return for_falsity(arg)
        case _:
            return scalar


def for_falsity(scalar: Scalar) -> Scalar:
    """Return a scalar that is TRUE exactly if `scalar` is FALSE."""
    match scalar:
        case AnySubquery(predicate=predicate, relation=relation) if has_subquery(scalar):
            return call("not", Exists(not_false(relation, predicate)))
        case Call(function="not", args=(arg,)):
            return for_truth(arg)
        case And(args=args):
            return Or(tuple(map(for_falsity, args)))
        case Or(args=args):
            return And(tuple(map(for_falsity, args)))
        case _:
            return call("not", scalar)


def not_false(relation: Relation, predicate: Scalar) -> Relation:
    """Return a relation that has rows if `predicate` is not FALSE for some row of `relation`.

    An equality is taken apart, so that joins on it and single-side tests remain.
    """
    match predicate:
        case Call(function="eq", args=(a, b)) if not has_subquery(predicate):
            parts = [Filter(relation, (predicate,))]
            parts += [
                Filter(relation, (call("is_null", side),)) for side in (a, b) if _nullable(side)
            ]
            return parts[0] if len(parts) == 1 else Union(tuple(parts))
        case _:
            return Filter(relation, (call("is_not_false", predicate),))


def _nullable(scalar: Scalar) -> bool:
    match scalar:
        case Column(nullable=nullable) | OuterColumn(nullable=nullable):
            return nullable
        case Literal(value=value):
            return value is None
        case _:
            return True


def existence(predicate: Scalar) -> tuple[Relation, bool] | None:
    """Return the relation whose existence `predicate` tests; True: that it is empty."""
    match predicate:
        case Exists(relation=relation):
            return relation, False
        case Call(function="not", args=(Exists(relation=relation),)):
            return relation, True
        case _:
            return None
