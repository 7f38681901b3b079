"""DROP, ALTER ... RENAME and RETAIN HISTORY, SHOW CREATE: objects found by name and kind."""

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.definitions import definition_text
from foreshore.adapter.ddl.sequences import drop_default, refuse_parts
from foreshore.adapter.read.result import BatchSource, Selected
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.tables import take_to_alter
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Cluster, ColumnOf, Database, Item, Object, Replica, Schema
from foreshore.catalog.state import is_system
from foreshore.catalog.transaction import Dropped
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidSchemaName,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.ids import GlobalId
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import Drop, Name, ObjectKind, Rename, Retain, ShowCreate
from foreshore.sql.rewrite.full_names import dotted
from foreshore.text import format_text
from foreshore.types import INTERVAL

ARTICLES = {"index": "an index", "materialized view": "a materialized view"}


async def drop(context: StatementContext, plan: Drop) -> Completed:
    """Run DROP."""
    change = context.catalog_change()
    targets: list[Object] = []
    for name in plan.names:
        try:
            found = find(context, plan.kind, name)
        except DatabaseError as error:
            if not plan.if_exists or isinstance(error, WrongObjectType):
                raise
            context.notice(f"{error.message}, skipping")
            continue
        if isinstance(found, Database) and found.name == context.database:
            raise ObjectNotInPrerequisiteState(
                "cannot drop the currently open database", sqlstate="55006"
            )
        targets.append(found)
    refuse_parts(context, targets)
    dropped = change.drop(
        targets,
        cascade=plan.cascade,
        describe=lambda each: describe(context, each),
        noun=lambda each: describe(context, each),
        drop_default=lambda table, sequence: drop_default(context, table, sequence, plan.cascade),
    )
    await take_to_alter(context, _tables(dropped.objects))
    forget_dropped(context, dropped)
    return Completed(f"DROP {plan.kind.upper()}")


def _tables(objects: Iterable[Object | ColumnOf]) -> list[GlobalId]:
    return [each.id for each in objects if isinstance(each, Item) and each.type == "table"]


def forget_dropped(context: StatementContext, dropped: Dropped) -> None:
    """Let the transaction know nothing of what it has dropped, and the client what went along."""
    _forget(context, dropped)
    if len(dropped.cascaded) == 1:
        context.notice(f"drop cascades to {dropped.cascaded[0]}")
    elif dropped.cascaded:
        context.notice(
            f"drop cascades to {len(dropped.cascaded)} other objects",
            detail="\n".join(f"drop cascades to {each}" for each in dropped.cascaded),
        )


def drop_quietly(context: StatementContext, items: Sequence[Item]) -> None:
    """Drop items and all that depends on them, and tell the client nothing of it."""
    dropped = context.catalog_change().drop(
        items,
        cascade=True,
        describe=lambda each: each.name,
        noun=lambda each: each.name,
        drop_default=lambda table, sequence: drop_default(context, table, sequence, True),
    )
    _forget(context, dropped)


def _forget(context: StatementContext, dropped: Dropped) -> None:
    """Let the transaction write nothing to what it has dropped."""
    transaction = context.transaction
    for each in dropped.objects:
        if isinstance(each, Item):
            transaction.unwrite(each.id)
            transaction.planned.pop(each.id, None)


async def rename(context: StatementContext, plan: Rename) -> Completed:
    """Run ALTER ... RENAME TO; what depends on the object is bound to it and not to its name."""
    change = context.catalog_change()
    try:
        found = find(context, plan.kind, plan.name, altered=True)
    except DatabaseError as error:
        if not plan.if_exists or isinstance(error, WrongObjectType):
            raise
        context.notice(f"{error.message}, skipping")
        return Completed(f"ALTER {plan.kind.upper()}")
    if isinstance(found, Database) and found.name == context.database:
        raise FeatureNotSupported("current database cannot be renamed")
    await take_to_alter(context, _tables((found,)))
    change.rename(found, plan.to)
    return Completed(f"ALTER {plan.kind.upper()}")


def retain(context: StatementContext, plan: Retain) -> Completed:
    """Run ALTER ... SET (RETAIN HISTORY FOR ...)."""
    change = context.catalog_change()
    try:
        found = find(context, plan.kind, plan.name, altered=True)
    except DatabaseError as error:
        if not plan.if_exists or isinstance(error, WrongObjectType):
            raise
        context.notice(f"{error.message}, skipping")
    else:
        assert isinstance(found, Item), found
        change.retain(found, plan.retain_ms)
    return Completed(f"ALTER {plan.kind.upper()}")


def find(
    context: StatementContext, kind: ObjectKind, name: Name, *, altered: bool = False
) -> Object:
    """Return the object of `kind` that `name` names, which may be to be `altered`.

    Raises what PostgreSQL would.
    """
    change: CatalogTransaction = context.catalog_change()
    state = change.state
    found: Object | None
    match kind:
        case "database":
            found = state.database(name.item)
            if found is None:
                raise InvalidCatalogName(f'database "{name.item}" does not exist')
            return found
        case "schema":
            reader = context.planner.reader()
            found = reader.schema(name.database or context.database, name.item)
            if found is None:
                raise InvalidSchemaName(f'schema "{name.item}" does not exist')
            return found
        case "cluster":
            found = state.cluster(name.item)
            if found is None:
                raise UndefinedObject(f'unknown cluster "{name.item}"')
            return found
        case "cluster replica":
            cluster = state.cluster(name.schema or "")
            found = cluster and state.replica(cluster.id, name.item)
            if found is None:
                raise UndefinedObject(f'unknown cluster replica "{name.schema}.{name.item}"')
            return found
        case _:
            return _find_item(context, kind, name, altered=altered)


def _find_item(context: StatementContext, kind: ObjectKind, name: Name, *, altered: bool) -> Item:
    parts = tuple(part for part in (name.database, name.schema, name.item) if part is not None)
    found = context.planner.reader().find(parts)
    if found is None:
        if altered and kind != "subscription":
            raise UndefinedTable(f'relation "{name.item}" does not exist')
        if kind == "table":
            raise UndefinedTable(f'table "{name.item}" does not exist')
        code = "42704" if kind in ("index", "subscription") else "42P01"
        raise UndefinedObject(f'{kind} "{name.item}" does not exist', sqlstate=code)
    if isinstance(found, Builtin) or is_system(found.id):
        raise InsufficientPrivilege(f'permission denied: "{found.name}" is a system catalog')
    if found.type != kind:
        article = ARTICLES.get(kind, f"a {kind}")
        hints = {
            "table": "Use DROP TABLE to remove a table.",
            "view": "Use DROP VIEW to remove a view.",
            "index": "Use DROP INDEX to remove an index.",
            "sequence": "Use DROP SEQUENCE to remove a sequence.",
            "subscription": "Use DROP SUBSCRIPTION to remove a subscription.",
            "materialized view": "Use DROP MATERIALIZED VIEW to remove a materialized view.",
        }
        raise WrongObjectType(f'"{found.name}" is not {article}', hint=hints.get(found.type))
    return found


def describe(context: StatementContext, each: Object | ColumnOf) -> str:
    """Return what messages call the object: its kind and name, qualified where it has to be."""
    match each:
        case ColumnOf(name=name, table=table):
            return f"column {name} of {describe(context, table)}"
        case Item():
            reader = context.planner.reader()
            seen = reader.find((each.name,))
            if isinstance(seen, Item) and seen.id == each.id:
                return f"{each.kind} {each.name}"
            _, schema, item = reader.state.full_name(each)
            return f"{each.kind} {schema}.{item}"
        case Schema() | Database() | Cluster() | Replica():
            return f"{each.kind} {each.name}"
        case _:
            return f"role {each.name}"


def show_create(context: StatementContext, plan: ShowCreate) -> Selected:
    """Run SHOW CREATE."""
    found = find(context, plan.kind, plan.name)
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
