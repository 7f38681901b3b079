"""Three-valued truth where only TRUE counts: IN as EXISTS, NOT IN as NOT EXISTS.

In WHERE and ON, in a CASE's conditions, and under AND and OR there, FALSE and NULL are the same,
and so a comparison with a subquery's rows need not be told from NULL: `x IN (q)` is TRUE where some
row of q equals x, and `x NOT IN (q)` where no row of q equals x or is NULL or finds x NULL.
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
    with_operands,
)
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.types import BOOL


def call(function: str, *args: Scalar) -> Call:
    """Return a call that gives a truth value."""
    return Call(function, args, BOOL)


def for_truth(scalar: Scalar) -> Scalar:
    """Return what is TRUE exactly where `scalar` is, with IN as EXISTS where that is enough."""
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
    """Return what is TRUE exactly where `scalar` is FALSE."""
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
    """Return rows that are there if `predicate` is not FALSE for some row of `relation`.

    An equality is taken apart, so that what remains are joins on it and tests of one side.
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
    """Return the relation that `predicate` says is not empty, or with True that it is empty."""
    match predicate:
        case Exists(relation=relation):
            return relation, False
        case Call(function="not", args=(Exists(relation=relation),)):
            return relation, True
        case _:
            return None
