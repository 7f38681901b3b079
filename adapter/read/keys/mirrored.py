"""The mirrors of indexes that a statement reads, at the time at which it reads them."""

from collections.abc import Mapping, Sequence

from foreshore.adapter.plans.access_path import Bulk
from foreshore.adapter.plans.row_sources import IndexedView
from foreshore.adapter.read.bound.cluster_choice import answering_cluster
from foreshore.adapter.read.bound.timestamp import note_tables_read, notify_of_waiting
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.compute.controller.mirror import Mirror
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.update import Timestamp


def may_use_mirrors(context: StatementContext, views: Sequence[IndexedView]) -> bool:
    """Whether the indexes of all `views` have mirrors, and the statement may use these.

    Indexes that an engine would read otherwise, as stored rows, may get mirrors by it.
    """
    transaction, peek = context.transaction, context.prepared.made.peek
    if transaction.staged is not NOTHING_STAGED or context.variables["cluster_replica"]:
        return False
    if peek is not None and isinstance(peek.path, Bulk):
        mirrors = context.views.compute.mirrors
        for index in [view.index for view in views if not mirrors.has(view.index)]:
            mirrors.note_read(index, whole=True)
    for view in views:
        index = view.index
        if not context.views.compute.mirrors.has(index) or index not in context.views.as_ofs:
            return False
        if transaction.time is not None and context.times.holds.since(index) > transaction.time:
            return False
    answering_cluster(context)
    return True


async def mirrors_at(
    context: StatementContext, views: Sequence[IndexedView], time: Timestamp
) -> Mapping[GlobalId, Mirror] | None:
    """Return the mirrors by index; None if one does not know the rows at `time` soon.

    Reading them is noted, unless nothing follows in the transaction that could conflict with it.
    """
    transaction = context.transaction
    mirrors, found = context.views.compute.mirrors, dict[GlobalId, Mirror]()
    indexes = tuple([view.index for view in views])
    ends = context.alone and not context.reads_newest
    if not ends:
        note_tables_read(context, (*indexes, *(view.id for view in views)))
    for index in indexes:
        mirror = mirrors.of(index, time)
        if mirror is None:
            return None
        if not mirror.knows(time):
            if ends:
                context.times.holds.hold_for(transaction, indexes, time, context.pid)
            notify_of_waiting(context, indexes, time)
            if not await mirrors.knows_soon(mirror, time):
                return None
        found[index] = mirror
    if indexes:
        await context.views.compute.maintained.check_errors(indexes, time)
    return found if all(mirror.knows(time) for mirror in found.values()) else None


def rows_in_mirror(mirror: Mirror, keys: Sequence[Row], time: Timestamp) -> list[Row] | None:
    """Return the rows under keys; None if they are many, or there may be an error."""
    rows: list[Row] = []
    for key in keys:
        found = mirror.rows_under(key, time)
        if found is None:
            return None
        rows += found
    return rows
