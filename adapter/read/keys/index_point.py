"""Queries of a maintained index that its mirror answers: of the rows under one key, or of all.

The plan is compiled when the statement is prepared, as that of a row of a table is (`point.py`). A
query whose mirror does not know the rows, or whose rows give an error, is read by the pipeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from foreshore.adapter.read.access_path import IndexRead, PeekPlan
from foreshore.adapter.read.cluster_choice import answering_cluster
from foreshore.adapter.read.timestamp import notify_of_waiting, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.errors import DataError
from foreshore.expr.ir import Map
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.keyed_selection import KeyedSelection, compile_selection
from foreshore.table_rows import Row
from foreshore.types import Datum
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """A selection from the rows with one key in `index`, which is of the collections `of`."""

    index: GlobalId
    of: frozenset[GlobalId]
    selection: KeyedSelection
    limit: int | None
    is_exact: bool  # whether the selected columns are the index's own

    def selected(self, givens: Sequence[Datum], rows: Sequence[Row]) -> list[Row] | None:
        """Return the selected columns of rows; None if one fails, or may take long."""
        found: list[Row] = []
        for row in rows:
            if not self.selection.may_be_selected(givens, row):
                return None
            try:
                selected = self.selection.selected(givens, row)
            except DataError:
                return None
            if selected is not None:
                found.append(selected)
        return found if self.limit is None else found[: self.limit]


def plan_index_point(peek: PeekPlan) -> IndexPoint | None:
    """Return `peek` compiled, if it reads the rows under one key of an index, in any order."""
    path, query = peek.path, peek.query
    if not isinstance(path, IndexRead) or path.keys is None or len(path.keys) != 1:
        return None
    finishing = query.finishing
    if query.limit is not None or query.offset is not None or finishing.offset:
        return None
    if finishing.order_by or query.changes or query.row_outputs or peek.has_side_effects:
        return None
    if peek.is_large:
        return None
    selection = compile_selection(path.keys[0], path.relation, finishing.project)
    if selection is None:
        return None
    is_exact = not any(isinstance(node, Map) for node in walk_relations(path.relation))
    return IndexPoint(path.index, peek.shards, selection, finishing.limit, is_exact)


def plan_index_whole(peek: PeekPlan) -> IndexRead | None:
    """Return the read of `peek`, if it is the same each time: of a whole index, with nothing open.

    Its answer is remembered by the mirror.
    """
    path, query = peek.path, peek.query
    if not isinstance(path, IndexRead) or path.keys is not None:
        return None
    if peek.is_open or peek.is_large or peek.has_side_effects:
        return None
    return None if query.changes or query.row_outputs else path


async def rows_of_index(context: StatementContext, point: IndexPoint) -> list[Row] | None:
    """Return the selected columns of the rows under a key; None if they are read another way."""
    found = await _mirror(context, point.index, point.of)
    if found is None:
        return None
    mirror, time = found
    givens = point.selection.givens.values(context.args, context.session_value(time))
    key = point.selection.key(givens)
    if key is None:
        return []
    rows = mirror.rows_under(key, time) if mirror.has_tuples else None
    if rows is None:
        return None
    context.coordinator.compute.mirrors.note_use(mirror)
    context.ran(f"Read of index {point.index}, 1 key, in this process")
    return point.selected(givens, rows)


async def whole_index(context: StatementContext, read: IndexRead) -> pa.RecordBatch | None:
    """Return the finished rows of a whole index; None if they are read another way."""
    peek = context.prepared.peek
    assert peek is not None
    mirrors = context.coordinator.compute.mirrors
    if mirrors.is_beyond(read.index, read.relation, whole=True):
        return None
    found = await _mirror(context, read.index, peek.shards)
    if found is None:
        return None
    mirror, time = found
    request = PeekRequest(time, read.relation, peek.query.finishing, read.index)
    try:
        rows = mirror.answer(request, is_repeated=True)
    except TooManyRows:
        return None
    mirrors.note_use(mirror)
    context.ran(f"Read of index {read.index}, whole, in this process")
    return rows


async def _mirror(
    context: StatementContext, index: GlobalId, of: frozenset[GlobalId]
) -> tuple[Mirror, Timestamp] | None:
    """Return the mirror of an index on `of`, and the time at which the statement reads it.

    None if there is none, if it does not know that time soon, or if the statement may not use it.
    """
    coordinator, transaction = context.coordinator, context.transaction
    if transaction.staged is not NOTHING_STAGED or context.variables["cluster_replica"]:
        return None
    mirrors = coordinator.compute.mirrors
    if not mirrors.has(index) or index not in coordinator.as_ofs:
        return None
    if transaction.time is not None and coordinator.holds.since(index) > transaction.time:
        return None
    answering_cluster(context)
    ends = context.alone and not transaction.block  # so what it reads conflicts with nothing
    time = read_time(context, (index,), None, also=of, by_key=ends, at_once=True)
    mirror = mirrors.of(index, time)
    if mirror is None:
        return None
    if not mirror.knows(time):
        if ends:
            coordinator.holds.hold_for(transaction, (index,), time, context.pid)
        notify_of_waiting(context, (index,), time)
        if not await mirrors.knows_soon(mirror, time):
            return None
    await coordinator.compute.maintained.check_errors((index,), time)
    return (mirror, time) if mirror.knows(time) else None
