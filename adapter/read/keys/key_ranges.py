"""Rows of a table in the order of one of its keys: a range, or the first ones for LIMIT.

Reading them counts as a read of the table. Few rows are read on the event loop.
"""

from functools import partial

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.read.bound.bind import BoundPeek, counted_each
from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.keys.bound_spans import bound_span
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import MANY
from foreshore.compute.keys.ordered import OrderedView
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.keys.per_run import LARGE
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.compute.span import Span
from foreshore.expr.ir import Filter, single_input
from foreshore.expr.traversal import walk_relations
from foreshore.rows import count
from foreshore.sql.optimize.key_steps import RangeStep
from foreshore.update import Timestamp

FIRST = 64  # rows of the first slice, if a condition may leave some out


async def rows_in_range(
    context: StatementContext,
    bound: BoundPeek,
    index: KeyIndex,
    step: RangeStep,
    own: OwnRows | None,
    most: int,
) -> pa.RecordBatch | None:
    """Return the rows of a table in a range that the query needs.

    None if they are more than `most`, or if the transaction has written many itself.
    """
    span = bound_span(step.range, bound.bindings)
    if span is None:
        return index.layout.nothing()
    if own is not None and own.arrangement.rows > LARGE:
        return None  # they would be sorted on the event loop
    executor = context.engines.executor
    while (view := index.in_order(step.columns, own)) is None:
        await index.prepare_order(step.columns, executor)
    finishing = bound.finishing
    if not span.is_ordered or finishing.limit is None:
        span = Span(span.low, span.low_inclusive, span.high, span.high_inclusive)
        found = view.count(span)
        if found > most:
            return None
        read = partial(_all, view, span, bound.time)
        return read() if found <= MANY else await blocking.run(executor, read)
    if single_input(bound.block.relation) is None:
        return None  # how many rows of a join come of them is not known here
    wanted = finishing.limit + finishing.offset
    is_filtered = any(isinstance(e, Filter) for e in walk_relations(bound.block.relation))
    if wanted > most or (is_filtered and not can_evaluate_locally(bound.block.relation)):
        return None
    read_first = partial(_first, view, span, bound, step, wanted, is_filtered, most)
    if not is_filtered and wanted <= MANY:
        return read_first()
    return await blocking.run(executor, read_first)


def _all(view: OrderedView, span: Span, time: Timestamp) -> pa.RecordBatch:
    return next(view.slices(span, time, 1))


def _first(
    view: OrderedView,
    span: Span,
    bound: BoundPeek,
    step: RangeStep,
    wanted: int,
    is_filtered: bool,
    most: int,
) -> pa.RecordBatch | None:
    """Return the rows up to the one that is the last `wanted` one of the query."""
    parts: list[pa.RecordBatch] = []
    read = selected = 0
    for rows in view.slices(span, bound.time, max(wanted, FIRST if is_filtered else 1)):
        parts.append(rows)
        read += rows.num_rows
        selected += _selected(bound, step, rows) if is_filtered else rows.num_rows
        if selected >= wanted:
            break
        if read > most:
            return None
    return pa.concat_batches(parts)


def _selected(bound: BoundPeek, step: RangeStep, rows: pa.RecordBatch) -> int:
    """Return how many rows of the query some rows of the table become."""
    given = {**bound.given, step.table: pa.Table.from_batches([rows])}
    return count(evaluate_linear(bound.block.relation, counted_each(given)))
