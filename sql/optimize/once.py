"""Mark what a statement computes once: the sides of comparisons that use no column.

    Filter(t, a = $1 + 1)                   Filter(t, a = Once($1 + 1))
    Filter(t, $1 <> 0 AND a = 1 / $1)       a = Once(CASE WHEN $1 <> 0 THEN 1 / $1 END)

A predicate that may fail for a row stays where it is. A `Once` fails for no row, so its predicate
is pushed down, and it is a key of look-ups and an end of ranges as an argument is. Its error is the
statement's, whatever rows there are: PostgreSQL computes such constants when it plans, or when it
begins to scan an index. Conditions without columns that have to hold for the comparison to matter
guard it: unless they do, it is NULL.
"""

from collections.abc import Iterator, Sequence

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
    JoinOn,
    Literal,
    Once,
    Or,
    OuterColumn,
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
from foreshore.sql.optimize.key_steps import may_change_while_waiting
from foreshore.sql.optimize.lookup import without_widening
from foreshore.sql.optimize.scalars import conjunction, conjuncts
from foreshore.types import BOOL

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "eq_any", "ne_all"))
_OF_ROWS = (Column, OuterColumn, Exists, ScalarSubquery, AnySubquery)


def mark_once(relation: Relation, guards: tuple[Scalar, ...] = ()) -> Relation:
    """Return a bound relation with its constants marked, each guarded by conditions above it."""
    match relation:
        case Filter(input=input, predicates=predicates):
            guards = tuple(dict.fromkeys((*guards, *_guards_in(relation))))
            marked = [_marked(each, guards) for each in conjuncts(predicates)]
            relation = Filter(input, tuple(marked))
        case JoinOn(on=on) if parts := conjuncts((on,)):
            own = (*guards, *filter(_is_constant, parts))
            marked = [_marked(each, own) for each in parts]
            relation = msgspec.structs.replace(relation, on=conjunction(marked))
        case _:
            relation = with_scalars(relation, lambda scalar: _within(scalar, guards))
    inputs = inputs_of(relation)
    below = tuple([mark_once(each, guards) for each in inputs])
    changed = any(a is not b for a, b in zip(inputs, below, strict=True))
    return with_inputs(relation, below) if changed else relation


def _guards_in(relation: Relation) -> Iterator[Scalar]:
    """Yield the conditions without columns of a Filter, and of those right below it."""
    while isinstance(relation, Filter):
        yield from filter(_is_constant, conjuncts(relation.predicates))
        relation = relation.input


def _marked(predicate: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
    match predicate:
        case And(args=args):
            guards = (*guards, *filter(_is_constant, args))
            return And(tuple([_marked(each, guards) for each in args]))
        case Or(args=args):
            decided = [each for each in args if _is_constant(each)]
            guards = (*guards, *[Call("is_not_true", (each,), BOOL) for each in decided])
            return Or(tuple([_marked(each, guards) for each in args]))
        case Call(function=function, args=sides) if function in _COMPARISONS:
            if len({_is_constant(each) for each in sides}) == 2:
                sides = tuple([_once(each, guards) for each in sides])
                return _within(with_operands(predicate, sides), guards)
    return _within(predicate, guards)


def _within(scalar: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
    """Return a scalar whose subqueries are marked, but for those that a branch guards."""
    match scalar:
        case Exists(relation=relation) | ScalarSubquery(relation=relation):
            return msgspec.structs.replace(scalar, relation=mark_once(relation, guards))
        case AnySubquery(predicate=predicate, relation=relation):
            return AnySubquery(_marked(predicate, guards), mark_once(relation, guards))
        case Case() | Once() | Call(function="coalesce"):
            return scalar
    operands = operands_of(scalar)
    marked = tuple([_within(each, guards) for each in operands])
    changed = any(a is not b for a, b in zip(operands, marked, strict=True))
    return with_operands(scalar, marked) if changed else scalar


def _is_constant(scalar: Scalar) -> bool:
    """Whether no row decides the value of a scalar."""
    return not any(isinstance(each, _OF_ROWS) for each in walk_scalars(scalar))


def _once(scalar: Scalar, guards: Sequence[Scalar]) -> Scalar:
    """Return a side of a comparison, marked if it is computed from arguments or session values."""
    if isinstance(scalar, Call) and scalar.function == "array":
        return with_operands(scalar, tuple([_once(each, guards) for each in scalar.args]))
    if not operands_of(_bare(scalar)) or not _is_constant(scalar):
        return scalar
    if not is_light(scalar) or any(map(_changes, walk_scalars(scalar))):
        return scalar
    type = type_of(scalar)
    if guards and can_fail(scalar):
        scalar = Case(((conjunction(guards), scalar),), Literal(None, type), type)
    return Once(scalar, type)


def _bare(scalar: Scalar) -> Scalar:
    """Return what is below casts that preserve equality, of values and of arrays."""
    scalar = without_widening(scalar)
    while isinstance(scalar, Call) and scalar.function == "cast_array(anyarray)":
        (scalar,) = scalar.args
    return scalar


def _changes(scalar: Scalar) -> bool:
    """Whether a part of a scalar may have several values in one statement."""
    if isinstance(scalar, Call):
        return bool(scalar.number) or scalar_function(scalar.function).volatility == "volatile"
    return may_change_while_waiting(scalar)
