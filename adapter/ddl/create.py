"""CREATE: new objects in the transaction's change of the catalog.

Nothing happens yet: shards, dataflows and replicas follow when the transaction has committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foreshore.adapter.client import Completed
from foreshore.adapter.coordinator import refuse_system_inputs
from foreshore.adapter.ddl.definitions import plan_created_table
from foreshore.adapter.ddl.sequences import add_sequence
from foreshore.adapter.read.as_of import requested_time, wait_for_time
from foreshore.adapter.read.scalar_values import timestamp_of
from foreshore.adapter.read.timestamp import choose
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Cluster, Item, OwnedBy, Schema
from foreshore.compute.controller.cluster import check_size
from foreshore.constraint import Unique
from foreshore.errors import (
    DependentObjectsStillExist,
    DuplicateDatabase,
    DuplicateObject,
    DuplicateSchema,
    DuplicateTable,
    InvalidCatalogName,
    InvalidColumnDefinition,
    InvalidObjectDefinition,
    InvalidSchemaName,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
    WrongObjectType,
)
from foreshore.expr.ir import Column, sources_of
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.bind.definitions.sequence import new_sequence
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    AsOf,
    CreateCluster,
    CreateClusterReplica,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSequence,
    CreateTable,
    CreateView,
    Name,
)
from foreshore.sql.planner import plan_statement
from foreshore.update import DIFF, TIME, Timestamp


def create_database(context: StatementContext, plan: CreateDatabase) -> Completed:
    """Run CREATE DATABASE."""
    try:
        context.catalog_change().create_database(plan.name, context.role.id)
    except DuplicateDatabase as error:
        _skip(context, plan.if_not_exists, error)
    return Completed("CREATE DATABASE")


def create_schema(context: StatementContext, plan: CreateSchema) -> Completed:
    """Run CREATE SCHEMA."""
    change = context.catalog_change()
    database = change.state.database(plan.database)
    if database is None:
        raise InvalidCatalogName(f'database "{plan.database}" does not exist')
    try:
        change.create_schema(database.id, plan.name, context.role.id)
    except DuplicateSchema as error:
        _skip(context, plan.if_not_exists, error)
    return Completed("CREATE SCHEMA")


def create_table(context: StatementContext, plan: CreateTable) -> Completed:
    """Run CREATE TABLE."""
    if not is_there(context, plan.name, if_not_exists=plan.if_not_exists):
        add_table(context, plan)
    return Completed("CREATE TABLE")


def is_there(context: StatementContext, name: Name, *, if_not_exists: bool) -> bool:
    """Whether the name of a new relation is taken; that is an error, but for IF NOT EXISTS."""
    try:
        context.catalog_change().check_name_free(schema_of(context, name), name.item)
    except DuplicateTable as error:
        _skip(context, if_not_exists, error)
        return True
    return False


def add_table(context: StatementContext, plan: CreateTable) -> GlobalId:
    """Return the id of a new table, in the transaction's catalog."""
    refuse_reserved(plan.desc.names)
    change = context.catalog_change()
    id = change.allot_item()
    schema = schema_of(context, plan.name)
    on_commit = plan.on_commit
    if plan.sequences:
        plan = with_sequences(context, id, plan)
    change.create_item(
        id,
        "table",
        schema,
        plan.name.item,
        context.role.id,
        plan.sql,
        plan.depends_on,
        constraints=named_constraints(plan),
        retain_ms=plan.retain_ms,
        on_commit=on_commit,
    )
    context.transaction.planned[id] = plan_created_table(plan)
    return id


def refuse_reserved(names: Sequence[str]) -> None:
    """Raise if a column of a shard would be called like one that every shard has."""
    for name in (TIME, DIFF):
        if name in names:
            raise InvalidColumnDefinition(f'column name "{name}" is reserved')


def create_sequence(context: StatementContext, plan: CreateSequence) -> Completed:
    """Run CREATE SEQUENCE."""
    if not is_there(context, plan.name, if_not_exists=plan.if_not_exists):
        owner = OwnedBy(*plan.owned_by) if plan.owned_by is not None else None
        add_sequence(context, plan, schema_of(context, plan.name), owner)
    return Completed("CREATE SEQUENCE")


def with_sequences(context: StatementContext, table: GlobalId, plan: CreateTable) -> CreateTable:
    """Make the sequences of a table's columns; return what the table is with them."""
    for each in plan.sequences:
        is_there(context, each.name, if_not_exists=False)
        owner = OwnedBy(table, plan.desc.names[each.column], each.identity)
        made = new_sequence(each.name, each.sequence)
        add_sequence(context, made, schema_of(context, each.name), owner)
    (syntax,) = parse(plan.sql)
    defined = plan_statement(syntax, context.planner.reader(), defined=True)
    assert isinstance(defined, CreateTable), defined
    return replace(defined, retain_ms=plan.retain_ms)


def named_constraints(plan: CreateTable) -> list[tuple[str, bool]]:
    """Return the names of a table's constraints, and whether each has an index."""
    return [(each.name, isinstance(each, Unique)) for each in plan.constraints]


def create_view(context: StatementContext, plan: CreateView) -> Completed:
    """Run CREATE VIEW."""
    for notice in plan.notices:
        context.notice(notice)
    change = context.catalog_change()
    schema = schema_of(context, plan.name)
    old = _make_room(context, schema, plan, "view") if plan.or_replace else None
    try:
        change.check_name_free(schema, plan.name.item)
    except DuplicateTable as error:
        _skip(context, plan.if_not_exists, error)
        return Completed("CREATE VIEW")
    id = change.allot_item()
    item = change.create_item(
        id, "view", schema, plan.name.item, context.role.id, plan.sql, items_of(plan.depends_on)
    )
    if old is not None:
        _keep_comments(context, old, item, plan.query.desc.names)
    context.transaction.planned[id] = Planned(
        plan.query.desc, plan.query.relation, depends_on_zone=plan.depends_on_zone
    )
    return Completed("CREATE VIEW")


def create_materialized_view(context: StatementContext, plan: CreateMaterializedView) -> Completed:
    """Run CREATE MATERIALIZED VIEW."""
    refuse_system_inputs(plan.query.relation, "a materialized view")
    context.coordinator.compute.maintained.check_not_corrupt(sources_of(plan.query.relation))
    change = context.catalog_change()
    schema = schema_of(context, plan.name)
    cluster = _cluster(context, plan.cluster)
    refuse_reserved(plan.query.desc.names)
    old = _make_room(context, schema, plan, "materialized view") if plan.or_replace else None
    try:
        change.check_name_free(schema, plan.name.item)
    except DuplicateTable as error:
        _skip(context, plan.if_not_exists, error)
        return Completed("CREATE MATERIALIZED VIEW")
    since = 0
    if plan.as_of is not None:
        since = _beginning(context, sources_of(plan.query.relation), plan.as_of)
    id = change.allot_item()
    item = change.create_item(
        id,
        "materialized view",
        schema,
        plan.name.item,
        context.role.id,
        plan.sql,
        items_of(plan.depends_on),
        cluster=cluster.id,
        retain_ms=plan.retain_ms,
        since=since,
    )
    if old is not None:
        _keep_comments(context, old, item, plan.query.desc.names)
    context.transaction.planned[id] = Planned(plan.query.desc, plan.query.relation)
    return Completed("CREATE MATERIALIZED VIEW")


async def wait_for_start(context: StatementContext, plan: CreateMaterializedView) -> None:
    """Wait for the time at which a view is to begin, if that is to come.

    Raises ObjectNotInPrerequisiteState if what it reads is new in the transaction.
    """
    if plan.as_of is None:
        return
    ids = sources_of(plan.query.relation)
    if not ids <= context.coordinator.holds.collections.keys():
        raise ObjectNotInPrerequisiteState(
            "AS OF over relations that the same transaction has made is not possible",
            detail="They have no history yet.",
        )
    wanted = requested_time(context, plan.as_of, ())
    assert wanted is not None
    await wait_for_time(context, ids, wanted)


def _beginning(context: StatementContext, ids: frozenset[GlobalId], as_of: AsOf) -> Timestamp:
    """Return the time that AS OF names, at which `ids` are held until the transaction ends.

    AT LEAST is as far back as they can be read, but not before.
    """
    wanted = requested_time(context, as_of, ())
    assert wanted is not None
    holds = context.coordinator.holds
    chosen = choose(context, ids, wanted)
    time = chosen.time
    if wanted.at_least:
        time = max(timestamp_of(context, wanted.time), chosen.since)
    hold = holds.acquire(ids, time, "transaction", context.pid)
    context.transaction.holds.append(hold)
    return time


def create_index(context: StatementContext, plan: CreateIndex) -> Completed:
    """Run CREATE INDEX; without a name it gets one of relation and columns that is free."""
    change = context.catalog_change()
    if change.state.get(plan.on) is None:
        raise WrongObjectType("cannot create an index on a system relation", sqlstate="42501")
    on = change.state.item(plan.on)
    planned = context.planner.reader().planned[plan.on]
    if planned.definition is not None:
        refuse_system_inputs(planned.definition, "an index")
    made_of = frozenset({plan.on})
    if on.type == "view":
        assert planned.definition is not None, on
        made_of = sources_of(planned.definition)
    context.coordinator.compute.maintained.check_not_corrupt(made_of)
    schema = change.state.objects[on.schema]
    assert isinstance(schema, Schema), schema
    cluster = _cluster(context, plan.cluster)
    if plan.name is not None:
        name = plan.name
        try:
            change.check_name_free(schema, name)
        except DuplicateTable as error:
            _skip(context, plan.if_not_exists, error)
            return Completed("CREATE INDEX")
    else:
        parts = [
            planned.desc.names[key.index] if isinstance(key, Column) else "expr" for key in plan.key
        ]
        base = f"{on.name}_primary_idx" if plan.default else f"{'_'.join((on.name, *parts))}_idx"
        name = change.free_name(schema, base[:60])
    id = change.allot_item()
    change.create_item(
        id,
        "index",
        schema,
        name,
        context.role.id,
        plan.sql,
        (plan.on,),
        cluster=cluster.id,
        on=plan.on,
        retain_ms=plan.retain_ms,
    )
    context.transaction.planned[id] = Planned(planned.desc, key=plan.key)
    return Completed("CREATE INDEX")


def create_cluster(context: StatementContext, plan: CreateCluster) -> Completed:
    """Run CREATE CLUSTER."""
    replicas = plan.replicas
    managed = replicas is None
    if replicas is None:
        replicas = tuple((f"r{i + 1}", plan.size) for i in range(plan.replication_factor))
    for size in {plan.size, *(size for _, size in replicas)}:
        check_size(size)
    try:
        context.catalog_change().create_cluster(
            plan.name, context.role.id, plan.size, dict(plan.options), replicas, managed=managed
        )
    except DuplicateObject as error:
        _skip(context, plan.if_not_exists, error)
    return Completed("CREATE CLUSTER")


def create_cluster_replica(context: StatementContext, plan: CreateClusterReplica) -> Completed:
    """Run CREATE CLUSTER REPLICA."""
    change = context.catalog_change()
    cluster = change.state.cluster(plan.cluster)
    if cluster is None:
        raise UndefinedObject(f'unknown cluster "{plan.cluster}"')
    check_size(plan.size)
    change.create_replica(cluster, plan.name, context.role.id, plan.size, dict(plan.options))
    return Completed("CREATE CLUSTER REPLICA")


def _skip(
    context: StatementContext, if_not_exists: bool, error: DuplicateObject | Exception
) -> None:
    """Say that what IF NOT EXISTS asks for is there already, or raise."""
    if not if_not_exists:
        raise error
    context.notice(f"{error}, skipping", sqlstate=getattr(error, "sqlstate", "00000"))


def schema_of(context: StatementContext, name: Name) -> Schema:
    """Return the schema of a new item; that of temporary ones is made with the first of them."""
    if name.temporary and name.schema is not None:
        change = context.catalog_change()
        database = change.state.database(name.database or context.database)
        if database is None:
            raise InvalidCatalogName(f'database "{name.database}" does not exist')
        return change.temporary_schema(name.schema, database.id, context.role.id)
    reader = context.planner.reader()
    found = reader.schema(name.database or context.database, name.schema or "")
    if found is None:
        raise InvalidSchemaName(f'schema "{name.schema}" does not exist')
    return found


def _cluster(context: StatementContext, name: str | None) -> Cluster:
    state = context.planner.reader().state
    found = state.cluster(name if name is not None else context.cluster)
    if found is None:
        raise UndefinedObject(f'unknown cluster "{name or context.cluster}"')
    return found


def items_of(ids: frozenset[GlobalId]) -> frozenset[GlobalId]:
    """Return the ids that may be kept: those of builtins are good for one process only."""
    return frozenset(id for id in ids if not is_builtin(id))


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What CREATE OR REPLACE has replaced, and the names of its columns."""

    item: Item
    columns: tuple[str, ...]


def _make_room(
    context: StatementContext, schema: Schema, plan: CreateView | CreateMaterializedView, kind: str
) -> _Replaced | None:
    """Drop and return what CREATE OR REPLACE replaces; what others depend on stays."""
    change, name = context.catalog_change(), plan.name.item
    old = change.state.item_in(schema.id, name)
    if old is None:
        return None
    if old.type != kind:
        raise WrongObjectType(f'"{name}" is not a {kind}')
    others = [
        change.state.item(id)
        for id in change.state.dependents.get(old.id, frozenset())
        if change.state.item(id).on != old.id
    ]
    if old.id in plan.depends_on:
        raise InvalidObjectDefinition(f'infinite recursion detected in {kind} "{name}"')
    if others:
        raise DependentObjectsStillExist(
            f"cannot replace {kind} {name} because other objects depend on it",
            detail="\n".join(
                f"{each.kind} {each.name} depends on {kind} {name}"
                for each in sorted(others, key=lambda each: each.oid)
            ),
        )
    columns = context.planner.reader().planned[old.id].desc.names
    change.drop([old], cascade=False, describe=lambda e: e.name, noun=lambda e: e.name)
    return _Replaced(old, columns)


def _keep_comments(
    context: StatementContext, old: _Replaced, new: Item, columns: Sequence[str]
) -> None:
    """Let what was said of a replaced view, and of its columns that are still there, be kept."""
    change = context.catalog_change()
    change.comment(new, old.item.comment or None)
    for position, text in (old.item.column_comments or {}).items():
        name = old.columns[position - 1]
        if name in columns:
            present = change.state.item(new.id)
            change.comment_column(present, columns.index(name) + 1, text)
