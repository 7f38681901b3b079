"""Convert bound queries to the queries of plans: lower, optimise, and separate the finishing."""

from collections.abc import Sequence
from dataclasses import replace

from foreshore.expr.block import Block
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Finishing, Literal, OrderKey, Project, Relation, Scalar
from foreshore.expr.recursion import single_relation
from foreshore.expr.split import columns_used
from foreshore.sql.bind.bound_query import BoundQuery, plain_relation, with_called_limit
from foreshore.sql.bind.random_rows import is_random, with_random_rows
from foreshore.sql.bind.side_effects import (
    calls_in_scalars,
    check_order_is_known,
    has_side_effects,
    split_calls,
)
from foreshore.sql.lower.lower import lower, lower_block
from foreshore.sql.optimize.once import mark_once
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.optimize.scalars import remap
from foreshore.sql.plan import Query
from foreshore.types import RelationDesc, ResultOrigin


def lower_and_optimize(relation: Relation, *, is_maintained: bool = True) -> Relation:
    """Return a bound relation in the form that engines run.

    Unless it `is_maintained`, what it computes once has to be bound when it runs. Raises an error
    if it contains calls with side effects over several rows.
    """
    relation, calls = with_random_rows(relation)
    found = optimize(lower(relation if is_maintained else mark_once(relation)))
    calls.check_all_used((found,))
    return found


def lower_and_optimize_block(relation: Relation, *, is_maintained: bool = True) -> Block:
    """Return a bound relation and its recursions in the form that engines run, likewise."""
    relation, calls = with_random_rows(relation)
    block = lower_block(relation if is_maintained else mark_once(relation))
    block = block.with_relations(optimize)
    calls.check_all_used(block.relations())
    return block.without_unread()


def finished_query(bound: BoundQuery) -> Query:
    """Return the query with ORDER BY and LIMIT left to the finishing of its result."""
    split = split_calls(bound.relation, bound.project)
    if split is None or _is_ordered_at_random(bound, split[1]):
        return _finished(bound)
    relation, over = split
    check_order_is_known([key.expr for key in bound.order_by], over)
    types = columns_of(relation)
    query = _finished(
        replace(
            bound,
            relation=relation,
            project=tuple(range(len(types))),
            names=tuple(f"c{i}" for i in range(len(types))),
        )
    )
    columns = columns_of(bound.relation)
    types = tuple(columns[i] for i in bound.project)
    desc = RelationDesc(bound.names, types, origins=bound.origins)
    hidden = (i for i in range(len(over)) if i not in bound.project and has_side_effects(over[i]))
    return replace(query, desc=desc, row_outputs=tuple(over[i] for i in (*bound.project, *hidden)))


def _is_ordered_at_random(bound: BoundQuery, over: Sequence[Scalar]) -> bool:
    """Return whether rows are ordered by random values, and no other calls are made for them."""
    ordering = {i for key in bound.order_by for i in columns_used(key.expr)}
    return any(has_side_effects(over[i]) for i in ordering) and all(
        map(is_random, calls_in_scalars(over))
    )


def _finished(bound: BoundQuery) -> Query:
    bound = with_called_limit(bound)
    columns = columns_of(bound.relation)
    types = tuple(columns[i] for i in bound.project)
    desc = RelationDesc(bound.names, types, origins=bound.origins)
    used = sorted({*bound.project, *(i for key in bound.order_by for i in columns_used(key.expr))})
    places = {column: place for place, column in enumerate(used)}
    narrowed = Project(bound.relation, tuple(used)) if len(used) < len(columns) else bound.relation
    order_by = tuple(
        OrderKey(remap(key.expr, places), key.descending, key.nulls_first) for key in bound.order_by
    )
    limit, limit_later = _bound(bound.limit)
    offset, offset_later = _bound(bound.offset)
    finishing = Finishing(order_by, limit, offset or 0, tuple(places[i] for i in bound.project))
    block = lower_and_optimize_block(narrowed, is_maintained=False)
    return Query(block.relation, finishing, desc, limit_later, offset_later, block.recursions)


def _bound(scalar: Scalar | None) -> tuple[int | None, Scalar | None]:
    """Return LIMIT or OFFSET as a number, or as a scalar to evaluate at execution."""
    if scalar is None:
        return None, None
    if isinstance(scalar, Literal):
        return scalar.value, None
    return None, scalar


def plain_query(bound: BoundQuery, names: tuple[str, ...] | None = None) -> Query:
    """Return the query as a single relation, as in a view's definition."""
    plain = plain_relation(bound)
    columns = columns_of(plain)
    desc = RelationDesc(names or bound.names, columns)
    relation = single_relation(lower_and_optimize_block(plain))
    return Query(relation, Finishing((), None, 0, tuple(range(len(columns)))), desc)


def query_over(
    relation: Relation, names: tuple[str, ...], origins: tuple[ResultOrigin, ...] = ()
) -> Query:
    """Return a lowered relation as a query of all its columns."""
    columns = columns_of(relation)
    return Query(
        relation,
        Finishing((), None, 0, tuple(range(len(columns)))),
        RelationDesc(names, columns, origins=origins),
    )
