"""Mark what a statement computes once: the sides of comparisons that use no column.

    Filter(t, a = $1 + 1)                   Filter(t, a = Once($1 + 1))
    Filter(t, $1 <> 0 AND a = 1 / $1)       a = Once(CASE WHEN $1 <> 0 THEN 1 / $1 END)

A predicate that may fail for a row stays where it is. A `Once` fails for no row, so its predicate
is pushed down, and it is a key of look-ups and an end of ranges as an argument is. Its error is the
statement's, whatever rows there are: PostgreSQL computes such constants when it plans, or when it
begins to scan an index. Conditions without columns that stand before it, and have to hold for the
comparison to matter, guard it: unless they do, it is NULL.
"""

from collections.abc import Sequence

import msgspec

from foreshore.expr.columns import type_of
from foreshore.expr.cost import is_light
from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Exists,
    Filter,
    Join,
    JoinOn,
    Literal,
    Map,
    Once,
    Or,
    OuterColumn,
    Project,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.expr.scalars import with_scalars
from foreshore.expr.split import can_fail
from foreshore.expr.traversal import (
    inputs_of,
    operands_of,
    walk_scalars,
    with_inputs,
    with_operands,
)
from foreshore.sql.optimize.dates import without_casts
from foreshore.sql.optimize.key_steps import may_change_while_waiting
from foreshore.sql.optimize.lookup import without_widening
from foreshore.sql.optimize.scalars import conjunction, conjuncts, substitute
from foreshore.types import BOOL

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "eq_any", "ne_all"))
_SUBQUERIES = (Exists, ScalarSubquery, AnySubquery)
_OF_ROWS = (Column, OuterColumn, *_SUBQUERIES)
_BRANCH = Literal(None, BOOL)  # among guards: a CASE or coalesce() decides whether it is computed


def mark_once(relation: Relation, guards: tuple[Scalar, ...] = ()) -> Relation:
    """Return a bound relation with its constants marked; `guards` are of a subquery's outside."""
    match relation:
        case Filter(input=input, predicates=predicates):
            relation = Filter(input, tuple(_in_order(conjuncts(predicates), guards)))
        case JoinOn(on=on) if parts := conjuncts((on,)):
            marked = conjunction(_in_order(parts, guards))
            relation = msgspec.structs.replace(relation, on=marked)
        case _:
            relation = with_scalars(relation, lambda scalar: _within(scalar, guards))
    inputs = inputs_of(relation)
    below = tuple([mark_once(each, guards) for each in inputs])
    changed = any(a is not b for a, b in zip(inputs, below, strict=True))
    return with_inputs(relation, below) if changed else relation


def _in_order(predicates: Sequence[Scalar], guards: tuple[Scalar, ...]) -> list[Scalar]:
    """Return predicates marked, each guarded by the constants before it, as PostgreSQL does.

    Subqueries are guarded by all of them, as they are computed when rows are wanted.
    """
    every = (*guards, *filter(_is_constant, predicates))
    marked = []
    for each in predicates:
        marked.append(_marked(each, every if _has_subquery(each) else guards))
        if _is_constant(each):
            guards = (*guards, each)
    return marked


def _has_subquery(scalar: Scalar) -> bool:
    return any(isinstance(each, _SUBQUERIES) for each in walk_scalars(scalar))


def _marked(predicate: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
    match predicate:
        case And(args=args):
            return And(tuple(_in_order(args, guards)))
        case Or(args=args):
            marked = []
            for each in args:
                marked.append(_marked(each, guards))
                if _is_constant(each):
                    guards = (*guards, Call("is_not_true", (each,), BOOL))
            return Or(tuple(marked))
        case Call(function="not", args=(arg,)):
            return with_operands(predicate, (_marked(arg, guards),))
        case Call(function=function, args=sides) if function in _COMPARISONS:
            sides = tuple(map(_inlined, sides))
            if len({_is_constant(each) for each in sides}) == 2:
                sides = tuple([_once(each, guards) for each in sides])
                return _within(without_casts(Call(function, sides, BOOL)), guards)
    return _within(predicate, guards)


def _inlined(scalar: Scalar) -> Scalar:
    """Return a scalar with the values of `(SELECT ...)` without tables in place of these."""
    if isinstance(scalar, ScalarSubquery):
        row = row_without_tables(scalar.relation)
        if row is None or not _is_constant(row[0]) or any(map(changes, walk_scalars(row[0]))):
            return scalar
        return row[0]
    operands = operands_of(scalar)
    inlined = tuple(map(_inlined, operands))
    changed = any(a is not b for a, b in zip(operands, inlined, strict=True))
    return with_operands(scalar, inlined) if changed else scalar


def row_without_tables(relation: Relation) -> list[Scalar] | None:
    """Return the only row of a bound relation that reads nothing; None of any other."""
    match relation:
        case Join(inputs=()):
            return []
        case Map(input=input, scalars=scalars):
            row = row_without_tables(input)
            if row is not None:
                for scalar in scalars:
                    row.append(substitute(scalar, row))
            return row
        case Project(input=input, outputs=outputs):
            row = row_without_tables(input)
            return None if row is None else [row[i] for i in outputs]
        case _:
            return None


def _within(scalar: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
    """Return a scalar whose subqueries are marked; within a branch only what cannot fail."""
    match scalar:
        case Exists(relation=relation) | ScalarSubquery(relation=relation):
            return msgspec.structs.replace(scalar, relation=mark_once(relation, guards))
        case AnySubquery(predicate=predicate, relation=relation):
            return AnySubquery(_marked(predicate, guards), mark_once(relation, guards))
        case Once():
            return scalar
        case Case() | Call(function="coalesce"):
            guards = (*guards, _BRANCH)
    operands = operands_of(scalar)
    marked = tuple([_within(each, guards) for each in operands])
    changed = any(a is not b for a, b in zip(operands, marked, strict=True))
    return with_operands(scalar, marked) if changed else scalar


def _is_constant(scalar: Scalar) -> bool:
    """Whether no row decides the value of a scalar."""
    return not any(isinstance(each, _OF_ROWS) for each in walk_scalars(scalar))


def computed_once(scalar: Scalar) -> Scalar:
    """Return a scalar, marked if it may fail and no row decides its value."""
    return _once(scalar, ()) if can_fail(scalar) else scalar


def _once(scalar: Scalar, guards: Sequence[Scalar]) -> Scalar:
    """Return a side of a comparison, marked if it is computed from arguments or session values."""
    if isinstance(scalar, Call) and scalar.function == "array":
        return with_operands(scalar, tuple([_once(each, guards) for each in scalar.args]))
    if not operands_of(_bare(scalar)) or not _is_constant(scalar):
        return scalar
    if not is_light(scalar) or any(map(changes, walk_scalars(scalar))):
        return scalar
    type = type_of(scalar)
    if _BRANCH in guards and can_fail(scalar):
        return scalar
    if guards and can_fail(scalar):
        scalar = Case(((conjunction(guards), scalar),), Literal(None, type), type)
    return Once(scalar, type)


def _bare(scalar: Scalar) -> Scalar:
    """Return what is below casts that preserve equality, of values and of arrays."""
    scalar = without_widening(scalar)
    while isinstance(scalar, Call) and scalar.function == "cast_array(anyarray)":
        (scalar,) = scalar.args
    return scalar


def changes(scalar: Scalar) -> bool:
    """Whether a part of a scalar may have several values in one statement."""
    if isinstance(scalar, Call):
        return bool(scalar.number) or scalar_function(scalar.function).volatility == "volatile"
    return may_change_while_waiting(scalar)
