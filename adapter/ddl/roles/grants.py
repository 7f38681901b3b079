"""GRANT and REVOKE of rights on objects, and on all of a kind in a schema."""

from collections.abc import AsyncIterator, Iterable

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.functions import function_called
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.role_names import current_role, grantees_of, role_of
from foreshore.catalog import roles
from foreshore.catalog.granting import Giving, change_column_rights, change_rights
from foreshore.catalog.item import (
    Grantable,
    Item,
    Role,
)
from foreshore.catalog.names import with_article
from foreshore.errors import (
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidGrant,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.in_turns import in_turns
from foreshore.item_view import Name
from foreshore.sql.plan import GrantRights

_TABLES = ("table", "view", "materialized view", "sequence")
# The types of items that GRANT ... ON ALL ... IN SCHEMA means.
_ALL_IN_SCHEMA = {
    "table": ("table", "view", "materialized view"),
    "sequence": ("sequence",),
    "function": ("function",),
}


async def grant_rights(context: StatementContext, plan: GrantRights) -> Completed:
    """Run GRANT or REVOKE of rights."""
    tag = Completed("GRANT" if plan.grants else "REVOKE")
    actor = current_role(context.planner, context.role)
    if plan.granted_by is not None and role_of(context, plan.granted_by).id != actor.id:
        raise InvalidGrant("grantor must be current user", sqlstate="0A000")
    grantees = await grantees_of(context, plan.grantees)
    if plan.kind == "system":
        _on_system(context, plan, actor, grantees)
        return tag

    def warn(message: str, sqlstate: str) -> None:
        context.notice(message, severity="WARNING", sqlstate=sqlstate)

    giving = Giving(actor, plan.grants, grantees, plan.option, plan.cascade, warn)
    ids = dict.fromkeys([each.id async for each in _objects(context, plan)])
    async for id in in_turns(ids):
        await _change(context, giving, id, plan)
    return tag


async def _change(context: StatementContext, giving: Giving, id: str, plan: GrantRights) -> None:
    change = context.catalog_change()
    each = change.state.objects[id]
    assert isinstance(each, Grantable), each
    if plan.rights is not None:
        letters = plan.rights.letters
        change_rights(change, giving, each, letters, is_all=letters is None)
    async for column, rights in in_turns(plan.column_rights):
        item = change.state.item(id)
        columns = context.planner.reader().planned[item.id].desc.names
        change_column_rights(change, giving, item, columns, column, rights.letters)


def _on_system(
    context: StatementContext, plan: GrantRights, actor: Role, grantees: tuple[str, ...]
) -> None:
    """Run GRANT ... ON SYSTEM, which sets attributes of roles."""
    attributes = dict.fromkeys(plan.attributes, plan.grants)
    for id in grantees:
        if not id:
            raise FeatureNotSupported("GRANT ... ON SYSTEM TO PUBLIC is not supported")
        role = roles.role_with(context.planner.state, id)
        roles.alter_role(context.catalog_change(), actor, role, attributes, replicates=False)


async def _objects(context: StatementContext, plan: GrantRights) -> AsyncIterator[Grantable]:
    """Yield the objects that GRANT names."""
    if plan.in_schemas:
        schemas = [
            _object(context.planner, "schema", name).id async for name in in_turns(plan.names)
        ]
        async for item in in_turns(_all_in(context.planner, schemas, plan.kind)):
            yield item
    elif plan.kind == "function":
        async for parts, types in in_turns(plan.functions):
            found = function_called(context.planner, context.notice, parts, types, if_exists=False)
            assert found is not None
            yield found
    else:
        async for name in in_turns(plan.names):
            yield _object(context.planner, plan.kind, name)


def _all_in(planner: Planner, schemas: Iterable[str], kind: str) -> Iterable[Item]:
    """Return what GRANT ... ON ALL ... IN SCHEMA means."""
    found, types = frozenset(schemas), _ALL_IN_SCHEMA[kind]
    items = planner.state.all(Item)
    return (each for each in items if each.schema in found and each.type in types)


def _object(planner: Planner, kind: str, name: Name) -> Grantable:
    reader = planner.reader()
    if kind in ("table", "sequence"):
        return _relation(planner, kind, name)
    found = reader.object_called(kind, name.parts)
    assert isinstance(found, Grantable), found
    return found


def _relation(planner: Planner, kind: str, name: Name) -> Item:
    reader = planner.reader()
    found = reader.find(name.parts)
    if found is None and reader.find_key(name.parts) is not None:
        raise WrongObjectType(f'"{name.item}" is an index')
    if found is None:
        raise UndefinedTable(f'relation "{name.parts[-1]}" does not exist')
    if not isinstance(found, Item):
        raise InsufficientPrivilege(f'permission denied: "{found.name}" is a system catalog')
    if found.type == "index":
        raise WrongObjectType(f'"{found.name}" is an index')
    if found.type not in _TABLES or (kind == "sequence" and found.type != kind):
        raise WrongObjectType(f'"{found.name}" is not {with_article(kind)}')
    return found
