"""ALTER DEFAULT PRIVILEGES."""

from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import current_role, grantees_of, roles_of
from foreshore.catalog.default_rights import changed_defaults
from foreshore.catalog.granting import Giving
from foreshore.catalog.item import Role
from foreshore.catalog.rights import is_member
from foreshore.catalog.roles import check_not_predefined, role_with
from foreshore.errors import InsufficientPrivilege, InvalidGrant, InvalidSchemaName
from foreshore.in_turns import in_turns
from foreshore.privileges import RIGHTS
from foreshore.sql.plan import AlterDefaultRights


async def alter_default_rights(context: StatementContext, plan: AlterDefaultRights) -> Completed:
    """Run ALTER DEFAULT PRIVILEGES."""
    actor = current_role(context.planner, context.role)
    grantees = await grantees_of(context, plan.grantees)
    giving = Giving(
        actor, plan.grants, grantees, plan.option, plan.cascade, lambda message, sqlstate: None
    )
    if plan.schemas and plan.kind == "schema":
        raise InvalidGrant("cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS")
    if plan.kind not in ("table", "sequence", "function", "type", "schema"):
        raise InvalidGrant(f"default privileges cannot be set for {plan.kind}s")
    roles = await roles_of(context, plan.roles) or [actor]
    async for role in in_turns(roles):
        check_not_predefined(role)
        if not is_member(context.planner.state, actor, role.id):
            raise InsufficientPrivilege(f'must be member of role "{role.name}"')
    schemas = await _schemas(context, plan) or [None]
    for role in roles:
        async for schema in in_turns(schemas):
            _change(context, giving, role.id, plan, schema)
    return Completed("ALTER DEFAULT PRIVILEGES")


async def _schemas(context: StatementContext, plan: AlterDefaultRights) -> list[str | None]:
    """Return the ids of the schemas that the statement names, each once."""
    found: dict[str | None, None] = {}
    async for name in in_turns(plan.schemas):
        schema = context.planner.reader().schema(context.database, name.item)
        if schema is None:
            raise InvalidSchemaName(f'schema "{name.item}" does not exist')
        found[schema.id] = None
    return list(found)


def _change(
    context: StatementContext,
    giving: Giving,
    id: str,
    plan: AlterDefaultRights,
    schema: str | None,
) -> None:
    change = context.catalog_change()
    role: Role = role_with(change.state, id)
    rights = plan.rights.on(RIGHTS[plan.kind])
    changed = changed_defaults(
        change.state,
        role,
        plan.kind,
        schema,
        lambda grants: giving.applied(grants, id, id, rights),
        lambda: change.allot("oid"),
    )
    change.put(changed)
