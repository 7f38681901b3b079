"""RETURNING: a result over the rows that a statement has written."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.adapter.calls.side_effects import results_by_row
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected, TupleSource
from foreshore.by_identity import ByIdentity
from foreshore.compute.finish import expanded, finish
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Get, LocalGet, Relation
from foreshore.expr.python_calls import calls_python
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.sql.rewrite.keyed_selection import KeyedSelection, compile_selection
from foreshore.table_rows import TableRows
from foreshore.types import ColumnType

WRITTEN = GlobalId("t0")  # stands for the rows that a RETURNING list is over


async def returned(
    context: StatementContext,
    verb: str,
    returning: Query,
    rows: TableRows,
    beside: Sequence[pa.Array] = (),
) -> Selected:
    """Return a RETURNING list over written rows.

    `beside` are columns of other relations, joined to the rows. Few rows stay tuples.
    """
    selection = compiled_list(returning) if rows.are_tuples and not beside else None
    if selection is not None:
        now = context.coordinator.oracle.read_ts()
        givens = selection.givens.values(context.args, context.session_value(now))
        written = rows.tuples
        if all(selection.may_be_selected(givens, row) for row in written):
            found = [selection.selected(givens, row) for row in written]
            selected = [row for row in found if row is not None]
            return Selected(returning.desc, TupleSource(selected, returning.desc.columns), verb)
    columns, diffs = split_diffs(rows.table)
    return await returned_of(context, verb, returning, table_of([*columns, *beside], diffs))


async def returned_of(
    context: StatementContext, verb: str, returning: Query, rows: pa.Table
) -> Selected:
    """Return a RETURNING list over rows with `__diff`."""
    columns = tuple(ColumnType(each.type) for each in _columns(returning.relation))
    relation = over_rows(returning.relation, columns)
    bindings = context.bindings(context.coordinator.oracle.read_ts())
    relation = bind_relation(relation, bindings)
    if not can_evaluate_locally(relation):
        what = "functions in Python" if calls_python(relation) else "subqueries"
        raise FeatureNotSupported(f"{what} in RETURNING are not supported")
    found = evaluate_linear(relation, {WRITTEN: rows})
    if returning.row_outputs:
        found = await results_by_row(context, found, returning.row_outputs, bindings)
    result = expanded(found, returning.finishing)
    return Selected(returning.desc, BatchSource(finish(result, returning.finishing)), verb)


def _compiled(returning: Query) -> KeyedSelection | None:
    finishing = returning.finishing
    if (
        returning.row_outputs
        or finishing.order_by
        or finishing.limit is not None
        or finishing.offset
    ):
        return None
    columns = _columns(returning.relation)
    return compile_selection((), over_rows(returning.relation, columns), finishing.project)


# Returns a RETURNING list over one row as a tuple; None if it cannot be computed so.
compiled_list: ByIdentity[Query, KeyedSelection | None] = ByIdentity(_compiled)


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
