"""From a plan to what carries it out, for all kinds of statements."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl import alter, create, drop
from foreshore.adapter.ddl.catalog_lock import changes_permanent_objects, lock_catalog
from foreshore.adapter.ddl.comment import comment
from foreshore.adapter.ddl.create_as import create_table_as
from foreshore.adapter.ddl.sequences import alter_sequence
from foreshore.adapter.ddl.show_create import show_create
from foreshore.adapter.introspection.explain import explain
from foreshore.adapter.introspection.explain_freshness import explain_freshness
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.read.result import Outcome
from foreshore.adapter.read.row_locks import lock_table
from foreshore.adapter.read.select import select
from foreshore.adapter.session import control, cursors
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.subscribe.durable_statements import advance, create_subscription
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.adapter.write import copy
from foreshore.adapter.write.insert import delete, insert, update
from foreshore.adapter.write.merge import merge
from foreshore.adapter.write.truncate import truncate
from foreshore.errors import FeatureNotSupported, InvalidTextRepresentation
from foreshore.settings import split_names
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.plan import (
    Advance,
    AlterSequence,
    AlterTable,
    AsOf,
    Begin,
    CloseCursor,
    Comment,
    Commit,
    CopyFrom,
    CopyTo,
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
    Deallocate,
    Declare,
    Delete,
    Discard,
    Drop,
    Execute,
    Explain,
    ExplainFreshness,
    Fetch,
    Insert,
    LockTable,
    Maintain,
    Merge,
    Plan,
    Prepare,
    Rename,
    ResetVariable,
    Retain,
    Rollback,
    Savepoint,
    Select,
    SetTransaction,
    SetVariable,
    ShowCreate,
    ShowVariable,
    Subscribe,
    Truncate,
    Unlisten,
    Update,
)
from foreshore.types import Datum, RelationDesc

if TYPE_CHECKING:
    from foreshore.adapter.session.planner import SessionPlanner
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session


# What may come before a transaction's isolation is settled; all else counts as a query.
NO_QUERY = (
    Begin, Commit, Rollback, Savepoint, SetTransaction, SetVariable, ShowVariable, ResetVariable,
    Fetch, Unlisten,
)  # fmt: skip


NO_DDL = (Select, Insert, Update, Delete, Merge, *NO_QUERY)  # the most frequent, asked first


async def run(session: "Session", context: StatementContext) -> Outcome:
    """Carry out a planned statement; the session is for statements about itself."""
    plan = context.prepared.plan
    assert plan is not None
    transaction = context.transaction
    if not isinstance(plan, NO_QUERY):
        transaction.settled = True
        if transaction.time is not None:
            since = max(transaction.time, transaction.began)
            context.coordinator.check_defined(context.prepared.used, since)
    if not isinstance(plan, NO_DDL) and changes_permanent_objects(context, plan):
        context.require_writable(_verb(plan))
        plan = await _locked(context, plan)
    before = None if transaction.catalog is None else transaction.catalog.state
    outcome = await _carry_out(session, context, plan)
    change = transaction.catalog
    if change is not None and change.state is not before and not isinstance(plan, NO_QUERY):
        with context.interrupts.running():
            await blocking.run(None, context.planner.verify_sql_round_trip, before or change.base)
    return outcome


async def _locked(context: StatementContext, plan: Plan) -> Plan:
    """Return the plan of a DDL statement behind the catalog lock, made anew if it has changed.

    A time to come is waited for before, as that may take long.
    """
    match plan:
        case CreateMaterializedView():
            await create.wait_for_start(context, plan)
        case CreateTableAs(with_data=True, as_of=AsOf() as as_of):
            await wait_until_requested(context, as_of)
        case _:
            pass
    await lock_catalog(context)
    await context.planner.ready(context.prepared)
    assert context.prepared.plan is not None
    return context.prepared.plan


async def _carry_out(session: "Session", context: StatementContext, plan: Plan) -> Outcome:
    match plan:
        case Select():
            return await select(context, plan)
        case Insert():
            return await insert(context, plan)
        case Update():
            return await update(context, plan)
        case Delete():
            return await delete(context, plan)
        case Merge():
            return await merge(context, plan)
        case Subscribe():
            return await subscribe(context, plan)
        case Explain():
            return await explain(context, plan)
        case ExplainFreshness():
            return explain_freshness(context, plan)
        case CopyFrom():
            return copy.copy_from(session, context, plan)
        case CopyTo(source=source, options=options):
            selected = (
                await select(context, source)
                if isinstance(source, Select)
                else await subscribe(context, source)
            )
            return copy.copy_to(context, options, selected)
        case Begin() | Commit() | Rollback() | SetTransaction() | Savepoint():
            return await _transaction(session, plan)
        case SetVariable():
            return control.set_variable(session, plan)
        case ShowVariable():
            return control.show_variable(session, plan)
        case ResetVariable():
            return control.reset_variable(session, plan)
        case Discard():
            return await control.discard(session, context, plan)
        case Maintain():
            return await control.maintain(session, plan)
        case Prepare():
            return await control.prepare(session, plan)
        case Execute():
            named = control.named(session, plan.name)
            await context.planner.ready(named)
            args = control.execute_args(context, plan, named)
            return await run(session, replace(context, prepared=named, args=args))
        case Deallocate():
            return control.deallocate(session, plan)
        case Unlisten():
            return Completed("UNLISTEN")
        case Declare():
            return await cursors.declare(session, context, plan)
        case Fetch():
            return await cursors.fetch(session, plan)
        case CloseCursor():
            return cursors.close(session, plan)
        case ShowCreate():
            return show_create(context, plan)
        case AlterTable():
            context.require_writable(plan.tag)
            return await alter.alter_table(context, plan)
        case CreateTableAs():
            context.require_writable("CREATE TABLE AS")
            return await create_table_as(context, plan)
        case CreateMaterializedView():
            context.require_writable("CREATE MATERIALIZED VIEW")
            return create.create_view(context, plan)
        case Advance():
            return await advance(context, plan)
        case LockTable():
            return await lock_table(context, plan)
        case Truncate():
            context.require_writable("TRUNCATE TABLE")
            return await truncate(context, plan)
        case _:
            context.require_writable(_verb(plan))
            return await _define(context, plan)


async def _transaction(
    session: "Session", plan: Begin | Commit | Rollback | SetTransaction | Savepoint
) -> Outcome:
    match plan:
        case Begin():
            return control.begin(session, plan)
        case Commit():
            return await control.commit(session, plan)
        case Rollback():
            return await control.rollback(session, plan)
        case Savepoint():
            return control.savepoint(session, plan)
        case SetTransaction():
            return control.set_transaction(session, plan)


async def _define(
    context: StatementContext,
    plan: CreateDatabase
    | CreateSchema
    | CreateTable
    | CreateSequence
    | AlterSequence
    | CreateSubscription
    | CreateView
    | CreateIndex
    | CreateCluster
    | CreateClusterReplica
    | Drop
    | Rename
    | Retain
    | Comment,
) -> Outcome:
    match plan:
        case CreateDatabase():
            return create.create_database(context, plan)
        case CreateSchema():
            return create.create_schema(context, plan)
        case CreateTable():
            return create.create_table(context, plan)
        case CreateSequence():
            return create.create_sequence(context, plan)
        case AlterSequence():
            return alter_sequence(context, plan)
        case CreateSubscription():
            return create_subscription(context, plan)
        case CreateView():
            return create.create_view(context, plan)
        case CreateIndex():
            return create.create_index(context, plan)
        case CreateCluster():
            return create.create_cluster(context, plan)
        case CreateClusterReplica():
            return create.create_cluster_replica(context, plan)
        case Drop():
            return await drop.drop(context, plan)
        case Rename():
            return await drop.rename(context, plan)
        case Retain():
            return drop.retain(context, plan)
        case Comment():
            return comment(context, plan)
        case _:
            assert_never(plan)


def _verb(plan: Plan) -> str:
    if isinstance(plan, AlterTable):
        return plan.tag
    if isinstance(plan, Truncate):
        return "TRUNCATE TABLE"
    if isinstance(plan, CreateTableAs):
        return "CREATE TABLE AS"
    name = type(plan).__name__
    words = "".join(f" {c}" if c.isupper() else c for c in name).strip().upper()
    return "ALTER" if isinstance(plan, Rename | Retain) else words


def described(session: "Session", plan: Plan) -> RelationDesc | None:
    """Return the columns of what only the session knows: FETCH's and EXECUTE's."""
    match plan:
        case Fetch(name=name, move=False):
            portal = session.portals.get(name)
            return portal.desc if portal is not None else None
        case Execute(name=name):
            named = session.statements.get(name)
            return named.desc if named is not None else None
        case _:
            return None


def ends_transaction(syntax: Syntax) -> bool:
    """Whether a statement may run in a failed transaction, because it ends it."""
    words = syntax.text.split(None, 1)
    return bool(words) and words[0].rstrip(";").lower() in ("commit", "rollback", "end", "abort")


def resolved_args(
    planner: "SessionPlanner", prepared: "Prepared", args: Sequence[Datum]
) -> Sequence[Datum]:
    """Return the arguments with names of objects looked up, where reg* types came as text."""
    if not prepared.takes_names:
        return args
    types = prepared.parameters
    return [
        _object_id(planner, value, type.name)
        if isinstance(value, str) and type.name.startswith("reg")
        else value
        for value, type in zip(args, types, strict=True)
    ]


def _object_id(planner: "SessionPlanner", name: str, type: str) -> int:
    if name.isdigit():
        return int(name)
    if type != "regclass":
        raise FeatureNotSupported(f"names as arguments of type {type} are not supported")
    reader = planner.reader()
    parts = split_names(name, ".")
    found = reader.find(parts)
    if found is None:
        raise InvalidTextRepresentation(f'relation "{name}" does not exist', sqlstate="42P01")
    return found.oid
