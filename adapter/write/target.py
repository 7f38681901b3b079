"""The table that a statement writes, as it was planned, and the locks that a write needs."""

from collections.abc import Iterable

import pyarrow as pa

from foreshore.adapter.plans.target import Target, marked_by, target_in
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.read_only import require_writable
from foreshore.catalog.planned import Planned
from foreshore.errors import TableAltered, WrongObjectType
from foreshore.ids import GlobalId
from foreshore.types import RelationDesc
from foreshore.update import DIFF_FIELD, Timestamp


def target_of(context: StatementContext, id: GlobalId, verb: str | None = None) -> Target:
    """Return table `id` as the running transaction sees it, to be written by `verb`.

    Raises TableAltered or TableDropped if it has gone since the statement was planned, and
    ReadOnlySqlTransaction if the transaction may not write it.
    """
    if verb is not None and context.variables.settings.is_read_only:
        require_writable(context, verb, id)
    known, change = context.prepared.made.target, context.transaction.staged.catalog
    if known is not None and known.id == id and change is None:  # as nearly always
        planned = context.names.catalog.planned.get(id)
        if planned is known.planned:
            return known
    if not id.startswith("u"):
        raise WrongObjectType("cannot change a system relation", sqlstate="42501")
    state = context.planner.state
    if (marked := marked_by(state, id)) is not None:
        raise WrongObjectType(
            f'cannot change table "{state.item(id).name}"',
            detail=f"It has to what the clock has moved the watermark of table"
            f' "{state.item(marked).name}".',
        )
    return target_in(state, planned_of(context, id), id)


def planned_of(context: StatementContext, id: GlobalId) -> Planned:
    """Return the definition of a table as the running transaction sees it.

    Raises TableAltered or TableDropped if it has gone.
    """
    change = context.transaction.staged.catalog
    planned = None if change is None else change.planned.get(id)
    planned = planned or context.names.catalog.planned.get(id)
    if planned is None:
        raise context.tables.group.gone(id)
    return planned


def require_unaltered(context: StatementContext, target: Target) -> None:
    """Raise TableAltered if the table's definition has changed since.

    Other constraints or defaults may apply to its rows now, though its shard is the same.
    """
    if planned_of(context, target.id) is not target.planned:
        raise TableAltered


# --- locks ---------------------------------------------------------------------------------


async def lock_to_alter(context: StatementContext, ids: Iterable[GlobalId]) -> None:
    """Lock tables that the transaction alters, renames, drops or truncates, until it ends.

    Raises TableAltered if another transaction has altered one since this one first changed the
    catalog.
    """
    change = context.catalog_change()
    locked = [id for id in ids if id in context.names.state.objects]
    if not locked:
        return
    await context.tables.locks.acquire_to_alter(
        locked, context.transaction, context.lock_timeout_ms
    )
    if any(context.names.state.get(id) is not change.base.get(id) for id in locked):
        raise TableAltered


async def lock_shared_against_ddl(context: StatementContext, target: Target) -> None:
    """Lock the table against ALTER TABLE if a write of it has already lost to one.

    A plain write takes no locks. It waits here for a running ALTER TABLE, and then blocks others
    until its transaction ends, so it is retried at most once. Raises TableAltered if the table's
    definition has changed meanwhile.
    """
    transaction, locks = context.transaction, context.tables.locks
    if context.session.transactions.met_alter or (
        locks.altering and locks.alters_another(target.id, transaction)
    ):
        await locks.acquire_beside(target.id, transaction, context.lock_timeout_ms)
        require_unaltered(context, target)


async def lock_before_nextval(
    context: StatementContext, target: Target, *, whole: bool = False
) -> None:
    """Wait for exclusive locks of the table before numbers are drawn for its rows.

    The holder of such a lock may restart the sequence. Outside of a block the table is locked too,
    shared or as a `whole`, until these rows are committed. Raises TableAltered if the
    table's definition has changed meanwhile.
    """
    id, transaction, locks = target.id, context.transaction, context.tables.locks
    timeout_ms = context.variables.settings.lock_timeout_ms
    if id not in context.names.catalog.state.objects:
        return
    if transaction.block and not locks.is_taken(id, transaction):
        return
    if whole:
        await locks.acquire((id,), transaction, timeout_ms)
    else:  # a block's table may be renamed meanwhile
        await locks.acquire_beside(id, transaction, timeout_ms, by_name=not transaction.block)
    require_unaltered(context, target)


# --- contents ------------------------------------------------------------------------------


async def committed_rows(
    context: StatementContext, id: GlobalId, desc: RelationDesc, time: Timestamp
) -> pa.Table:
    """Return a table's rows with `__diff` at `time`, without those the transaction has written."""
    tables = context.tables
    contents = context.transaction.altered(id).contents
    if contents is not None:
        return contents
    if id not in tables.capabilities:
        return desc.stored_schema().append(DIFF_FIELD).empty_table()
    with tables.storage.snapshot(tables.capabilities[id][0], time) as snapshot:
        return await snapshot.contents()
