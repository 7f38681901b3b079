"""COMMENT ON: comments are part of their objects in the catalog."""

from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.comments import comment_column, comment_constraint
from foreshore.catalog.item import Item
from foreshore.catalog.names import with_article
from foreshore.catalog.roles import may_create_roles
from foreshore.errors import (
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidSchemaName,
    UndefinedObject,
    WrongObjectType,
)
from foreshore.item_view import Name
from foreshore.sql.plan import Comment


def comment(context: StatementContext, plan: Comment) -> Completed:
    """Run COMMENT ON."""
    change, reader = context.catalog_change(), context.planner.reader()
    match plan.kind:
        case "column":
            assert plan.column is not None, plan
            item = _item(context, plan.name)
            columns = reader.planned[item.id].desc.names
            comment_column(change, item, columns, plan.column, plan.text)
        case "constraint":
            item = _item(context, plan.name)
            named = {each.name: each.oid for each in item.constraints}
            named |= {each.name: each.oid for each in item.foreign_keys or ()}
            oid = named.get(plan.column or "")
            if oid is None:
                raise UndefinedObject(
                    f'constraint "{plan.column}" for table "{item.name}" does not exist'
                )
            comment_constraint(change, item, oid, plan.text)
        case "table" | "view" | "materialized view" | "index":
            if plan.kind == "index" and reader.find_key(plan.name.parts) is not None:
                raise FeatureNotSupported("COMMENT ON the index of a key is not supported")
            item = _item(context, plan.name)
            if item.type != plan.kind:
                raise WrongObjectType(f'"{item.name}" is not {with_article(plan.kind)}')
            change.comment(item, plan.text)
        case "role":
            role = change.state.role(plan.name.item)
            if role is None:
                raise UndefinedObject(f'role "{plan.name.item}" does not exist')
            if role.superuser and not context.role.superuser:
                raise InsufficientPrivilege("must be superuser")
            if not may_create_roles(context.role):
                raise InsufficientPrivilege("must have CREATEROLE privilege")
            change.comment(role, plan.text)
        case "database":
            try:
                change.comment(reader.object_called(plan.kind, plan.name.parts), plan.text)
            except InvalidCatalogName as error:
                # As in PostgreSQL, so that a dump can be restored into a database of another name.
                context.notice(error.message, severity="WARNING", sqlstate=error.sqlstate)
        case _:
            change.comment(reader.object_called(plan.kind, plan.name.parts), plan.text)
    return Completed("COMMENT")


def _item(context: StatementContext, name: Name) -> Item:
    reader = context.planner.reader()
    if name.schema is not None and not reader.schema(
        name.database or context.database, name.schema
    ):
        raise InvalidSchemaName(f'schema "{name.schema}" does not exist')
    found = reader.resolve_item(name.parts)
    if found.kind == "builtin":
        raise InsufficientPrivilege(f'permission denied: "{found.name.item}" is a system catalog')
    return context.catalog_change().state.item(found.id)
