"""Bind aggregate calls: find the query to which an aggregate belongs.

    SELECT (SELECT sum(t.x)) FROM t        belongs to the query of t
    SELECT (SELECT sum(t.x + u.y) FROM u) FROM t        to that of u

It belongs to the innermost query whose columns it uses in its arguments, FILTER or ORDER BY, or to
the query that contains it if it uses none. Its core aggregates are collected there, and the clause
of *that* query decides whether an aggregate is allowed.
"""

from collections.abc import Sequence
from typing import cast as cast_

import msgspec

from foreshore.errors import (
    FeatureNotSupported,
    GroupingError,
    UndefinedFunction,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.comparison import check_equality
from foreshore.expr.functions.registry import NO_LITERAL, resolve_aggregate
from foreshore.expr.ir import Aggregate, And, Call, Column, Literal, OrderKey, OuterColumn, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.aggregates import Aggregates, CoreRef
from foreshore.sql.bind.binder import Binder, Clause
from foreshore.sql.bind.composed_aggregates import Composed, never_null, order_key
from foreshore.sql.bind.ordered_sets import compose_ordered_set
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.records import as_scalar
from foreshore.sql.bind.row_json import AGGREGATES as ROW_AGGREGATES
from foreshore.sql.bind.row_json import row_as_json
from foreshore.sql.bind.row_values import RowValue
from foreshore.sql.bind.scope import Scope
from foreshore.sql.rewrite.scalars import lift, map_scalar
from foreshore.types import INT8

_ORDERED = ("array_agg", "string_agg")


def bind_aggregate(binder: Binder, name: str, expr: ast.FunctionCall) -> Scalar:
    """Return the value of an aggregate over the groups of the query to which it belongs."""
    if expr.star and name != "count":
        raise UndefinedFunction(f"function {name}() does not exist", position=expr.at + 1)
    if not expr.args and not expr.star and expr.within_group is None:
        raise WrongObjectType(
            f"{name}(*) must be used to call a parameterless aggregate function",
            position=expr.at + 1,
        )
    inner = binder.over(Clause("aggregate", nested=True))
    order_by = tuple(order_key(inner, key) for key in expr.order_by)
    condition = None
    if expr.filter is not None:
        filtering = binder.over(Clause("FILTER"))
        condition = filtering.boolean(expr.filter, "FILTER")
    if expr.within_group is not None:
        direct = binder.over(Clause("direct arguments"))
        composed = compose_ordered_set(direct, inner, name, expr)
    else:
        composed, order_by = _composed(binder, inner, name, expr, order_by)
    used = [*composed.uses, *(key.expr for key in order_by)]
    if condition is not None:
        used.append(condition)
    level = _level(binder, used, expr.at)
    owner, gathered = _owner(binder, level, expr.at)
    if not order_by and not expr.distinct:
        order_by = owner.order.keys
    else:
        order_by = _lifted_order(order_by, level)
    cores = tuple(
        gathered.add(
            Aggregate(
                core.function,
                tuple(lift(arg, level) for arg in core.args),
                core.type,
                expr.distinct or core.distinct,
                _lifted(both(core.filter, condition), level),
                _lifted_order(core.order_by, level)
                or (order_by if core.function in _ORDERED else ()),
            )
        )
        for core in composed.cores
    )
    value = _with_columns(composed.finish, cast_("tuple[Scalar, ...]", cores))
    if composed.direct:
        assert isinstance(value, Call)
        args = list(value.args)
        for place, scalar in composed.direct.items():
            args[place] = lift(scalar, level)
        return msgspec.structs.replace(value, args=tuple(args))
    return value


def both(left: Scalar | None, right: Scalar | None) -> Scalar | None:
    """Return the conjunction of two conditions, None for none."""
    if left is None or right is None:
        return left if right is None else right
    return And((left, right))


def _lifted(scalar: Scalar | None, level: int) -> Scalar | None:
    return None if scalar is None else lift(scalar, level)


def _lifted_order(keys: tuple[OrderKey, ...], level: int) -> tuple[OrderKey, ...]:
    return tuple(msgspec.structs.replace(key, expr=lift(key.expr, level)) for key in keys)


def _composed(
    binder: Binder,
    inner: Binder,
    name: str,
    expr: ast.FunctionCall,
    order_by: tuple[OrderKey, ...],
) -> tuple[Composed, tuple[OrderKey, ...]]:
    """Return the composition of a call over the row at which it stands, and its order."""
    values = tuple(inner.bind_value(arg) for arg in expr.args)
    rows = [value for value in values if isinstance(value, RowValue)]
    if rows and name in ROW_AGGREGATES:
        kind = ROW_AGGREGATES[name]
        values = tuple(
            row_as_json(inner, value, kind) if isinstance(value, RowValue) else value
            for value in values
        )
    elif rows and (name != "count" or len(values) != 1):
        values = tuple(as_scalar(inner, value) for value in values)
    elif rows:
        return _count_of_rows(rows[0], distinct=expr.distinct), order_by
    args = cast_("tuple[Scalar, ...]", values)
    offsets = tuple(map(at_of, expr.args))
    if expr.distinct and not args:
        raise UndefinedFunction("DISTINCT needs an argument", position=expr.at + 1)
    with located(expr.at):
        literals = tuple(a.value if isinstance(a, Literal) else NO_LITERAL for a in args)
        found = resolve_aggregate(name, tuple(map(type_of, args)), literals, distinct=expr.distinct)
    given = args
    args = binder.coerced(args, found.arg_types, offsets)
    if expr.distinct:
        order_by = tuple(_as_argument(key, given, args) for key in order_by)
        with located(expr.at):
            for type in found.arg_types:
                check_equality(type)
    if expr.distinct and not found.distinct:
        raise FeatureNotSupported(f"{name}(DISTINCT ...) is not supported", position=expr.at + 1)
    if expr.distinct and any(key.expr not in args for key in order_by):
        raise WrongObjectType(
            "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            sqlstate="42P10",
            position=expr.order_by[0].at + 1,
        )
    zone = binder.planning.zone
    cores = tuple(
        Aggregate(
            core.function,
            tuple(zone.applied_within(_with_columns(arg, args)) for arg in core.args),
            core.type,
            distinct=core.distinct,
            filter=None if core.filter is None else _with_columns(core.filter, args),
        )
        for core in found.cores
    )
    finish = found.finish
    if rows and name == "json_agg" and isinstance(finish, Call):
        finish = msgspec.structs.replace(finish, function="json_of_arrays(json[])")
    return Composed(cores, finish, args), order_by


def _as_argument(key: OrderKey, given: Sequence[Scalar], args: Sequence[Scalar]) -> OrderKey:
    """Return a key that is an argument before its coercion as one by the coerced argument."""
    for before, after in zip(given, args, strict=True):
        if key.expr == before:
            return msgspec.structs.replace(key, expr=after)
    return key


def _with_columns(scalar: Scalar, values: tuple[Scalar, ...]) -> Scalar:
    """Return `scalar`, over columns only, with `values` substituted."""

    def replace(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return map_scalar(scalar, replace)


# --- rows ----------------------------------------------------------------------------------


def _count_of_rows(row: RowValue, *, distinct: bool) -> Composed:
    """Return count of rows; a row is not NULL even if all of its fields are."""
    if row.outer and row.present is None:
        raise FeatureNotSupported(
            "count of whole rows of an outer join's nullable side is not supported",
            hint="Count a column that is never null.",
            position=row.at + 1,
        )
    if distinct and not row.items:
        raise row.refused()
    args = tuple(part for item in row.items for part in never_null(item)) if distinct else ()
    if row.present is not None:
        args = (*args, row.present)
    return Composed((Aggregate("count", args, INT8),), Column(0, INT8, False), row.items)


# --- the query of an aggregate ----------------------------------------------------------


def _level(binder: Binder, used: list[Scalar], at: int) -> int:
    """Return the number of levels to the query to which an aggregate over `used` belongs."""
    columns: set[int] = set()
    aggregates: set[int] = set()
    owners = _aggregates_around(binder.scope)

    def look(node: Scalar, depth: int) -> Scalar | None:
        match node:
            case Column() if depth == 0:
                columns.add(0)
            case OuterColumn(level=level) if level >= depth:
                columns.add(level - depth)
            case CoreRef(owner=owner) if owner in owners:
                aggregates.add(owners[owner])
        return None

    for scalar in used:
        map_scalar(scalar, look)
    columns -= _levels_of_parameters(binder.scope)
    level = min(columns | aggregates, default=0)
    if level in aggregates:
        raise GroupingError("aggregate function calls cannot be nested", position=at + 1)
    return level


def _levels_of_parameters(scope: Scope) -> set[int]:
    """Return the levels that are no queries, but the parameters of a function."""
    found, level = set(), 0
    around: Scope | None = scope
    while around is not None:
        if around.parameters:
            found.add(level)
        level, around = level + 1, around.parent
    return found


def _aggregates_around(scope: Scope) -> dict[int, int]:
    """Return the levels of the enclosing queries by the numbers of their aggregates."""
    found = {}
    level = 0
    around = scope.parent
    while around is not None:
        level += 1
        if around.clause is not None and around.clause.aggregates is not None:
            found[around.clause.aggregates.number] = level
        around = around.parent
    return found


def _owner(binder: Binder, level: int, at: int) -> tuple[Scope, Aggregates]:
    """Return the scope `level` levels out, and the aggregates of its query."""
    scope, clause = binder.scope, binder.clause
    for _ in range(level):
        assert scope.parent is not None
        scope = scope.parent
        clause = scope.clause or Clause("FROM clause of their own query level")
    if clause.aggregates is None:
        raise clause.refuse_aggregate(at)
    return scope, clause.aggregates
