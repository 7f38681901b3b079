"""Bind LIMIT, OFFSET and FETCH FIRST: how many rows of a query, and with which ties.

A count that is one value of the statement limits the rows (`TopK`). A subquery as count, columns of
rows around, and WITH TIES become conditions on the numbers that window functions give the rows:

    LIMIT (SELECT n FROM c)          row_number <= (SELECT n FROM c)
    LATERAL (... LIMIT t.n)          row_number <= t.n
    FETCH FIRST 3 ROWS WITH TIES     rank <= 3
"""

from foreshore.errors import FeatureNotSupported, InvalidColumnReference, SyntaxError_
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import Call, Case, Column, Filter, Literal, Scalar, Window, WindowFunction
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import BoundQuery
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.lower.outer_columns import Scopes, has_subquery
from foreshore.sql.rewrite.scalars import uses_row
from foreshore.types import BOOL, INT8, TEXT

_STATES = {"LIMIT": "2201W", "OFFSET": "2201X"}


def bind_limit(
    planning: Planning, query: ast.Query, bound: BoundQuery, parent: Scope | None
) -> None:
    """Set the limit and offset of a bound query, or filter its rows by their numbers."""
    limit = _count(planning, query.limit, "LIMIT", bound, parent)
    offset = _count(planning, query.offset, "OFFSET", bound, parent)
    if query.with_ties and not query.order_by:
        raise SyntaxError_("WITH TIES cannot be specified without ORDER BY clause")
    if query.with_ties and query.locks and query.locks[0].wait == "skip":
        raise SyntaxError_("SKIP LOCKED and WITH TIES options cannot be used together")
    counts = [count for count in (limit, offset) if count is not None]
    numbered = query.with_ties or any(
        has_subquery(count) or Scopes().of_scalar(count) for count in counts
    )
    if query.locks and counts and (numbered or any(map(has_side_effects, counts))):
        raise FeatureNotSupported("row locks with this LIMIT are not supported")
    if numbered and (limit is not None or offset is not None):
        _filter(planning, query, bound, parent, limit, offset)
    else:
        bound.limit, bound.offset = limit, offset


def _count(
    planning: Planning,
    expr: ast.Expression | None,
    what: str,
    bound: BoundQuery,
    parent: Scope | None,
) -> Scalar | None:
    """Return a number of rows; None if there is no limit."""
    if expr is None:
        return None
    binder = ExpressionBinder(planning, bound.scope or Scope(parent=parent), Clause(what))
    scalar = binder.bind(expr)
    if uses_row(scalar, 0):
        raise InvalidColumnReference(
            f"argument of {what} must not contain variables", position=at_of(expr) + 1
        )
    result = coerce(planning, scalar, INT8, "assignment", at_of(expr))
    if result is None:
        raise InvalidColumnReference(
            f"argument of {what} must be type bigint, not type {type_of(scalar)}",
            sqlstate="42804",
            position=at_of(expr) + 1,
        )
    if isinstance(result, Literal):
        if result.value is None:
            return None
        if result.value < 0:
            raise InvalidColumnReference(f"{what} must not be negative", sqlstate=_STATES[what])
        if what == "OFFSET" and result.value == 0:
            return None
    return result


def _filter(
    planning: Planning,
    query: ast.Query,
    bound: BoundQuery,
    parent: Scope | None,
    limit: Scalar | None,
    offset: Scalar | None,
) -> None:
    """Keep the rows of a query whose numbers are within the limit."""
    if has_side_effects_in(bound):
        raise FeatureNotSupported(
            "functions with side effects below this LIMIT are not supported",
            position=query.at + 1,
        )
    binder = ExpressionBinder(planning, Scope(parent=parent), Clause("LIMIT"))
    at = query.at
    width = len(columns_of(bound.relation))
    order = bound.order_by or bound.partial.keys
    functions = (WindowFunction("row_number", (), INT8), WindowFunction("rank", (), INT8))
    relation = Window(bound.relation, (), order, functions)
    number, rank = (Column(width + i, INT8, False) for i in range(2))
    start: Scalar = Literal(0, INT8) if offset is None else _checked(binder, offset, "OFFSET", at)
    tests = []
    if offset is not None:
        tests.append(binder.call(">", (number, start), at))
    if limit is not None:
        count = _checked(binder, limit, "LIMIT", at)
        last = binder.call("+", (start, count), at) if offset is not None else count
        within = binder.call("<=", (rank if query.with_ties else number, last), at)
        no_limit = Call("is_null", (count,), BOOL)
        tests.append(Case(((no_limit, Literal(True, BOOL)),), within, BOOL))
    bound.relation = Filter(relation, tuple(tests))


def has_side_effects_in(bound: BoundQuery) -> bool:
    """Return whether a bound query calls functions with side effects."""
    from foreshore.expr.scalars import scalars_of
    from foreshore.expr.traversal import walk_relations

    return any(
        has_side_effects(scalar)
        for node in walk_relations(bound.relation)
        for scalar in scalars_of(node)
    )


def _checked(binder: ExpressionBinder, count: Scalar, what: str, at: int) -> Scalar:
    """Return `count`, which fails if it is negative; NULL is no limit, or an offset of 0."""
    if isinstance(count, Literal):
        return count
    message = (Literal(_STATES[what], TEXT), Literal(f"{what} must not be negative", TEXT))
    raised = binder.call("_raised", message, at)
    failed = coerce(binder.planning, raised, INT8, "explicit", at)
    assert failed is not None
    negative = binder.call("<", (count, Literal(0, INT8)), at)
    checked = Case(((negative, failed),), count, INT8)
    if what == "LIMIT":
        return checked
    return Call("coalesce", (checked, Literal(0, INT8)), INT8)
