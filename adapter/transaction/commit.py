"""The end of a transaction: what it did becomes one write, with what that rests on."""

from collections.abc import Mapping, Sequence

from foreshore import blocking
from foreshore.adapter.ddl.alter import altered_indexes
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.group_commit import Reads, Write
from foreshore.adapter.transaction.written_rows import Written
from foreshore.compute.keys.group_keys import Keyed
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.ids import GlobalId


async def wait_for_tables(context: StatementContext) -> None:
    """Wait for others who have all of a table that the transaction writes.

    Here that can be interrupted, and a deadlock is found. A change of the catalog keeps them
    away from now on: while it waited for a table, so would all other changes.
    """
    locks, transaction = context.coordinator.locks, context.transaction
    left = list(transaction.staged.rows)
    while left:  # others may take one while another is waited for
        ahead = transaction.catalog is not None
        id = next((id for id in left if ahead or locks.is_taken(id, transaction)), None)
        if id is None:
            return
        left.remove(id)
        await locks.acquire_beside(id, transaction, context.lock_timeout_ms, by_name=False)


async def wait_for_views(context: StatementContext) -> None:
    """Wait for the materialized views over tables whose columns the transaction changes.

    They are to have come so far that they lose nothing. This can be interrupted, as above.
    """
    transaction = context.transaction
    if transaction.catalog is not None:
        change = transaction.catalog
        await context.coordinator.view_handoff.ready(change.planned, change.state)


async def commit_effects(context: StatementContext) -> None:
    """Make what a transaction did durable and visible, provided that what it read is still so.

    Raises Conflict if it is not, and what a broken constraint says.
    """
    transaction, reads = context.transaction, None
    staged = transaction.staged
    if transaction.read:
        assert transaction.time is not None
        reads = Reads(transaction.tables_read, transaction.time, transaction.keys_read)
    change = None
    altered: Mapping[GlobalId, Mapping[str, KeyIndex]] = {}
    if transaction.catalog is not None:
        altered = altered_indexes(context)
        contents = {
            id: each.contents for id, each in staged.altered.items() if each.contents is not None
        }
        change = CatalogChange(transaction.catalog, altered, contents)
    keyed: dict[GlobalId, list[Keyed]] = {}
    for id, rows in staged.rows.items():
        parts = list(rows)
        if id in altered:  # its rows may have been written before it was
            keyed[id] = await blocking.run(
                context.coordinator.executor, _by_keys, parts, altered[id]
            )
        elif parts[0].keyed:
            keyed[id] = [part.keyed for part in parts]
    write = Write(
        {id: [part.rows for part in rows] for id, rows in staged.rows.items()},
        reads,
        owner=transaction,
        lock_timeout_ms=context.lock_timeout_ms,
        keyed=keyed,
        checked=transaction.began,
        described=staged.known,
        moves=transaction.moves,
        zone=context.time_zone,
    )
    await context.coordinator.commit(write, change)


def _by_keys(parts: Sequence[Written], indexes: Mapping[str, KeyIndex]) -> list[Keyed]:
    """Return what is written to a table, by each of its keys."""
    return [{name: index.keyed(part.rows) for name, index in indexes.items()} for part in parts]
