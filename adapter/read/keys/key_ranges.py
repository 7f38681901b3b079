"""Rows of a table in the order of one of its keys: a range, or the first ones for LIMIT.

Reading them counts as a read of the table. Few rows are read on the event loop.
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.read.bound.bind import BoundPeek, Given, counted_each
from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.keys.bound_spans import bound_span
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import MANY
from foreshore.compute.keys.ordered import OrderedView
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.keys.per_run import LARGE
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.compute.span import Span
from foreshore.expr.ir import Filter, Literal, Relation, single_input
from foreshore.expr.scalars import bind_scalar
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.rows import count
from foreshore.sql.optimize.key_steps import RangeStep
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.types import INT8
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
    if step.page is None and not (span.is_ordered and bound.finishing.limit is not None):
        span = Span(span.low, span.low_inclusive, span.high, span.high_inclusive)
        found = view.count(span)
        if found > most:
            return None
        read = partial(_all, view, span, bound.time)
        return read() if found <= MANY else await blocking.run(executor, read)
    begun = _begun_by(bound, step)
    if begun is None or begun.wanted > most:
        return None
    if begun.is_filtered and not can_evaluate_locally(begun.relation):
        return None
    read_first = partial(begun.rows, view, span, bound.time, most)
    if not begun.is_filtered and begun.wanted <= MANY:
        return read_first()
    return await blocking.run(executor, read_first)


def _all(view: OrderedView, span: Span, time: Timestamp) -> pa.RecordBatch:
    return next(view.slices(span, time, 1))


@dataclass(frozen=True, slots=True)
class _Begun:
    """The `wanted` first rows of a relation over rows in an order, which have the name `id`."""

    relation: Relation
    id: GlobalId
    wanted: int
    given: Given  # other rows
    ties: tuple[int, ...] = ()  # columns of the rows: those equal in them are taken together

    @property
    def is_filtered(self) -> bool:
        """Whether some of the rows are left out."""
        return any(isinstance(each, Filter) for each in walk_relations(self.relation))

    def rows(
        self, view: OrderedView, span: Span, time: Timestamp, most: int
    ) -> pa.RecordBatch | None:
        """Return the rows up to the last wanted one; None if they are more than `most`."""
        parts: list[pa.RecordBatch] = []
        is_filtered, last = self.is_filtered, None
        read = selected = 0
        for rows in view.slices(span, time, max(self.wanted, FIRST if is_filtered else 1)):
            parts.append(rows)
            read += rows.num_rows
            if last is None:
                selected += self._count(rows) if is_filtered else rows.num_rows
            elif rows.num_rows and self._last(rows) != last:
                break
            if selected >= self.wanted and last is None:
                if not self.ties or not rows.num_rows:
                    break
                last = self._last(rows)
            if read > most:
                return None
        return pa.concat_batches(parts)

    def _count(self, rows: pa.RecordBatch) -> int:
        """Return how many rows of the relation some rows become."""
        given = {**self.given, self.id: pa.Table.from_batches([rows])}
        return count(evaluate_linear(self.relation, counted_each(given)))

    def _last(self, rows: pa.RecordBatch) -> list[object]:
        return [rows.column(i)[-1].as_py() for i in self.ties]


def _begun_by(bound: BoundPeek, step: RangeStep) -> _Begun | None:
    """Return which first rows of a range are wanted; None if that is not known here."""
    page, finishing = step.page, bound.finishing
    if page is None:
        relation = bound.block.relation
        if single_input(relation) is None or finishing.limit is None:
            return None  # how many rows of a join come of them is not known here
        return _Begun(relation, step.rows, finishing.limit + finishing.offset, bound.given)
    relation = bind_relation(page.relation, bound.bindings)
    limit = bind_scalar(page.limit, bound.bindings)
    offset = bind_scalar(page.offset or Literal(0, INT8), bound.bindings)
    if not isinstance(limit, Literal) or not isinstance(offset, Literal) or limit.value is None:
        return None
    return _Begun(relation, step.rows, limit.value + (offset.value or 0), bound.given, page.ties)
