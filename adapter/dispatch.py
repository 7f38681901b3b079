"""Which function runs which statement: a table for each of the three kinds of statements.

rows          queries and changes of rows
definitions   DDL, and what else is refused in a read-only transaction as a whole
session       statements about the session itself, which get the session too
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from foreshore import interruptible
from foreshore.adapter import secrets
from foreshore.adapter.control import control, notifications, portals, prepare
from foreshore.adapter.control.conversation import Conversation
from foreshore.adapter.ddl import clusters, create, drop, enums, functions, owners
from foreshore.adapter.ddl.catalog_lock import changes_permanent_objects, lock_catalog
from foreshore.adapter.ddl.comment import comment
from foreshore.adapter.ddl.durable_subscriptions import advance, create_subscription
from foreshore.adapter.ddl.refresh import refresh_view
from foreshore.adapter.ddl.roles import (
    defaults,
    grants,
    network_policies,
    owned,
    roles,
    settings,
    system,
    tokens,
)
from foreshore.adapter.ddl.sequences import alter_sequence
from foreshore.adapter.ddl.tables import alter, policies, view_columns
from foreshore.adapter.ddl.tables.create import create_table, create_table_as
from foreshore.adapter.ddl.truncate import truncate
from foreshore.adapter.dump.statements import show_create_all
from foreshore.adapter.explain.analyze import explain_analyze
from foreshore.adapter.explain.change import explain_change
from foreshore.adapter.explain.explain import explain, explain_maintained
from foreshore.adapter.explain.freshness import explain_freshness
from foreshore.adapter.explain.operators import explain_operators
from foreshore.adapter.explain.sink_schema import explain_sink_schema
from foreshore.adapter.files.copy import copy_from_files, copy_to_files
from foreshore.adapter.metrics.create import create_metric
from foreshore.adapter.read.object_names import query_args, resolve_names
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.read.row_locks import lock_table
from foreshore.adapter.read.select import select
from foreshore.adapter.rights.authorize import authorize_any
from foreshore.adapter.show.show_create import show_create
from foreshore.adapter.sinks.alter import alter_sink
from foreshore.adapter.sinks.create import check_target, create_sink
from foreshore.adapter.sinks.set_from import set_sink_from
from foreshore.adapter.sources import tables as source_tables
from foreshore.adapter.sources.changes.options import alter_source
from foreshore.adapter.sources.changes.refresh import refresh_source_tables
from foreshore.adapter.sources.connections import (
    alter_connection,
    create_connection,
    validate_altered,
    validate_connection,
    validate_new,
)
from foreshore.adapter.sources.create import create_source
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planning_cost import planning_owner
from foreshore.adapter.statement.result import Outcome, Selected, check_returned
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.adapter.waits.recency import is_wanted, wait_for_sources
from foreshore.adapter.waits.sinks import wait_for_sinks
from foreshore.adapter.waits.snapshots import wait_for_snapshots
from foreshore.adapter.write.change import delete, merge, update
from foreshore.adapter.write.copy import copied, copy_from, copy_to
from foreshore.adapter.write.foreign_keys import set_constraints
from foreshore.adapter.write.insert import insert
from foreshore.adapter.write.with_changes import with_changes
from foreshore.catalog.row_security import check_maintained
from foreshore.sql import plan as plans

# Each takes the plan of its kind.
Statement = Callable[[StatementContext, Any], Outcome | Awaitable[Outcome]]
SessionStatement = Callable[[Conversation, StatementContext, Any], Outcome | Awaitable[Outcome]]

ROWS: Mapping[type, Statement] = {
    plans.Select: select,
    plans.Insert: insert,
    plans.Update: update,
    plans.Delete: delete,
    plans.Merge: merge,
    plans.WithChanges: with_changes,
    plans.Subscribe: subscribe,
    plans.CopyTo: copy_to,
    plans.Explain: explain,
    plans.ExplainAnalyze: explain_analyze,
    plans.ExplainChange: explain_change,
    plans.ExplainFreshness: explain_freshness,
    plans.ExplainMaintained: explain_maintained,
    plans.ExplainOperators: explain_operators,
    plans.ExplainSinkSchema: explain_sink_schema,
    plans.ShowCreate: show_create,
    plans.ShowCreateAll: show_create_all,
    plans.LockTable: lock_table,
    plans.SetConstraints: set_constraints,
    plans.RefreshView: refresh_view,
    plans.ValidateConnection: validate_connection,
    plans.WaitForSinks: wait_for_sinks,
}
DEFINITIONS: Mapping[type, Statement] = {
    plans.CreateDatabase: create.create_database,
    plans.CreateSchema: create.create_schema,
    plans.CreateTable: create_table,
    plans.CreateTableAs: create_table_as,
    plans.CreateEnum: enums.create_enum,
    plans.CreateDomain: enums.create_domain,
    plans.CreateFunction: functions.create_function,
    plans.DropFunction: functions.drop_function,
    plans.AlterFunction: functions.alter,
    plans.CreateStructured: enums.create_structured,
    plans.AlterEnum: enums.alter_enum,
    plans.CreatePolicy: policies.create,
    plans.AlterPolicy: policies.alter,
    plans.DropPolicy: policies.drop,
    plans.CommentPolicy: policies.comment,
    plans.SetRowSecurity: policies.set_security,
    plans.CreateSecret: secrets.create_secret,
    plans.AlterSecret: secrets.alter_secret,
    plans.CreateSource: create_source,
    plans.CreateSourceTable: source_tables.create_source_table,
    plans.AddSourceTables: source_tables.add_source_tables,
    plans.DropSourceTables: source_tables.drop_source_tables,
    plans.RefreshSourceTables: refresh_source_tables,
    plans.AlterSource: alter_source,
    plans.AlterSink: alter_sink,
    plans.SetSinkFrom: set_sink_from,
    plans.CreateSink: create_sink,
    plans.CreateMetric: create_metric,
    plans.CreateConnection: create_connection,
    plans.AlterConnection: alter_connection,
    plans.CreateSequence: create.create_sequence,
    plans.CreateView: create.create_view,
    plans.CreateMaterializedView: create.create_view,
    plans.CreateIndex: create.create_index,
    plans.CreateSubscription: create_subscription,
    plans.CreateCluster: clusters.create_cluster,
    plans.CreateClusterReplica: clusters.create_cluster_replica,
    plans.AlterCluster: clusters.alter_cluster,
    plans.Swap: clusters.swap,
    plans.SetCluster: clusters.set_cluster,
    plans.AlterTable: alter.alter_table,
    plans.AlterSequence: alter_sequence,
    plans.Advance: advance,
    plans.Rename: drop.rename,
    plans.RenameViewColumn: view_columns.rename_column,
    plans.SetOwner: owners.set_owner,
    plans.SetSchema: owners.set_schema,
    plans.CreateRole: roles.create_role,
    plans.AlterRole: roles.alter_role,
    plans.RenameRole: roles.rename_role,
    plans.DropRole: roles.drop_role,
    plans.CreateToken: tokens.create_token,
    plans.DropToken: tokens.drop_token,
    plans.GrantRoles: roles.grant_roles,
    plans.GrantRights: grants.grant_rights,
    plans.SetRoleSetting: settings.set_role_setting,
    plans.AlterSystem: system.alter_system,
    plans.CreateNetworkPolicy: network_policies.create_network_policy,
    plans.AlterNetworkPolicy: network_policies.alter_network_policy,
    plans.AlterDefaultRights: defaults.alter_default_rights,
    plans.ChangeOwned: owned.change_owned,
    plans.LimitMemory: drop.limit_memory,
    plans.SetErrorPolicy: drop.set_error_policy,
    plans.SetSecurityInvoker: drop.set_security_invoker,
    plans.Retain: drop.retain,
    plans.Comment: comment,
    plans.Drop: drop.drop,
    plans.Truncate: truncate,
}
SESSION: Mapping[type, SessionStatement] = {
    plans.Begin: control.begin,
    plans.Commit: control.commit,
    plans.Rollback: control.rollback,
    plans.Savepoint: control.savepoint,
    plans.SetTransaction: control.set_transaction,
    plans.SetVariable: control.set_variable,
    plans.ShowVariable: control.show_variable,
    plans.ResetVariable: control.reset_variable,
    plans.Discard: control.discard,
    plans.Maintain: control.maintain,
    plans.Prepare: prepare.prepare,
    plans.Execute: lambda session, context, plan: _execute(session, context, plan),
    plans.Deallocate: prepare.deallocate,
    plans.Listen: notifications.listen,
    plans.Notify: notifications.notify,
    plans.Declare: portals.declare,
    plans.Fetch: portals.fetch,
    plans.CloseCursor: portals.close,
    plans.CopyFrom: copy_from,
    plans.CopyFromFiles: copy_from_files,
    plans.CopyToFiles: copy_to_files,
    plans.CopyChange: lambda session, context, plan: _copy_change(session, context, plan),
}

# What may come before a transaction's isolation is settled; all else counts as a query.
NO_QUERY = frozenset(
    {
        plans.Begin,
        plans.Commit,
        plans.Rollback,
        plans.Savepoint,
        plans.SetTransaction,
        plans.SetVariable,
        plans.ShowVariable,
        plans.ResetVariable,
        plans.Fetch,
        plans.Listen,
        plans.Notify,
    }
)


async def run(session: Conversation, context: StatementContext) -> Outcome:
    """Run a planned statement.

    Raises RelationRedefined if a relation that it names is another one than at the time at which
    its transaction reads.
    """
    prepared, variables = context.prepared, context.variables
    if variables.settings.waits_for_sources and is_wanted(context):
        await wait_for_sources(context, prepared.made.used)
    elif context.feeds.ingestion.controller.without_snapshot and prepared.made.peek is not None:
        await wait_for_snapshots(context, prepared.made.used)
    plan, (state, version) = prepared.made.plan, prepared.found_allowed
    assert plan is not None
    if (
        state is not context.names.catalog.state
        or version != variables.plan_version
        or context.transaction.staged.catalog is not None
    ):
        await authorize_any(context)
    if prepared.made.takes_names:
        context = await resolve_names(session, context)
    kind = type(plan)
    if kind not in NO_QUERY:
        context.transaction.settled = True
        if context.transaction.time is not None:
            _check_defined(context)
    if statement := ROWS.get(kind):
        outcome = statement(context, plan)
    elif statement := DEFINITIONS.get(kind):
        outcome = _define(context, statement, plan)
    else:
        outcome = SESSION[kind](session, context, plan)
    return outcome if isinstance(outcome, Outcome) else await outcome


def _check_defined(context: StatementContext) -> None:
    """Raise RelationRedefined as `run` does."""
    transaction = context.transaction
    since = max(transaction.time or 0, transaction.began)
    context.names.catalog.check_defined(context.prepared.made.used, since)


async def _define(context: StatementContext, statement: Statement, plan: plans.Plan) -> Outcome:
    """Run DDL; its change of the catalog must survive planning it again from its text."""
    context.require_writable(_verb(plan))
    if await changes_permanent_objects(context, plan):
        context = await _lock(context)
    change = context.transaction.catalog
    before = None if change is None else change.state
    outcome = statement(context, context.prepared.made.plan)
    if isinstance(outcome, Awaitable):
        outcome = await outcome
    change = context.transaction.catalog
    if change is not None and change.state is not before:
        check_maintained(before or change.base, change.state)
        with context.interrupts.running():
            owner = planning_owner(context.tables.locks, context.transaction, context.roles)
            verify = context.planner.verify_sql_round_trip
            await interruptible.run(owner, verify, before or change.base)
    return outcome


async def _lock(context: StatementContext) -> StatementContext:
    """Lock the catalog, and plan the statement anew if the catalog has changed meanwhile.

    A time to come, new replicas and external systems are waited for before, as that may take long.
    Return the context with what was found out there.
    """
    match context.prepared.made.plan:
        case plans.CreateMaterializedView() | plans.CreateIndex() as plan:
            await create.wait_for_start(context, plan)
        case plans.CreateTableAs(with_data=True, as_of=plans.AsOf() as as_of):
            await wait_until_requested(context, as_of)
        case plans.AlterCluster() as plan:
            await clusters.bring_up(context, plan)
        case plans.CreateSource() as plan:
            with context.interrupts.running():
                found = await context.feeds.ingestion.discovered(plan.spec)
            context = replace(context, discovered=found)
        case (
            plans.CreateSourceTable()
            | plans.AddSourceTables()
            | plans.RefreshSourceTables() as plan
        ):
            found_again = await source_tables.discovered_again(context, plan)
            context = replace(context, discovered=found_again)
        case plans.CreateConnection() as plan:
            await validate_new(context, plan)
        case plans.AlterConnection(validate=True) as plan:
            await validate_altered(context, plan)
        case plans.CreateSink() as plan:
            await check_target(context, plan)
        case _:
            pass
    await lock_catalog(context)
    await context.planner.ready(context.prepared)
    return context


async def _execute(
    session: Conversation, context: StatementContext, plan: plans.Execute
) -> Outcome:
    """Run EXECUTE: another prepared statement of the session."""
    named = prepare.named(session, plan.name)
    await context.planner.ready(named)
    if plan.lookup is not None and len(plan.args) == len(named.parameters):
        found = await query_args(session, context, plan.lookup, plan.args, named.parameters)
        plan = plans.Execute(plan.name, found)
    args = await prepare.execute_args(context, plan, named)
    return await run(session, context.of(args, named))


async def _copy_change(
    session: Conversation, context: StatementContext, plan: plans.CopyChange
) -> Outcome:
    """Run COPY of the rows that another statement returns."""
    (syntax,) = (await session.script(plan.sql)).parsed
    prepared = await context.planner.plan_syntax(syntax)
    outcome = await run(session, replace(context, prepared=prepared))
    assert isinstance(outcome, Selected)
    check_returned(outcome, context.variables.settings.limits)
    return copied(context, outcome, plan.options)


def _verb(plan: Any) -> str:
    """Return what a statement is called in messages."""
    match plan:
        case plans.AlterTable(tag=tag):
            return tag
        case plans.Truncate():
            return "TRUNCATE TABLE"
        case plans.SetRowSecurity():
            return "ALTER TABLE"
        case (
            plans.Rename()
            | plans.RenameViewColumn()
            | plans.LimitMemory()
            | plans.SetSecurityInvoker()
            | plans.SetErrorPolicy()
            | plans.Retain()
            | plans.Swap()
            | plans.SetOwner()
            | plans.SetSchema()
        ):
            return "ALTER"
        case plans.SetCluster():
            return "ALTER MATERIALIZED VIEW"
        case plans.Advance():
            return "ALTER SUBSCRIPTION"
        case plans.CommentPolicy():
            return "COMMENT"
        case _:
            return re.sub(r"(?<!^)(?=[A-Z])", " ", type(plan).__name__).upper()
