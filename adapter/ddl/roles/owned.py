"""DROP OWNED and REASSIGN OWNED."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects, notify_cascaded
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import current_role, refuse_public, role_of, roles_of
from foreshore.adapter.write.target import lock_to_alter
from foreshore.catalog.item import (
    FIRST_ROLE_ID,
    Grantable,
    Item,
    NetworkPolicy,
    Object,
    Role,
    Schema,
)
from foreshore.catalog.owned import database_of, is_part, without_rights_of
from foreshore.catalog.policies import without_role
from foreshore.catalog.predefined import is_predefined
from foreshore.catalog.rights import owns
from foreshore.errors import DependentObjectsStillExist, InsufficientPrivilege
from foreshore.in_turns import in_turns
from foreshore.sql.plan import ChangeOwned


async def change_owned(context: StatementContext, plan: ChangeOwned) -> Completed:
    """Run DROP OWNED or REASSIGN OWNED."""
    actor, state = current_role(context.planner, context.role), context.planner.state
    async for name in in_turns((*plan.roles, *((plan.to,) if plan.to is not None else ()))):
        refuse_public(name)
    roles = await roles_of(context, plan.roles)
    verb = "drop objects" if plan.kind == "drop" else "reassign objects"
    new = None if plan.to is None else role_of(context, plan.to)
    for role in (*roles, *((new,) if new is not None else ())):
        if not owns(state, actor, role.id):
            raise InsufficientPrivilege(f"permission denied to {verb}")
    for role in roles:
        if role.id == FIRST_ROLE_ID or is_predefined(role.id):
            what = "drop objects" if plan.kind == "drop" else "reassign ownership of objects"
            raise DependentObjectsStillExist(
                f"cannot {what} owned by role {role.name} because they are required by the "
                "database system"
            )
    if new is None:
        await _drop(context, roles, cascade=plan.cascade)
        return Completed("DROP OWNED")
    await _reassign(context, roles, new)
    return Completed("REASSIGN OWNED")


async def _drop(context: StatementContext, roles: list[Role], *, cascade: bool) -> None:
    ids = {role.id for role in roles}
    targets = [
        each
        async for each in in_turns(context.planner.state.objects.values())
        if isinstance(each, Schema | Item)
        and each.owner in ids
        and not is_part(context.planner.state, each)
        and not _is_temporary_schema(each)
        and database_of(context.planner.state, each) == context.database
    ]
    dropped = drop_objects(context, targets, cascade=cascade)
    tables = [each.id for each in targets if isinstance(each, Item) and each.type == "table"]
    await lock_to_alter(context, tables)
    notify_cascaded(context.notice, dropped)
    change = context.catalog_change()
    async for role in in_turns(roles):
        without_rights_of(change, role, context.database)
        drop_objects(context, without_role(change, role, context.database), cascade=False)


def _is_temporary_schema(each: Object) -> bool:
    return isinstance(each, Schema) and each.temporary


async def _reassign(context: StatementContext, roles: list[Role], new: Role) -> None:
    state, change = context.planner.state, context.catalog_change()
    ids = {role.id for role in roles}
    async for each in in_turns(list(state.objects.values())):
        if not isinstance(each, Grantable | NetworkPolicy):
            continue
        if each.owner not in ids or is_part(state, each) or _is_temporary_schema(each):
            continue
        if database_of(state, each) not in (None, context.database):
            continue
        if isinstance(each, Item) and each.type == "table":
            await lock_to_alter(context, [each.id])
        change.set_owner(change.state.objects[each.id], new)
