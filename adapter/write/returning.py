"""RETURNING: a result over the rows that a statement has written."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foreshore.adapter.calls.side_effects import results_by_row
from foreshore.adapter.client import Completed
from foreshore.adapter.plans.row_read import RowRead, no_value, plan_over_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import parts_of
from foreshore.adapter.statement.result import BatchSource, Selected, Several, source_of_rows
from foreshore.by_identity import ByIdentity
from foreshore.compute.finish import expanded, finish
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear, is_linear
from foreshore.compute.rows.program import MOST
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Get, LocalGet, Relation
from foreshore.expr.python_calls import calls_python
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.table_rows import Row, TableRows, columns_of_rows
from foreshore.types import ColumnType

WRITTEN = GlobalId("t0")  # stands for the rows that a RETURNING list is over


async def outcome_of(
    context: StatementContext,
    verb: str,
    returning: Query | None,
    rows: TableRows,
    counts: Sequence[int],
    beside: Sequence[pa.Array] = (),
    beside_rows: Sequence[Row] = (),
) -> Completed | Selected | Several:
    """Return how many rows were written, or the RETURNING list over them.

    Each execution has so many of `rows`; `beside` and `beside_rows` as `returned` has them.
    """
    if len(context.many) == 1:
        if returning is None:
            return Completed(f"{verb} {rows.count}")
        return await returned(context, verb, returning, rows, beside, beside_rows)
    if returning is None:
        return Several([Completed(f"{verb} {count}") for count in counts])
    found = []
    parts = zip(parts_of(rows.tuples, counts), parts_of(beside_rows, counts), strict=True)
    for args, (own, others) in zip(context.many, parts, strict=True):
        part = TableRows(rows.desc, own)
        found.append(await returned(context.of(args), verb, returning, part, (), others))
    return Several(found)


async def returned(
    context: StatementContext,
    verb: str,
    returning: Query,
    rows: TableRows,
    beside: Sequence[pa.Array] = (),
    beside_rows: Sequence[Row] = (),
) -> Selected:
    """Return a RETURNING list over written rows.

    `beside` are columns of other relations, joined to the rows, or `beside_rows` are. Few rows stay
    tuples.
    """
    if not beside and rows.num_rows == rows.count <= MOST:
        whole = rows.tuples
        if beside_rows:
            whole = [(*row, *others) for row, others in zip(whole, beside_rows, strict=True)]
        return await returned_rows(context, verb, returning, whole)
    columns, diffs = split_diffs(rows.table)
    if beside_rows:
        types = _columns(returning.relation)[len(columns) :]
        beside = columns_of_rows(beside_rows, types)
    return await returned_of(context, verb, returning, table_of([*columns, *beside], diffs))


async def returned_rows(
    context: StatementContext, verb: str, returning: Query, rows: Sequence[Row]
) -> Selected:
    """Return a RETURNING list over few rows, with what was joined to them, as tuples."""
    read = compiled_list(returning)
    if read is not None:
        is_timed = bool(read.program.session_values)
        value = context.session_value(context.times.oracle.read_ts()) if is_timed else no_value
        found = read.over(WRITTEN, rows, context.args, value)
        if found is not None:
            types = returning.desc.columns
            return Selected(returning.desc, source_of_rows(found, types, exact=read.is_exact), verb)
    columns = columns_of_rows(rows, _columns(returning.relation))
    diffs = pa.array(np.ones(len(rows), np.int64))
    return await returned_of(context, verb, returning, table_of(columns, diffs))


async def returned_of(
    context: StatementContext, verb: str, returning: Query, rows: pa.Table
) -> Selected:
    """Return a RETURNING list over rows with `__diff`."""
    columns = tuple(ColumnType(each.type) for each in _columns(returning.relation))
    relation = over_rows(returning.relation, columns)
    bindings = context.bindings(context.times.oracle.read_ts())
    relation = bind_relation(relation, bindings)
    if not can_evaluate_locally(relation):
        what = "functions of much work" if is_linear(relation) else "subqueries"
        what = "functions in Python" if calls_python(relation) else what
        raise FeatureNotSupported(f"{what} in RETURNING are not supported")
    found = evaluate_linear(relation, {WRITTEN: rows})
    if returning.row_outputs:
        found = await results_by_row(context, found, returning.row_outputs, bindings)
    result = expanded(found, returning.finishing)
    return Selected(returning.desc, BatchSource(finish(result, returning.finishing)), verb)


def _compiled(returning: Query) -> RowRead | None:
    return plan_over_rows(WRITTEN, over_written(returning.relation), returning)


# Returns a RETURNING list over rows as tuples; None if it cannot be computed so.
compiled_list: ByIdentity[Query, RowRead | None] = ByIdentity(_compiled)


def _columns(relation: Relation) -> tuple[ColumnType, ...]:
    """Return the columns of the rows that a RETURNING list is over."""
    stack = [relation]
    while stack:
        node = stack.pop()
        if isinstance(node, LocalGet) and node.number == 0:
            return node.columns
        stack.extend(inputs_of(node))
    return ()


def over_written(relation: Relation) -> Relation:
    """Return `relation` with the written rows' LocalGet made a Get."""
    return over_rows(relation, _columns(relation))


def over_rows(relation: Relation, columns: tuple[ColumnType, ...]) -> Relation:
    """Return the same with a Get of `columns`."""
    if isinstance(relation, LocalGet) and relation.number == 0:
        return Get(WRITTEN, columns)
    return with_inputs(relation, tuple(over_rows(each, columns) for each in inputs_of(relation)))
