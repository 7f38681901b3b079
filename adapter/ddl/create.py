"""CREATE: new objects in the transaction's change of the catalog.

Shards, dataflows and replicas follow when the transaction has committed.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.clusters import cluster_called
from foreshore.adapter.ddl.dependents import plan_dependents
from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.ddl.objects import add_item, is_taken, is_taken_in, schema_of, skip_existing
from foreshore.adapter.ddl.refresh import schedule_of
from foreshore.adapter.ddl.sequences import add_sequence
from foreshore.adapter.definitions.plan_items import planned_as
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.read.bound.timestamp import choose, requested_time, wait_for_time
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import owner_of_new
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.catalog.item import Item, OwnedBy, Schema
from foreshore.catalog.known_columns import remember_columns
from foreshore.catalog.replaced_view import (
    carry_over,
    check_columns,
    check_replaceable,
    is_used,
    with_definition,
)
from foreshore.catalog.row_security import check_replaced_by_owner
from foreshore.errors import (
    InvalidCatalogName,
    InvalidColumnDefinition,
    ObjectNotInPrerequisiteState,
    WrongObjectType,
)
from foreshore.expr.ir import Column
from foreshore.expr.traversal import sources_of
from foreshore.extras import require_spark
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    AsOf,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSequence,
    CreateView,
)
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.definition_parts import is_assertion
from foreshore.update import DIFF, TIME, Timestamp


def create_database(context: StatementContext, plan: CreateDatabase) -> Completed:
    """Run CREATE DATABASE."""
    with skip_existing(context, plan.if_not_exists):
        owner = owner_of_new(context, plan.owner)
        context.catalog_change().create_database(plan.name, owner.id)
    return Completed("CREATE DATABASE")


def create_schema(context: StatementContext, plan: CreateSchema) -> Completed:
    """Run CREATE SCHEMA."""
    change = context.catalog_change()
    database = change.state.database(plan.database)
    if database is None:
        raise InvalidCatalogName(f'database "{plan.database}" does not exist')
    with skip_existing(context, plan.if_not_exists):
        change.create_schema(database.id, plan.name, owner_of_new(context, plan.owner).id)
    return Completed("CREATE SCHEMA")


# --- tables and sequences ------------------------------------------------------------------


def refuse_reserved(names: Sequence[str]) -> None:
    """Raise if a column has the name of a column that every shard has."""
    for name in (TIME, DIFF):
        if name in names:
            raise InvalidColumnDefinition(f'column name "{name}" is reserved')


def create_sequence(context: StatementContext, plan: CreateSequence) -> Completed:
    """Run CREATE SEQUENCE."""
    if not is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        add_sequence(context, plan, OwnedBy(*plan.owned_by) if plan.owned_by else None)
    return Completed("CREATE SEQUENCE")


# --- views and indexes ---------------------------------------------------------------------


async def create_view(
    context: StatementContext, plan: CreateView | CreateMaterializedView
) -> Completed:
    """Run CREATE VIEW or CREATE MATERIALIZED VIEW."""
    fields: dict[str, Any] = {}
    kind, names = "view", plan.query.desc.names
    inputs = sources_of(plan.query.relation)
    if isinstance(plan, CreateMaterializedView):
        kind = "materialized view"
        refuse_system_inputs(plan.query.relation, "a materialized view")
        context.views.compute.maintained.check_not_corrupt(inputs)
    else:
        for notice in plan.notices:
            context.notice(notice)
    schema = schema_of(context, plan.name)
    if isinstance(plan, CreateMaterializedView):
        fields = {
            "cluster": cluster_called(context.planner, context.cluster, plan.cluster).id,
            "retain_ms": plan.retain_ms,
        }
        fields["memory_limit"] = plan.memory_limit
        fields["refresh"] = schedule_of(context, plan.refresh)
        refuse_reserved(names)
    change, planned = context.catalog_change(), context.planner.reader().planned
    old = change.state.item_in(schema.id, plan.name.item) if plan.or_replace else None
    if old is not None:
        check_replaceable(change.state, old, kind, plan.depends_on)
        if isinstance(plan, CreateMaterializedView) and old.owner != context.role.id:
            check_replaced_by_owner(change.state, old, plan.depends_on)
        if is_used(change.state, old):
            assert isinstance(plan, CreateView), plan
            await _redefine(context, old, plan)
            return Completed("CREATE VIEW")
        _notify_indexes(context, old)
        drop_objects(context, [old], cascade=False)
    if not is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        if isinstance(plan, CreateMaterializedView) and plan.as_of is not None:
            fields["since"] = _beginning(context, inputs, plan.as_of)
        item = add_item(context, plan, schema, plan.name.item, plan.depends_on, **fields)
        if isinstance(plan, CreateView) and plan.security_invoker:
            item = change.put(msgspec.structs.replace(item, security_invoker=True))
        if isinstance(plan, CreateMaterializedView):
            item = _with_mode(context, item, plan.hydrate)
        if old is not None:
            carry_over(change, old, planned[old.id].desc.names, item, names)
        if isinstance(plan, CreateMaterializedView) and plan.violations is not None:
            _count_violations(context, item, plan.violations)
    return Completed("CREATE ASSERTION" if is_assertion(plan.sql) else f"CREATE {kind.upper()}")


def _notify_indexes(context: StatementContext, view: Item) -> None:
    """Tell the client of each index that goes with the definition of a view."""
    for each in context.catalog_change().state.indexes_on(view.id):
        context.notice(f"drop cascades to index {each.name}")


async def _redefine(context: StatementContext, old: Item, plan: CreateView) -> None:
    """Give a view below other views another definition; views keep the columns that they know."""
    change, planned = context.catalog_change(), context.planner.reader().planned
    check_columns(planned[old.id].desc, plan.query.desc)
    _notify_indexes(context, old)
    drop_objects(context, change.state.indexes_on(old.id), cascade=False)
    remember_columns(change, old.id, planned[old.id].desc)
    used = [each for each in plan.depends_on if not is_builtin(each)]
    item = with_definition(change, old, plan.sql, used, plan.security_invoker)
    change.planned[item.id] = planned_as(plan, context.planner.reader().planned)
    await plan_dependents(context, item.id)


def _count_violations(context: StatementContext, view: Item, sql: str) -> None:
    """Create the materialized view that counts violations of expectations of `view`, a part of it.

    It depends on `view` to be dropped with it, and reads what `view` reads.
    """
    (syntax,) = parse(sql)
    plan = plan_statement(syntax, context.planner.reader())
    assert isinstance(plan, CreateMaterializedView), plan
    is_taken(context, plan.name, if_not_exists=False)
    fields: dict[str, Any] = {
        "cluster": view.cluster,
        "since": view.since,
        "part_of": view.id,
    }
    schema = schema_of(context, plan.name)
    add_item(context, plan, schema, plan.name.item, (*plan.depends_on, view.id), **fields)


async def wait_for_start(
    context: StatementContext, plan: CreateMaterializedView | CreateIndex
) -> None:
    """Wait for the time at which a view or an index begins, if it is a future one.

    Raises ObjectNotInPrerequisiteState if its inputs are new in the transaction.
    """
    if plan.as_of is None:
        return
    if isinstance(plan, CreateIndex):
        reader, ids = context.planner.reader(), frozenset({plan.on})
        definition = reader.planned[plan.on].definition
        if reader.state.item(plan.on).type == "view" and definition is not None:
            ids = sources_of(definition)
    else:
        ids = sources_of(plan.query.relation)
    if not ids <= context.times.holds.collections.keys():
        raise ObjectNotInPrerequisiteState(
            "AS OF over relations that the same transaction has made is not possible",
            detail="They have no history yet.",
        )
    wanted = requested_time(context, plan.as_of, ())
    assert wanted is not None
    await wait_for_time(context, ids, wanted)


def _beginning(context: StatementContext, ids: frozenset[GlobalId], as_of: AsOf) -> Timestamp:
    """Return the time of AS OF, at which `ids` are held until the transaction ends.

    AT LEAST stands for the earliest later time at which they are readable.
    """
    wanted = requested_time(context, as_of, ())
    assert wanted is not None
    chosen = choose(context, ids, wanted)
    time = chosen.time
    if wanted.at_least:
        time = max(timestamp_of(context, wanted.time), chosen.since)
    context.times.holds.hold_for(context.transaction, ids, time, context.pid)
    return time


def create_index(context: StatementContext, plan: CreateIndex) -> Completed:
    """Run CREATE INDEX; an index without a name gets a free one from its relation and columns."""
    state = context.catalog_change().state
    if state.get(plan.on) is None:
        raise WrongObjectType("cannot create an index on a system relation", sqlstate="42501")
    on, planned = state.item(plan.on), context.planner.reader().planned[plan.on]
    inputs = frozenset({plan.on})
    if planned.definition is not None:
        refuse_system_inputs(planned.definition, "an index")
        if on.type == "view":
            inputs = sources_of(planned.definition)
    context.views.compute.maintained.check_not_corrupt(inputs)
    schema = state.objects[on.schema]
    assert isinstance(schema, Schema), schema
    cluster, name = cluster_called(context.planner, context.cluster, plan.cluster), plan.name
    if name is None:
        name = context.catalog_change().free_name(schema, _index_name(on, plan, planned.desc.names))
    elif is_taken_in(context, schema, name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE INDEX")
    item = add_item(
        context,
        plan,
        schema,
        name,
        (plan.on,),
        cluster=cluster.id,
        on=plan.on,
        retain_ms=plan.retain_ms,
        memory_limit=plan.memory_limit,
        since=0 if plan.as_of is None else _beginning(context, inputs, plan.as_of),
    )
    _with_mode(context, item, plan.hydrate)
    return Completed("CREATE INDEX")


def _with_mode(context: StatementContext, item: Item, mode: HydrateMode | None) -> Item:
    """Return an item for which is kept by which engine it is to be hydrated."""
    if mode is None:
        return item
    if mode == "spark":
        require_spark("HYDRATE = 'spark'")
    return context.catalog_change().put(msgspec.structs.replace(item, hydrate=mode))


def _index_name(on: Item, plan: CreateIndex, columns: Sequence[str]) -> str:
    if plan.default:
        return f"{on.name}_primary_idx"[:60]
    keys = [columns[key.index] if isinstance(key, Column) else "expr" for key in plan.key]
    return "_".join((on.name, *keys, "idx"))[:60]
