"""Objects by the names that DDL statements give them: find, describe and add them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from foreshore.adapter.ddl.definitions import ITEM_TYPES, Defining, planned_as
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import ColumnOf, Item, Object, Schema
from foreshore.catalog.state import is_system
from foreshore.errors import (
    DatabaseError,
    DuplicateDatabase,
    DuplicateObject,
    DuplicateSchema,
    DuplicateTable,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidSchemaName,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.plan import CreateTable, Name, ObjectKind

_CODES = {"index": "42704", "subscription": "42704"}


def with_article(kind: str) -> str:
    """Return a kind of object with its indefinite article."""
    return f"{'an' if kind == 'index' else 'a'} {kind}"


def parts_of(name: Name) -> tuple[str, ...]:
    """Return the parts of a name that are given."""
    return tuple(part for part in (name.database, name.schema, name.item) if part is not None)


def find(
    context: StatementContext, kind: ObjectKind, name: Name, *, altered: bool = False
) -> Object:
    """Return the object of `kind` called `name`.

    Raises PostgreSQL's errors, which are other ones for statements that alter it.
    """
    state, database = context.catalog_change().state, name.database or context.database
    match kind:
        case "database":
            if found := state.database(name.item):
                return found
            raise InvalidCatalogName(f'database "{name.item}" does not exist')
        case "schema":
            if schema := context.planner.reader().schema(database, name.item):
                return schema
            raise InvalidSchemaName(f'schema "{name.item}" does not exist')
        case "cluster":
            if cluster := state.cluster(name.item):
                return cluster
            raise UndefinedObject(f'unknown cluster "{name.item}"')
        case "cluster replica":
            cluster = state.cluster(name.schema or "")
            if cluster and (replica := state.replica(cluster.id, name.item)):
                return replica
            raise UndefinedObject(f'unknown cluster replica "{name.schema}.{name.item}"')
        case _:
            return _find_item(context, kind, name, altered=altered)


def _find_item(context: StatementContext, kind: ObjectKind, name: Name, *, altered: bool) -> Item:
    found = context.planner.reader().find(parts_of(name))
    if found is None:
        if altered and kind != "subscription":
            raise UndefinedTable(f'relation "{name.item}" does not exist')
        code = _CODES.get(kind, "42P01")
        raise UndefinedObject(f'{kind} "{name.item}" does not exist', sqlstate=code)
    if isinstance(found, Builtin) or is_system(found.id):
        raise InsufficientPrivilege(f'permission denied: "{found.name}" is a system catalog')
    if found.type != kind:
        raise WrongObjectType(
            f'"{found.name}" is not {with_article(kind)}',
            hint=f"Use DROP {found.type.upper()} to remove {with_article(found.type)}.",
        )
    return found


def find_if_exists(
    context: StatementContext, kind: ObjectKind, name: Name, *, if_exists: bool, altered: bool
) -> Object | None:
    """Return the object called `name`, or None, with a notice, if `if_exists` allows that."""
    try:
        return find(context, kind, name, altered=altered)
    except DatabaseError as error:
        if not if_exists or isinstance(error, WrongObjectType):
            raise
        context.notice(f"{error.message}, skipping")
        return None


def describe(context: StatementContext, each: Object | ColumnOf) -> str:
    """Return an object's kind and name as in messages, qualified if the path does not find it."""
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
        case _:
            return f"{each.kind} {each.name}"


# --- new objects ---------------------------------------------------------------------------


@contextmanager
def skip_existing(context: StatementContext, if_not_exists: bool) -> Iterator[None]:
    """Turn the error of the body about an existing object into a notice, if `if_not_exists`."""
    try:
        yield
    except (DuplicateDatabase, DuplicateObject, DuplicateSchema, DuplicateTable) as error:
        if not if_not_exists:
            raise
        context.notice(f"{error}, skipping", sqlstate=error.sqlstate)


def is_there(context: StatementContext, name: Name, *, if_not_exists: bool) -> bool:
    """Return whether the name of a new relation is taken; raise if that is not allowed."""
    return is_there_in(context, schema_of(context, name), name.item, if_not_exists=if_not_exists)


def is_there_in(
    context: StatementContext, schema: Schema, name: str, *, if_not_exists: bool
) -> bool:
    """Return whether a relation of `schema` has that name; raise if that is not allowed."""
    with skip_existing(context, if_not_exists):
        context.catalog_change().check_name_free(schema, name)
        return False
    return True


def schema_of(context: StatementContext, name: Name) -> Schema:
    """Return the schema of a new item; the first temporary one of a session makes its schema."""
    if name.temporary and name.schema is not None:
        change = context.catalog_change()
        database = change.state.database(name.database or context.database)
        if database is None:
            raise InvalidCatalogName(f'database "{name.database}" does not exist')
        return change.temporary_schema(name.schema, database.id, context.role.id)
    found = context.planner.reader().schema(name.database or context.database, name.schema or "")
    if found is None:
        raise InvalidSchemaName(f'schema "{name.schema}" does not exist')
    return found


def add_item(
    context: StatementContext,
    plan: Defining,
    schema: Schema,
    name: str,
    depends_on: Iterable[GlobalId] = (),
    *,
    id: GlobalId | None = None,
    **fields: Any,
) -> Item:
    """Return a new item in the transaction's catalog; `fields` are options of `create_item`."""
    change = context.catalog_change()
    if isinstance(plan, CreateTable):
        depends_on = plan.depends_on
    item = change.create_item(
        id or change.allot_item(),
        ITEM_TYPES[type(plan)],
        schema,
        name,
        context.role.id,
        plan.sql,
        [each for each in depends_on if not is_builtin(each)],  # whose ids are of one process
        **fields,
    )
    context.catalog_change().planned[item.id] = planned_as(plan, context.planner.reader().planned)
    return item
