"""Aggregates as compositions of core ones, and what calls of all kinds of them have in common."""

from dataclasses import dataclass, field

from foreshore.expr.columns import type_of
from foreshore.expr.functions.comparison import check_ordering
from foreshore.expr.ir import Aggregate, Call, Column, Literal, OrderKey, OuterColumn, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import to_known
from foreshore.sql.bind.planning import located
from foreshore.types import BOOL, SqlType, array_of


@dataclass(frozen=True, slots=True)
class Composed:
    """The composition of a call: core aggregates, and a scalar whose `Column(i)` is the i-th."""

    cores: tuple[Aggregate, ...]
    finish: Scalar
    uses: tuple[Scalar, ...]  # scalars over the rows that its arguments use
    # direct arguments of WITHIN GROUP, over the groups, by their places in the call `finish`
    direct: dict[int, Scalar] = field(default_factory=dict)


def order_key(binder: Binder, key: ast.SortKey) -> OrderKey:
    """Return a key of an aggregate's ORDER BY."""
    expr = to_known(binder.planning, binder.bind(key.expr), key.at)
    with located(key.at):
        check_ordering(type_of(expr))
    nulls_first = key.descending if key.nulls_first is None else key.nulls_first
    return OrderKey(expr, key.descending, nulls_first)


def never_null(scalar: Scalar) -> tuple[Scalar, ...]:
    """Return scalars that are never NULL, and equal exactly if `scalar` is not distinct."""
    type = type_of(scalar)
    if isinstance(scalar, Column | OuterColumn) and not scalar.nullable:
        return (scalar,)
    if type.element is None:
        return (Call("array", (scalar,), array_of(type)),)
    is_null = Call("is_null", (scalar,), BOOL)
    return (is_null, Call("coalesce", (scalar, Literal((), _bare_array(type))), type))


def _bare_array(type: SqlType) -> SqlType:
    assert type.element is not None
    return array_of(type.element)
