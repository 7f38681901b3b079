"""Find the objects that DDL statements name, and add new ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from foreshore import blocking
from foreshore.adapter.definitions.plan_items import ITEM_TYPES, Defining, planned_as
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.item import Item, Object, Schema
from foreshore.errors import (
    DatabaseError,
    DuplicateDatabase,
    DuplicateObject,
    DuplicateSchema,
    DuplicateTable,
    InvalidCatalogName,
    InvalidSchemaName,
    WrongObjectType,
)
from foreshore.ids import GlobalId, is_builtin
from foreshore.item_view import Name
from foreshore.session_limits import check_room
from foreshore.sql.plan import CreateTable, Drop, ObjectKind

P = ParamSpec("P")
R = TypeVar("R")


FEW_NAMES = 64  # that are looked up on the event loop


async def look_up(
    names: Sequence[Name], work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Return what `work` gives, which looks up `names`: on a thread if they are many."""
    if len(names) <= FEW_NAMES:
        return work(*args, **kwargs)
    return await blocking.run(None, work, *args, **kwargs)


async def find_all(context: StatementContext, plan: Drop) -> list[Object]:
    """Return the objects that DROP names, with a notice for each that may be missing and is."""
    return await look_up(plan.names, _find_all, context, plan)


def _find_all(context: StatementContext, plan: Drop) -> list[Object]:
    found = (
        find_if_exists(
            context.planner,
            context.notice,
            plan.kind,
            name,
            if_exists=plan.if_exists,
            altered=False,
        )
        for name in plan.names
    )
    return [each for each in found if each is not None]


def find_if_exists(
    planner: Planner,
    notice: Notices,
    kind: ObjectKind,
    name: Name,
    *,
    if_exists: bool,
    altered: bool,
) -> Object | None:
    """Return the object called `name`, or None, with a notice, if `if_exists` allows that."""
    try:
        return planner.reader().object_called(kind, name.parts, altered=altered)
    except DatabaseError as error:
        if not if_exists or isinstance(error, WrongObjectType):
            raise
        notice(f"{error.message}, skipping")
        return None


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


def is_taken(context: StatementContext, name: Name, *, if_not_exists: bool) -> bool:
    """Return whether the name of a new relation is taken; raise if that is not allowed."""
    return is_taken_in(context, schema_of(context, name), name.item, if_not_exists=if_not_exists)


def is_taken_in(
    context: StatementContext, schema: Schema, name: str, *, if_not_exists: bool
) -> bool:
    """Return whether a relation of `schema` has that name; raise if that is not allowed."""
    with skip_existing(context, if_not_exists):
        context.catalog_change().check_name_free(schema, name)
        return False
    return True


def schema_of(context: StatementContext, name: Name) -> Schema:
    """Return the schema of a new item; a session's temporary schema is created if necessary."""
    if name.temporary and name.schema is not None:
        has = len(context.planner.state.temporary_items(context.temporary_schema))
        check_room(context.variables, "max_temporary_objects", has, "temporary objects")
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
        depends_on = (*plan.depends_on, *depends_on)
    item = change.create_item(
        id or change.allot_item(),
        ITEM_TYPES[type(plan)],
        schema,
        name,
        context.role.id,
        plan.sql,
        [each for each in depends_on if not is_builtin(each)],  # ids of builtins are not durable
        **fields,
    )
    context.catalog_change().planned[item.id] = planned_as(plan, context.planner.reader().planned)
    return item
