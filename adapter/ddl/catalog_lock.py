"""The catalog lock: one transaction at a time changes permanent objects.

The first statement of a transaction that changes them waits for the lock and holds it until the
transaction ends, as LOCK TABLE does: lock_timeout and deadlock detection apply. So the catalog that
the statement was planned against is the one that it changes. Temporary objects need no lock.
"""

from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.catalog.item import Item
from foreshore.catalog.rebase import rebased
from foreshore.catalog.state import PERMANENT, State
from foreshore.errors import DatabaseError
from foreshore.sql.plan import (
    AlterSequence,
    AlterTable,
    Comment,
    CreateCluster,
    CreateClusterReplica,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSequence,
    CreateSubscription,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    Name,
    Plan,
    Rename,
    Retain,
    Truncate,
)

RELATIONS = ("table", "view", "materialized view", "index", "sequence", "subscription", "column")


def changes_permanent_objects(context: StatementContext, plan: Plan) -> bool:
    """Return whether running `plan` may change objects that other sessions see."""
    reader = context.planner.reader()
    match plan:
        case CreateSchema(database=database, name=schema, if_not_exists=True):
            return reader.schema(database, schema) is None
        case (
            CreateTable(name=name, if_not_exists=True)
            | CreateTableAs(definition=CreateTable(name=name), if_not_exists=True)
            | CreateView(name=name, if_not_exists=True)
            | CreateMaterializedView(name=name, if_not_exists=True)
            | CreateSequence(name=name, if_not_exists=True)
            | CreateSubscription(name=name, if_not_exists=True)
        ) if reader.is_taken(name):
            return False  # it exists already, so nothing changes
        case (
            CreateTable(name=name)
            | CreateTableAs(definition=CreateTable(name=name))
            | CreateView(name=name)
            | CreateSequence(name=name)
        ):
            return not name.temporary
        case CreateIndex(on=id) | AlterTable(table=id) | AlterSequence(id=id):
            return id is not None and _is_permanent(context, id)
        case Truncate(tables=ids, restart_identity=True):
            return any(_is_permanent(context, id) for id in ids)
        case Drop(kind=kind, names=names) if kind in RELATIONS:
            return any(_names_permanent(context, name) for name in names)
        case (
            Rename(kind=kind, name=name)
            | Retain(kind=kind, name=name)
            | Comment(kind=kind, name=name)
        ) if kind in RELATIONS:
            return _names_permanent(context, name)
        case (
            CreateDatabase()
            | CreateSchema()
            | CreateCluster()
            | CreateClusterReplica()
            | CreateMaterializedView()
            | CreateSubscription()
            | Drop()
            | Rename()
            | Retain()
            | Comment()
        ):
            return True
        case _:
            return False


def _is_permanent(context: StatementContext, id: str) -> bool:
    item = context.planner.state.get(id)
    return not (isinstance(item, Item) and item.temporary)


def _names_permanent(context: StatementContext, name: Name) -> bool:
    """Return whether `name` is a permanent relation's; a missing one is the statement's error."""
    reader = context.planner.reader()
    try:
        found = reader.find(name.parts) or reader.find_key(name.parts)
    except DatabaseError:
        return False
    return found is not None and not (isinstance(found, Item) and found.temporary)


async def lock_catalog(context: StatementContext) -> None:
    """Wait for the catalog lock, and start the transaction's change from the present state.

    Raises LockNotAvailable after lock_timeout, Conflict for a deadlock or if other sessions have
    changed what the transaction's temporary objects use.
    """
    transaction = context.transaction
    await context.coordinator.locks.lock_catalog(transaction, context.lock_timeout_ms)
    rebase_on(transaction, context.coordinator.state)


def rebase_on(transaction: Transaction, now: State) -> None:
    """Put a transaction's changes of the catalog on top of `now`, the present state.

    Raises Conflict if other sessions have changed what they use. With the catalog lock there is
    nothing to do; without it the transaction has changed temporary objects only.
    """
    if transaction.catalog is None:
        return
    if transaction.catalog.base.parts[PERMANENT] is not now.parts[PERMANENT]:
        transaction.stage_catalog(rebased(transaction.catalog, now))
