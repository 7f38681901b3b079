"""Stage: rows on their way into a table become part of the transaction, if their keys are free.

Keys are checked against the committed rows and those that the transaction has written before. Group
commit checks them once more (`adapter/transaction/constraint_guard.py`).
"""

from collections.abc import Sequence

from foreshore import blocking
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.write.target import Target, require_unaltered
from foreshore.adapter.write.violations import key_exists
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import MANY, KeyedRows, KeyLayout
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Unique, same
from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc
from foreshore.update import Timestamp


async def stage(
    context: StatementContext,
    target: Target,
    *,
    deleted: Sequence[TableRows] = (),
    inserted: Sequence[TableRows] = (),
) -> None:
    """Let the transaction delete and insert rows, which have been checked, as one change.

    A key may go from a deleted row to an inserted one. Raises UniqueViolation if two rows would
    have the same key, CollectionCorrupted if the table is damaged, TableAltered if its definition
    has changed, InternalError if more rows would be deleted than there are.
    """
    coordinator, transaction = context.coordinator, context.transaction
    require_unaltered(context, target)
    parts = [rows.deleted() for rows in deleted if rows.num_rows]
    parts += [rows for rows in inserted if rows.num_rows]
    if not parts:
        return
    coordinator.storage.corruptions.check(target.id)
    committed = coordinator.catalog.planned.get(target.id)
    if committed is not None:
        transaction.described.setdefault(target.id, committed)
    unique = target.unique
    if not unique:
        for part in parts:
            transaction.write(target.id, Written(part, {}))
        return
    await coordinator.keys.ready(target.id)
    if transaction.checked is None:
        transaction.checked = coordinator.oracle.read_ts()
    read = transaction.checked if transaction.time is None else transaction.time
    keys = [_index_and_own(context, target, constraint) for constraint in unique]
    if sum(part.num_rows for part in parts) > MANY:
        for index, _ in keys:
            index.settled()
        by_key = await blocking.run(
            coordinator.executor, _keyed, context, target, keys, parts, read
        )
    else:
        by_key = _keyed(context, target, keys, parts, read)
    for place, part in enumerate(parts):
        keyed = {each.name: found[place] for each, found in zip(unique, by_key, strict=True)}
        transaction.write(target.id, Written(part, keyed))
    for (_, own), found in zip(keys, by_key, strict=True):
        own.add(found)


def _keyed(
    context: StatementContext,
    target: Target,
    keys: Sequence[tuple[KeyIndex, OwnRows]],
    parts: Sequence[TableRows],
    read: Timestamp,
) -> list[list[KeyedRows]]:
    """Return the rows by each key; raises if a key would be there twice, or deleted too often."""
    by_key = []
    for index, own in keys:
        keyed = [index.keyed(part) for part in parts]
        duplicate = index.duplicate(keyed, own)
        if duplicate is not None:
            state = context.planner.reader().state
            raise key_exists(state, target.desc, duplicate, context.time_zone)
        # A row that others have deleted since `read` is left to the commit, which refuses it.
        if index.overdrawn(keyed, own, read):
            raise InternalError("a row was to be taken away more often than it is there")
        by_key.append(keyed)
    return by_key


def _index_and_own(
    context: StatementContext, target: Target, constraint: Unique
) -> tuple[KeyIndex, OwnRows]:
    index = key_index(context, target, constraint)
    return index, context.transaction.own_rows(target.id, index.layout)


def key_index(context: StatementContext, target: Target, constraint: Unique) -> KeyIndex:
    """Return the index of the committed rows; an empty one for a table that is new."""
    index = committed_index(context, target.id, constraint, target.desc)
    return KeyIndex(target.id, constraint, target.desc, 0) if index is None else index


def committed_index(
    context: StatementContext, id: GlobalId, constraint: Unique, desc: RelationDesc
) -> KeyIndex | None:
    """Return the index of the committed rows; None if the transaction has made the table.

    The transaction may have renamed the constraint, or given its name to another one.
    """
    coordinator, transaction = context.coordinator, context.transaction
    named = coordinator.keys.named(id, constraint)
    if named is not None:
        return named
    built = [index for (table, _), index in transaction.built.items() if table == id]
    for index in (*coordinator.keys.of(id).values(), *built):
        if same(index.constraint, constraint):
            return index.renamed(constraint, desc)
    return None


def own_rows(context: StatementContext, id: GlobalId, layout: KeyLayout) -> OwnRows | None:
    """Return the rows that the transaction has written to table `id`, by a key; None if none."""
    transaction = context.transaction
    return transaction.own_rows(id, layout) if id in transaction.writes else None
