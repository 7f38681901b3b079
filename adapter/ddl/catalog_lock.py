"""The catalog lock: one transaction at a time changes permanent objects.

The first statement of a transaction that changes them waits for the lock and holds it until the
transaction ends, as LOCK TABLE does: lock_timeout and deadlock detection apply. So the catalog that
the statement was planned against is the one that it changes. Temporary objects need no lock.
"""

from collections.abc import Sequence

from foreshore.adapter.ddl.objects import look_up
from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.catalog.item import Item
from foreshore.catalog.rebase import rebased
from foreshore.catalog.state import PERMANENT, State
from foreshore.errors import DatabaseError
from foreshore.item_view import Name
from foreshore.sql.plan import Plan
from foreshore.sql.plan.changed_objects import (
    Items,
    NamedRelations,
    NewRelation,
    NewSchema,
    changed_objects,
)


async def changes_permanent_objects(context: StatementContext, plan: Plan) -> bool:
    """Return whether running `plan` may change objects that other sessions see."""
    reader = context.planner.reader()
    match changed_objects(plan):
        case None:
            return False
        case NewSchema(database=database, name=schema):
            return reader.schema(database, schema) is None
        case NewRelation(name=name, optional=optional):
            return not (name.temporary or (optional and reader.is_taken(name)))
        case Items(ids=ids):
            return any(not _is_temporary(reader.state.get(id)) for id in ids)
        case NamedRelations(names=names):
            return await look_up(names, _any_permanent, reader, names)
        case _:
            return True


def _is_temporary(found: object) -> bool:
    return isinstance(found, Item) and found.temporary


def _any_permanent(reader: SessionCatalog, names: Sequence[Name]) -> bool:
    return any(_names_permanent(reader, name) for name in names)


def _names_permanent(reader: SessionCatalog, name: Name) -> bool:
    """Return whether `name` is a permanent relation's; a missing one is the statement's error."""
    try:
        found = reader.find(name.parts) or reader.find_key(name.parts)
    except DatabaseError:
        return False
    return found is not None and not _is_temporary(found)


async def lock_catalog(context: StatementContext) -> None:
    """Wait for the catalog lock, and start the transaction's change from the present state.

    Raises LockNotAvailable after lock_timeout, Conflict for a deadlock or if other sessions have
    changed what the transaction's temporary objects use.
    """
    transaction = context.transaction
    await context.tables.locks.lock_catalog(transaction, context.lock_timeout_ms)
    rebase_on(transaction, context.names.state)


def rebase_on(transaction: Transaction, now: State) -> None:
    """Put a transaction's changes of the catalog on top of `now`, the present state.

    Raises Conflict if other sessions have changed what they use. With the catalog lock there is
    nothing to do; without it the transaction has changed temporary objects only.
    """
    if transaction.catalog is None:
        return
    if transaction.catalog.base.parts[PERMANENT] is not now.parts[PERMANENT]:
        transaction.stage_catalog(rebased(transaction.catalog, now))
