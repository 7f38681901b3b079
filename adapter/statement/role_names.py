"""Roles as statements name them."""

from collections.abc import Iterable

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.item import Role
from foreshore.catalog.rights import is_member
from foreshore.catalog.roles import role_called
from foreshore.errors import InsufficientPrivilege, InvalidName, UndefinedObject
from foreshore.in_turns import in_turns
from foreshore.privileges import PUBLIC
from foreshore.role_options import RoleName


def current_role(planner: Planner, role: Role) -> Role:
    """Return the role that runs the statement, as it is in the transaction."""
    found = planner.state.get(role.id)
    if not isinstance(found, Role):
        raise UndefinedObject(f"role with OID {role.oid} does not exist")
    return found


def role_of(context: StatementContext, name: RoleName) -> Role:
    """Return the role that `name` means; PUBLIC is none."""
    match name.means:
        case "named":
            return role_called(context.planner.state, name.name)
        case "public":
            raise UndefinedObject('role "public" does not exist')
        case "current":
            return current_role(context.planner, context.role)
        case "session":
            return role_called(context.planner.state, context.variables["session_authorization"])


def owner_of_new(context: StatementContext, name: RoleName | None) -> Role:
    """Return the owner of a new object: the current role, or one that it is a member of."""
    actor = current_role(context.planner, context.role)
    if name is None:
        return actor
    refuse_public(name)
    owner = role_of(context, name)
    if not is_member(context.planner.state, actor, owner.id):
        raise InsufficientPrivilege(f'must be member of role "{owner.name}"')
    return owner


def grantee_of(context: StatementContext, name: RoleName) -> str:
    """Return the id of a role, or PUBLIC."""
    return PUBLIC if name.means == "public" else role_of(context, name).id


async def grantees_of(context: StatementContext, names: Iterable[RoleName]) -> tuple[str, ...]:
    """Return the ids of roles and PUBLIC, each once."""
    found = {grantee_of(context, each): None async for each in in_turns(names)}
    return tuple(found)


async def roles_of(context: StatementContext, names: Iterable[RoleName]) -> list[Role]:
    """Return the roles that `names` mean, each once."""
    found = {(role := role_of(context, each)).id: role async for each in in_turns(names)}
    return list(found.values())


def refuse_public(name: RoleName) -> None:
    """Raise if `name` is PUBLIC, where only a role can be meant."""
    if name.means == "public":
        raise InvalidName(f'role name "{name.name}" is reserved', sqlstate="42939")


def warn(context: StatementContext, message: str, severity: str) -> None:
    """Send a notice or a warning about a role."""
    sqlstate = "01000" if severity == "WARNING" else "00000"
    context.notice(message, severity=severity, sqlstate=sqlstate)
