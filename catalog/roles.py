"""Changes of roles and memberships, by PostgreSQL's rules about who may make them."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from foreshore.catalog.forgetting import forget_all
from foreshore.catalog.item import Membership, Role
from foreshore.catalog.predefined import DATABASE_OWNER, REACHING_OUT, is_predefined
from foreshore.catalog.references import Reference
from foreshore.catalog.rights import is_member, members_of
from foreshore.catalog.role_names import role_oid
from foreshore.catalog.state import State, with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.errors import (
    DuplicateObject,
    InsufficientPrivilege,
    InvalidGrant,
    InvalidName,
    UndefinedObject,
)

Warn = Callable[[str, str], None]  # takes a message and a severity


def role_called(state: State, name: str) -> Role:
    """Return the role `name`."""
    found = state.role(name)
    if found is None:
        raise UndefinedObject(f'role "{name}" does not exist')
    return found


def role_with(state: State, id: str) -> Role:
    """Return the role with this id; raises UndefinedObject if it is missing (`role_names.py`)."""
    found = state.get(id)
    if not isinstance(found, Role):
        raise UndefinedObject(f"role with OID {role_oid(state, id)} does not exist")
    return found


def may_create_roles(role: Role) -> bool:
    """Return whether `role` may create, alter and drop roles that are no superusers."""
    return role.superuser or role.create_role


def check_new_name(name: str) -> None:
    """Raise if the name is reserved."""
    if name.startswith(("pg_", "mz_")):
        raise InvalidName(
            f'role name "{name}" is reserved',
            sqlstate="42939",
            detail='Role names starting with "pg_" or "mz_" are reserved.',
        )


def check_not_predefined(role: Role, detail: str = "Cannot alter reserved roles.") -> None:
    """Raise if a role is one of those that cannot be changed."""
    if is_predefined(role.id):
        raise InvalidName(f'role name "{role.name}" is reserved', sqlstate="42939", detail=detail)


def create_role(
    change: Transaction, actor: Role, name: str, attributes: Mapping[str, Any], *, replicates: bool
) -> Role:
    """Create a role with attributes of `Role`; `replicates`: REPLICATION is asked for."""
    if not actor.superuser:
        if attributes.get("superuser"):
            raise InsufficientPrivilege("must be superuser to create superusers")
        if replicates:
            raise InsufficientPrivilege("must be superuser to create replication users")
        if attributes.get("bypass_rls"):
            raise InsufficientPrivilege("must be superuser to create bypassrls users")
        if not may_create_roles(actor):
            raise InsufficientPrivilege("permission denied to create role")
    check_new_name(name)
    return change.create_role(name, **{"superuser": False, "login": False, **attributes})


def alter_role(
    change: Transaction,
    actor: Role,
    role: Role,
    attributes: Mapping[str, Any],
    *,
    replicates: bool,
) -> Role:
    """Change attributes of a role; who may do little else may change its own password."""
    check_not_predefined(role)
    if not actor.superuser:
        if role.superuser or "superuser" in attributes:
            raise InsufficientPrivilege(
                "must be superuser to alter superuser roles or change superuser attribute"
            )
        if role.id != actor.id and not REACHING_OUT.isdisjoint(members_of(change.state, role)):
            raise InsufficientPrivilege(
                "must be superuser to alter roles with rights on the server"
            )
        if replicates:
            raise InsufficientPrivilege(
                "must be superuser to alter replication roles or change replication attribute"
            )
        if "bypass_rls" in attributes:
            raise InsufficientPrivilege("must be superuser to change bypassrls attribute")
        is_own = role.id == actor.id and attributes.keys() <= {"verifier"}
        if not (may_create_roles(actor) or is_own):
            raise InsufficientPrivilege("permission denied")
    return change.put(msgspec.structs.replace(role, **attributes))


def rename_role(change: Transaction, actor: Role, role: Role, to: str) -> Role:
    """Give a role another name."""
    check_not_predefined(role)
    check_new_name(to)
    if change.state.role(to) is not None:
        raise DuplicateObject(f'role "{to}" already exists')
    if role.superuser and not actor.superuser:
        raise InsufficientPrivilege("must be superuser to rename superusers")
    if not may_create_roles(actor):
        raise InsufficientPrivilege("permission denied to rename role")
    return change.put(msgspec.structs.replace(role, name=to))


# --- memberships ---------------------------------------------------------------------------------


def add_member(
    change: Transaction,
    actor: Role,
    role: Role,
    member: Role,
    grantor: str,
    *,
    admin: bool,
    notice: Warn,
) -> None:
    """Make `member` a member of `role`, who may make others if `admin`."""
    role, member = role_with(change.state, role.id), role_with(change.state, member.id)
    _check_may_admit(change.state, actor, role)
    check_not_predefined(member, "Predefined roles cannot be members of others.")
    if role.id == DATABASE_OWNER:
        raise InvalidGrant('role "pg_database_owner" cannot have explicit members')
    if is_member(change.state, msgspec.structs.replace(role, superuser=False), member.id):
        raise InvalidGrant(f'role "{role.name}" is a member of role "{member.name}"')
    old = next((each for each in member.member_of if each.role == role.id), None)
    if old is not None and (old.admin or not admin):
        notice(f'role "{member.name}" is already a member of role "{role.name}"', "NOTICE")
        return
    new = Membership(role.id, grantor, admin)
    kept = tuple(new if each is old else each for each in member.member_of)
    change.put(msgspec.structs.replace(member, member_of=kept if old is not None else (*kept, new)))


def remove_member(
    change: Transaction, actor: Role, role: Role, member: Role, *, option_only: bool, warn: Warn
) -> None:
    """End a membership, or only the right to make others members."""
    role, member = role_with(change.state, role.id), role_with(change.state, member.id)
    _check_may_admit(change.state, actor, role)
    old = next((each for each in member.member_of if each.role == role.id), None)
    if old is None:
        warn(f'role "{member.name}" is not a member of role "{role.name}"', "WARNING")
        return
    if option_only:
        new = msgspec.structs.replace(old, admin=False)
        left = tuple(new if each is old else each for each in member.member_of)
    else:
        left = tuple(each for each in member.member_of if each is not old)
    change.put(msgspec.structs.replace(member, member_of=left))


def _check_may_admit(state: State, actor: Role, role: Role) -> None:
    if role.superuser:
        if not actor.superuser:
            raise InsufficientPrivilege("must be superuser to alter superusers")
        return
    reaches_out = not REACHING_OUT.isdisjoint(members_of(state, role))
    may = may_create_roles(actor) and not is_predefined(role.id) and not reaches_out
    if not may and not is_admin(state, actor, role.id):
        raise InsufficientPrivilege(f'must have admin option on role "{role.name}"')


def is_admin(state: State, role: Role, of: str) -> bool:
    """Return whether `role`, or one that it is a member of, may make others members of `of`."""
    groups = (role_with(state, id) for id in members_of(state, role))
    return role.superuser or any(
        each.role == of and each.admin for group in groups for each in group.member_of
    )


def forget_role(change: Transaction, role: Role) -> None:
    """Remove a role and its memberships; what it owns and may do has to be gone before.

    The memberships that it has given to others stay, as given by the first role.
    """
    gone = {
        Reference("role of a membership", role.id),
        Reference("grantor of a membership", role.id),
    }
    change.state = with_objects(change.state, {**forget_all(change.state, gone), role.id: None})
