"""SHOW CREATE: an object's statement, with the names that it and all others have now."""

import re

import pyarrow as pa

from foreshore.adapter.ddl.definitions import definition_text
from foreshore.adapter.read.result import BatchSource, Selected
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.item import Cluster, Item, Replica
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import ShowCreate
from foreshore.sql.rewrite.full_names import dotted
from foreshore.text import format_text
from foreshore.types import INTERVAL


def show_create(context: StatementContext, plan: ShowCreate) -> Selected:
    """Run SHOW CREATE."""
    found = context.planner.reader().object_called(plan.kind, plan.name.parts)
    match found:
        case Item():
            name = ".".join(context.planner.reader().state.full_name(found))
            sql = present_sql(context, found)
        case Cluster():
            name = found.name
            sql = (
                f"CREATE CLUSTER {quote_identifier(found.name)} (SIZE = '{found.size}', "
                f"REPLICATION FACTOR = {found.replication_factor}{_tick_interval(found)})"
            )
        case Replica():
            cluster = context.planner.reader().state.objects[found.cluster]
            name = f"{cluster.name}.{found.name}"
            address = found.options.get("address")
            at = f", ADDRESS = '{address}'" if address else ""
            sql = (
                f"CREATE CLUSTER REPLICA {quote_identifier(cluster.name)}."
                f"{quote_identifier(found.name)} (SIZE = '{found.size}'{at})"
            )
        case _:
            name = found.name
            sql = f"CREATE {found.kind.upper()} {quote_identifier(found.name)}"
    rows = pa.RecordBatch.from_arrays(
        [pa.array([name], pa.string()), pa.array([sql], pa.string())], names=["c0", "c1"]
    )
    return Selected(plan.desc, BatchSource(rows), "SHOW")


def _tick_interval(cluster: Cluster) -> str:
    milliseconds = cluster.options.get("tick_interval_ms")
    return "" if milliseconds is None else f", TICK INTERVAL = '{milliseconds}ms'"


# How an item's statement begins, in the one form in which the planner writes it.
_NAME = r'(?:"(?:[^"]|"")*"|[^\s".,()]+)'
_FULL_NAME = rf"{_NAME}(?:\.{_NAME}){{2}}"
_HEAD = re.compile(rf"\A(?P<create>CREATE (?P<kind>TABLE|VIEW|SEQUENCE|SUBSCRIPTION)) {_FULL_NAME}")
_MATERIALIZED_HEAD = re.compile(
    rf"\A(?P<create>CREATE MATERIALIZED VIEW) {_FULL_NAME}"
    rf"(?P<columns>(?: \({_NAME}(?:, {_NAME})*\))?)(?: IN CLUSTER {_NAME})? AS "
)
_INDEX_HEAD = re.compile(
    rf"\A(?P<create>CREATE (?:DEFAULT )?INDEX)(?: (?!ON |IN ){_NAME})?(?: IN CLUSTER {_NAME})? ON "
)


def present_sql(context: StatementContext, item: Item) -> str:
    """Return the item's statement with the names that it and all others have now."""
    reader = context.planner.reader()
    state = reader.state
    sql = definition_text(state, reader.planned, item)
    cluster = options = ""
    if item.cluster is not None:
        cluster = f" IN CLUSTER {quote_identifier(state.objects[item.cluster].name)}"
    if item.retain_ms:
        span = format_text((0, 0, item.retain_ms * 1000), INTERVAL)
        options = f" WITH (RETAIN HISTORY FOR '{span}')"
    if item.kind == "index":
        name = quote_identifier(item.name)
        sql = _INDEX_HEAD.sub(lambda m: f"{m['create']} {name}{cluster} ON ", sql, count=1)
        return sql + options
    name = dotted(state.full_name(item))
    if item.temporary:
        name = quote_identifier(item.name)
        on_commit = f" ON COMMIT {item.on_commit.upper()}" if item.on_commit else ""
        return (
            _HEAD.sub(lambda m: f"CREATE TEMPORARY {m['kind']} {name}", sql, count=1)
            + options
            + on_commit
        )
    if item.kind == "materialized view":
        return _MATERIALIZED_HEAD.sub(
            lambda m: f"{m['create']} {name}{m['columns']}{cluster}{options} AS ", sql, count=1
        )
    return _HEAD.sub(lambda m: f"{m['create']} {name}", sql, count=1) + options
