"""The commit of a transaction: one write, and its checks when the group that it is in is formed."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from foreshore import blocking
from foreshore.adapter.ddl.tables.alter import altered_indexes
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.moves import move_positions
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.transaction.write import Reads, Write
from foreshore.adapter.write.foreign_keys import referred_at_commit
from foreshore.compute.keys.group_keys import Keyed
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.references import ReferredKeys
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows

_ROWS, _KEYED = attrgetter("rows"), attrgetter("keyed")


async def wait_for_tables(context: StatementContext) -> None:
    """Wait for others who hold exclusive locks of tables that the transaction writes.

    This wait can be interrupted, and deadlocks are found. A change of the catalog locks its tables
    against them, since other changes would wait for it while it waited for a table.
    """
    locks, transaction = context.tables.locks, context.transaction
    left = list(transaction.staged.rows)
    while left:  # others may lock one while another is waited for
        ahead = transaction.catalog is not None
        id = next((id for id in left if ahead or locks.is_taken(id, transaction)), None)
        if id is None:
            return
        left.remove(id)
        await locks.acquire_beside(id, transaction, context.lock_timeout_ms, by_name=False)


async def wait_for_views(context: StatementContext) -> None:
    """Wait until the materialized views over tables that the transaction rewrites have caught up.

    This wait can be interrupted.
    """
    change = context.transaction.catalog
    if change is not None:
        await context.views.view_handoff.ready(change.planned, change.state)


async def commit_effects(context: StatementContext, visible: Callable[[], None] | None) -> None:
    """Make what a transaction did durable and visible, and call `visible` at that moment.

    Raises Conflict if what it read has changed, and the errors of broken constraints.
    """
    staged = context.transaction.staged
    catalog = staged.catalog
    altered = {} if catalog is None else altered_indexes(context)
    write = await write_of(context, altered)
    if visible is not None:
        write.applied = lambda time: visible()
    if catalog is not None and catalog.changed:
        contents = {
            id: each.contents for id, each in staged.altered.items() if each.contents is not None
        }
        await context.names.catalog_commits.commit(write, CatalogChange(catalog, altered, contents))
        return
    if write.moves:
        move_positions(write, context.tables.subscriptions, visible or (lambda: None))
    await context.tables.group.write(write)


async def write_of(
    context: StatementContext, altered: Mapping[GlobalId, Mapping[str, KeyIndex]]
) -> Write:
    """Return the write of a transaction; rows of `altered` tables are arranged by their keys."""
    transaction, reads = context.transaction, None
    refers: list[ReferredKeys] = []
    staged = transaction.staged
    for id in staged.rows:
        known = staged.refers.get(id) if staged.catalog is None else None
        refers += await referred_at_commit(context, id) if known is None else known
    if transaction.tables_read or transaction.keys_read:
        assert transaction.time is not None
        reads = Reads(frozenset(transaction.tables_read), transaction.time, transaction.keys_read)
    rows: dict[GlobalId, Sequence[TableRows]] = {}
    keyed: dict[GlobalId, list[Keyed]] = {}
    for id, written in staged.rows.items():
        parts = written.parts
        rows[id] = list(map(_ROWS, parts))
        if id in altered:
            executor = context.engines.executor
            keyed[id] = await blocking.run(executor, _by_keys, parts, altered[id])
        elif parts[0].keyed:
            keyed[id] = list(map(_KEYED, parts))
    return Write(
        rows,
        reads,
        owner=transaction,
        lock_timeout_ms=context.variables.settings.lock_timeout_ms,
        keyed=keyed,
        checked=transaction.began,
        described=staged.known,
        moves=transaction.moves if staged.moves else {},
        viewer=lambda: context.viewer,
        refers=refers,
    )


def _by_keys(parts: Sequence[Written], indexes: Mapping[str, KeyIndex]) -> list[Keyed]:
    """Return what is written to a table, by each of its keys."""
    return [{name: index.keyed(part.rows) for name, index in indexes.items()} for part in parts]
