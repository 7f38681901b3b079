"""CREATE, ALTER and DROP ROLE, and GRANT of memberships."""

import re
from functools import partial
from typing import Any

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.role_names import (
    current_role,
    refuse_public,
    role_of,
    roles_of,
    warn,
)
from foreshore.catalog import roles
from foreshore.catalog.item import FIRST_ROLE_ID, Item, Role
from foreshore.catalog.owned import describe_uses
from foreshore.catalog.predefined import is_predefined
from foreshore.errors import (
    DependentObjectsStillExist,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidParameterValue,
    ObjectInUse,
)
from foreshore.in_turns import in_turns
from foreshore.role_options import RoleName, RoleOptions
from foreshore.scram import Verifier
from foreshore.sql.plan import AlterRole, CreateRole, DropRole, GrantRoles, RenameRole

_MD5 = re.compile(r"md5[0-9a-f]{32}")
_COPIED = (
    "superuser",
    "create_db",
    "create_role",
    "create_cluster",
    "create_network_policy",
    "inherit",
    "login",
    "bypass_rls",
    "connection_limit",
)


async def create_role(context: StatementContext, plan: CreateRole) -> Completed:
    """Run CREATE ROLE."""
    actor, change = current_role(context.planner, context.role), context.catalog_change()
    attributes = await _attributes(context.notice, plan.options, plan.valid_until)
    replicates = bool(plan.options.replication)
    role = roles.create_role(change, actor, plan.name, attributes, replicates=replicates)
    async for each in in_turns(await roles_of(context, plan.in_roles)):
        _admit(context, actor, each, role, admin=False)
    async for each in in_turns(await roles_of(context, plan.admins)):
        _admit(context, actor, role, each, admin=True)
    async for each in in_turns(await roles_of(context, plan.members)):
        _admit(context, actor, role, each, admin=False)
    return Completed("CREATE ROLE")


async def alter_role(context: StatementContext, plan: AlterRole) -> Completed:
    """Run ALTER ROLE with attributes."""
    refuse_public(plan.role)
    role = role_of(context, plan.role)
    attributes = await _attributes(context.notice, plan.options, plan.valid_until)
    replicates = plan.options.replication is not None
    change = context.catalog_change()
    roles.alter_role(
        change, current_role(context.planner, context.role), role, attributes, replicates=replicates
    )
    return Completed("ALTER ROLE")


async def _attributes(
    notice: Notices, options: RoleOptions, valid_until: int | None
) -> dict[str, Any]:
    """Return the attributes of a role that statements give."""
    found = {name: each for name in _COPIED if (each := getattr(options, name)) is not None}
    if options.valid_until is not None:
        found["valid_until"] = valid_until
    if options.password is not None:
        found["verifier"] = await _verifier(notice, options.password.secret)
    return found


async def _verifier(notice: Notices, secret: str | None) -> str | None:
    """Return the verifier to keep for a password, or for a verifier itself; None: no password."""
    if secret == "":
        notice("empty string is not a valid password, clearing password")
    if not secret:
        return None
    if _MD5.fullmatch(secret):
        raise FeatureNotSupported(
            "MD5 verifiers are not supported",
            hint="Give the password itself, or a SCRAM-SHA-256 verifier.",
        )
    if (known := Verifier.parse(secret)) is not None:
        return str(known)
    return str(await blocking.run(None, Verifier.of, secret))


def rename_role(context: StatementContext, plan: RenameRole) -> Completed:
    """Run ALTER ROLE ... RENAME TO."""
    change, actor = context.catalog_change(), current_role(context.planner, context.role)
    role = roles.role_called(context.planner.state, plan.name)
    if role.id == actor.id:
        raise FeatureNotSupported("current user cannot be renamed")
    roles.rename_role(change, actor, role, plan.to)
    return Completed("ALTER ROLE")


async def drop_role(context: StatementContext, plan: DropRole) -> Completed:
    """Run DROP ROLE."""
    actor = current_role(context.planner, context.role)
    if not roles.may_create_roles(actor):
        raise InsufficientPrivilege("permission denied to drop role")
    found: dict[str, Role] = {}
    async for name in in_turns(plan.roles):
        if name.means != "named":
            raise InvalidParameterValue("cannot use special role specifier in DROP ROLE")
        role = context.planner.state.role(name.name)
        if role is None and plan.if_exists:
            context.notice(f'role "{name.name}" does not exist, skipping')
            continue
        role = roles.role_called(context.planner.state, name.name)
        _check_droppable(context, actor, role)
        found[role.id] = role
    async for role in in_turns(found.values()):
        uses = _uses(context.planner, context.database, role)
        if uses:
            raise DependentObjectsStillExist(
                f'role "{role.name}" cannot be dropped because some objects depend on it',
                detail="\n".join(uses),
            )
        roles.forget_role(context.catalog_change(), role)
    return Completed("DROP ROLE")


def _uses(planner: Planner, database: str, role: Role) -> list[str]:
    reader = planner.reader()

    def column(item: Item, position: int) -> str:
        return reader.planned[item.id].desc.names[position - 1]

    return describe_uses(reader.state, role, database, reader.describe, column)


def _check_droppable(context: StatementContext, actor: Role, role: Role) -> None:
    if role.id == actor.id:
        raise ObjectInUse("current user cannot be dropped")
    if role.superuser and not actor.superuser:
        raise InsufficientPrivilege("must be superuser to drop superusers")
    if role.id == FIRST_ROLE_ID or is_predefined(role.id):
        raise DependentObjectsStillExist(
            f"cannot drop role {role.name} because it is required by the database system"
        )


# --- memberships ---------------------------------------------------------------------------------


async def grant_roles(context: StatementContext, plan: GrantRoles) -> Completed:
    """Run GRANT and REVOKE of memberships."""
    actor = current_role(context.planner, context.role)
    grantor = _grantor(context, actor, plan.granted_by)
    granted, members = await roles_of(context, plan.roles), await roles_of(context, plan.members)
    for role in granted:
        async for member in in_turns(members):
            if plan.grants:
                _admit(context, actor, role, member, admin=plan.option, grantor=grantor.id)
            else:
                roles.remove_member(
                    context.catalog_change(),
                    actor,
                    role,
                    member,
                    option_only=plan.option,
                    warn=partial(warn, context),
                )
    return Completed(plan.tag)


def _grantor(context: StatementContext, actor: Role, name: RoleName | None) -> Role:
    if name is None:
        return actor
    grantor = role_of(context, name)
    if grantor.id != actor.id and not actor.superuser:
        raise InsufficientPrivilege("must be superuser to set grantor")
    return grantor


def _admit(
    context: StatementContext,
    actor: Role,
    role: Role,
    member: Role,
    *,
    admin: bool,
    grantor: str | None = None,
) -> None:
    """Make a role a member of another one."""
    roles.add_member(
        context.catalog_change(),
        actor,
        role,
        member,
        grantor or actor.id,
        admin=admin,
        notice=partial(warn, context),
    )
