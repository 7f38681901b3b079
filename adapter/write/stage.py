"""Stage: rows on their way into a table become part of the transaction, if their keys are free.

Keys are checked against the committed rows and those that the transaction has written before. Group
commit checks them once more (`adapter/transaction/constraint_guard.py`).
"""

from collections.abc import Sequence
from functools import partial

from foreshore import blocking
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.write.target import Target, require_unaltered
from foreshore.adapter.write.violations import key_exists
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import MANY, KeyedRows
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Unique, same
from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc


async def stage(
    context: StatementContext,
    target: Target,
    *,
    deleted: Sequence[TableRows] = (),
    inserted: Sequence[TableRows] = (),
) -> None:
    """Let the transaction delete and insert rows, which have been checked, as one change.

    A key may go from a deleted row to an inserted one. Raises UniqueViolation if two rows would
    have the same key, CollectionCorrupted if the table is corrupt, TableAltered if its definition
    has changed, InternalError if more rows would be deleted than there are.
    """
    coordinator, transaction, id = context.coordinator, context.transaction, target.id
    require_unaltered(context, target)
    parts = [rows.deleted() for rows in deleted if rows.num_rows]
    deletes = bool(parts)
    parts += [rows for rows in inserted if rows.num_rows]
    if not parts:
        return
    if coordinator.storage.corruptions.messages:
        coordinator.storage.corruptions.check(id)
    committed = coordinator.catalog.planned.get(id)
    written = [Written(part, {}) for part in parts]
    for constraint in target.planned.unique:
        await coordinator.keys.ready(id)
        index = key_index(context, target, constraint)
        own = transaction.rows(id).by_key(index.layout)
        if sum([part.num_rows for part in parts]) <= MANY:
            found = _by_key(context, target, index, own, parts, deletes=deletes)
        else:
            index.settled()
            work = partial(_by_key, context, target, index, own, parts, deletes=deletes)
            found = await blocking.run(coordinator.executor, work)
        for each, rows in zip(written, found, strict=True):
            each.keyed[constraint.name] = rows
    for each in written:
        transaction.write(id, each, committed)


def _by_key(
    context: StatementContext,
    target: Target,
    index: KeyIndex,
    own: OwnRows,
    parts: Sequence[TableRows],
    *,
    deletes: bool,
) -> list[KeyedRows]:
    """Return the rows by a key; raises if one would be there twice, or be deleted too often."""
    found = [index.keyed(part) for part in parts]
    duplicate = index.duplicate(found, own)
    if duplicate is not None:
        state = context.planner.reader().state
        raise key_exists(state, target.desc, duplicate, context.time_zone)
    if deletes:
        transaction = context.transaction
        read = transaction.began if transaction.time is None else transaction.time
        # A row that others have deleted since `read` is left to the commit, which refuses it.
        if index.overdrawn(found, own, read):
            raise InternalError("a row was to be taken away more often than it is there")
    return found


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
    built = transaction.altered(id).indexes.values()
    for index in (*coordinator.keys.of(id).values(), *built):
        if same(index.constraint, constraint):
            return index.renamed(constraint, desc)
    return None
