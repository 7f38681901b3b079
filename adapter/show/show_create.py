"""SHOW CREATE: an object's statement, with the present names of all objects in it."""

import pyarrow as pa

from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.definitions.plan_items import definition_text
from foreshore.adapter.show.connections import connection_text
from foreshore.adapter.show.metrics import metric_text
from foreshore.adapter.show.sinks import sink_text
from foreshore.adapter.show.sources import source_text
from foreshore.adapter.show.stored_options import options_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.catalog.item import Cluster, Connection, Item, Replica
from foreshore.catalog.role_names import role_name
from foreshore.catalog.state import State
from foreshore.foreign_key import ForeignKey, rule_text
from foreshore.redaction import without_literals
from foreshore.sql.bind.definitions.watermark import watermark_text
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import ShowCreate
from foreshore.sql.rewrite import statement_heads
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.object_options import with_clause


def show_create(context: StatementContext, plan: ShowCreate) -> Selected:
    """Run SHOW CREATE."""
    reader = context.planner.reader()
    found = reader.object_called(plan.kind, plan.name.parts)
    name = found.name
    match found:
        case Item():
            name, sql = ".".join(reader.state.full_name(found)), item_statement(reader, found)
        case Cluster():
            sql = cluster_statement(reader.state, found)
        case Replica(size=size, options=options):
            cluster = reader.state.objects[found.cluster].name
            sql = statement_heads.create_replica(cluster, name, size, options.get("address"))
            name = f"{cluster}.{name}"
        case Connection():
            sql = connection_text(reader.state, found)
        case _:
            sql = f"CREATE {found.kind.upper()} {quote_identifier(name)}"
    if plan.redacted:
        sql = without_literals(sql, shown_as="'<REDACTED>'")
    columns = [pa.array([text], pa.string()) for text in (name, sql)]
    rows = pa.RecordBatch.from_arrays(columns, names=["c0", "c1"])
    return Selected(plan.desc, BatchSource(rows), "SHOW")


def cluster_statement(state: State, cluster: Cluster) -> str:
    """Return the statement that creates a cluster."""
    if not cluster.managed and (present := state.replicas_of(cluster.id)):
        listed = ((each.name, each.size) for each in present)
        return statement_heads.create_unmanaged_cluster(cluster.name, listed)
    return statement_heads.create_cluster(
        cluster.name, cluster.size, cluster.replication_factor, cluster.options, cluster.burst
    )


def item_statement(reader: SessionCatalog, item: Item, *, with_foreign_keys: bool = True) -> str:
    """Return the statement that creates an item, with the present names of all objects in it."""
    state = reader.state
    if item.feed:
        return source_text(state, reader.planned, item)
    if item.sink:
        return sink_text(state, reader.planned, item, item.sink)
    if item.metric:
        return metric_text(state, reader.planned, item, item.metric)
    sql = definition_text(state, reader.planned, item)
    if item.policy:
        roles = sorted(role_name(state, role) for role in item.policy.roles)
        command, permissive = item.policy.command, item.policy.permissive
        return statement_heads.with_policy(sql, command, roles, permissive=permissive)
    if item.security_invoker:
        sql = statement_heads.with_security_invoker(sql)
    mark = reader.planned[item.id].desc.watermark if item.type == "table" else None
    if mark is not None:
        names = reader.planned[item.id].desc.names
        sql = sql.replace(watermark_text(mark, names), watermark_text(mark, names, shown=True), 1)
    if item.type == "table":
        sql = sql.removesuffix(statement_heads.APPEND_ONLY)
    options = with_clause(options_of(item, reader.planned[item.id].desc))
    name = quote_identifier(item.name)
    cluster = "" if item.cluster is None else state.objects[item.cluster].name
    if item.type == "index":
        return statement_heads.index_in_cluster(sql, name, cluster) + options
    if item.temporary:
        on_commit = f" ON COMMIT {item.on_commit.upper()}" if item.on_commit else ""
        return statement_heads.with_temporary_name(sql, name) + options + on_commit
    name = dotted(state.full_name(item))
    if item.type == "materialized view":
        return statement_heads.materialized_view_in_cluster(sql, name, cluster, options)
    if item.foreign_keys and with_foreign_keys:
        keys = [foreign_key_text(reader, key) for key in item.foreign_keys]
        sql = f"{sql.removesuffix(')')}, {', '.join(keys)})"
    return statement_heads.with_name(sql, name) + options


def foreign_key_text(reader: SessionCatalog, key: ForeignKey) -> str:
    """Return a foreign key as a constraint of its table."""
    state = reader.state
    other = dotted(state.full_name(state.item(key.references)))
    columns = (key.columns, key.referenced, key.delete_columns)
    rule = rule_text(key, other, [[*map(quote_identifier, each)] for each in columns])
    return f"CONSTRAINT {quote_identifier(key.name)} {rule}"
