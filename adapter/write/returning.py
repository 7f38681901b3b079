"""RETURNING: a result over the rows that a statement has written."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.adapter.read.result import BatchSource, Selected
from foreshore.adapter.session.context import StatementContext
from foreshore.compute.finish import expanded, finish
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Get, LocalGet, Relation
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.table_rows import TableRows
from foreshore.types import ColumnType

WRITTEN = GlobalId("t0")  # stands for the rows that a RETURNING list is over


def returned(
    context: StatementContext,
    verb: str,
    returning: Query,
    rows: TableRows,
    beside: Sequence[pa.Array] = (),
) -> Selected:
    """Return a RETURNING list over written rows.

    `beside` are columns of other relations, joined to the rows.
    """
    columns, diffs = split_diffs(rows.table)
    return returned_of(context, verb, returning, table_of([*columns, *beside], diffs))


def returned_of(context: StatementContext, verb: str, returning: Query, rows: pa.Table) -> Selected:
    """Return a RETURNING list over rows with `__diff`."""
    columns = tuple(ColumnType(each.type) for each in _columns(returning.relation))
    relation = over_rows(returning.relation, columns)
    relation = bind_relation(relation, context.bindings(context.coordinator.oracle.read_ts()))
    if not can_evaluate_locally(relation):
        raise FeatureNotSupported("subqueries in RETURNING are not supported")
    result = expanded(evaluate_linear(relation, {WRITTEN: rows}), returning.finishing)
    return Selected(returning.desc, BatchSource(finish(result, returning.finishing)), verb)


def _columns(relation: Relation) -> tuple[ColumnType, ...]:
    """Return the columns of the rows that a RETURNING list is over."""
    stack = [relation]
    while stack:
        node = stack.pop()
        if isinstance(node, LocalGet) and node.number == 0:
            return node.columns
        stack.extend(inputs_of(node))
    return ()


def over_rows(relation: Relation, columns: tuple[ColumnType, ...]) -> Relation:
    """Return `relation` with the written rows' LocalGet made a Get."""
    if isinstance(relation, LocalGet) and relation.number == 0:
        return Get(WRITTEN, columns)
    return with_inputs(relation, tuple(over_rows(each, columns) for each in inputs_of(relation)))
