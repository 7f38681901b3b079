"""Whether a role may do something with an object: the one place that decides it.

Superusers may do everything. Other roles have the rights that were granted to them, to PUBLIC, and
to the roles whose members they are, if they inherit. An owner has what its list of grants says, as
in PostgreSQL, where an owner can revoke rights of its own. The predefined roles give rights on all
objects, or to do what is for superusers otherwise.
"""

from collections.abc import Iterable

import msgspec

from foreshore.catalog.item import (
    Cluster,
    Connection,
    Database,
    Grantable,
    Item,
    NetworkPolicy,
    Object,
    Replica,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.predefined import DATABASE_OWNER, EVERYWHERE, id_of
from foreshore.catalog.state import State, is_system
from foreshore.privileges import LETTERS, PUBLIC, Grant, Privilege, initial, open_to_all

# System relations that only superusers may read; all others may be read by everybody.
FOR_SUPERUSERS = frozenset(
    "pg_authid pg_shadow pg_statistic pg_user_mapping pg_largeobject pg_hba_file_rules"
    " pg_ident_file_mappings pg_file_settings pg_config".split()
)
# Those that members of pg_read_all_stats may read as well.
FOR_STATISTICS = frozenset(("pg_backend_memory_contexts", "pg_shmem_allocations"))


def kind_of(each: Object) -> str:
    """Return the object's kind in `privileges.RIGHTS`."""
    match each:
        case Item(type="sequence"):
            return "sequence"
        case Item(is_type=True):
            return "type"
        case Item(is_function=True):
            return "function"
        case Item(is_policy=True):
            raise AssertionError(f"there are no rights on {each.name}, a policy")
        case Item():
            return "table"
        case Database() | Schema() | Cluster() | Secret() | Connection():
            return each.kind
        case _:
            raise AssertionError(f"there are no rights on a {each.kind}")


def roles_with_rights_of(state: State, role: Role) -> frozenset[str]:
    """Return the ids of the roles whose rights `role` has: its own, and those it inherits."""
    found, waiting = {role.id}, [role]
    while waiting:
        member = waiting.pop()
        if not member.inherit:
            continue
        for membership in member.member_of:
            granted = state.get(membership.role)
            if isinstance(granted, Role) and granted.id not in found:
                found.add(granted.id)
                waiting.append(granted)
    return frozenset(found)


def may_act_as(state: State, role: Role, predefined: str) -> bool:
    """Return whether `role` may do what the predefined role of this name gives.

    Superusers may, and members that inherit its rights: `may_act_as(state, role,
    "pg_read_server_files")`.
    """
    return role.superuser or id_of(predefined) in roles_with_rights_of(state, role)


def is_member(state: State, role: Role, of: str) -> bool:
    """Return whether `role` may SET ROLE to the role with id `of`: superusers may to any."""
    return role.superuser or of in members_of(state, role)


def members_of(state: State, role: Role) -> frozenset[str]:
    """Return the ids of the roles that `role` is a member of, itself included."""
    found, waiting = {role.id}, [role.id]
    while waiting:
        member = state.objects[waiting.pop()]
        assert isinstance(member, Role), member
        more = {each.role for each in member.member_of if each.role in state.objects} - found
        found |= more
        waiting += more
    return frozenset(found)


def grants_on(each: Grantable) -> tuple[Grant, ...]:
    """Return the rights on an object, also if it has no list of its own; none on a policy."""
    if isinstance(each, Item) and each.is_policy:
        return ()
    if each.grants is msgspec.UNSET:
        if isinstance(each, Schema) and each.database is None:  # of the system
            return open_to_all("schema", each.owner, "U")
        return initial(kind_of(each), each.owner)
    return each.grants


def holds(
    state: State,
    role: Role,
    each: Grantable,
    privilege: Privilege,
) -> bool:
    """Return whether `role` has a right on an object as a whole."""
    if role.superuser:
        return True
    roles = _roles_at(state, role, each)
    if _given(grants_on(each), roles, privilege):
        return True
    everywhere = EVERYWHERE.get((kind_of(each), privilege), frozenset())
    reads = privilege in ("SELECT", "USAGE")
    return not roles.isdisjoint(everywhere) and (reads or not is_system(each.id))


def holds_on_columns(
    state: State, role: Role, item: Item, privilege: Privilege, positions: Iterable[int]
) -> bool:
    """Return whether `role` has a right on each of these columns, counted from 1."""
    if holds(state, role, item, privilege):
        return True
    roles = _roles_at(state, role, item)
    columns = item.column_grants or {}
    return all(_given(columns.get(at, ()), roles, privilege) for at in positions)


def owns(state: State, role: Role, owner: str) -> bool:
    """Return whether `role` has the rights of an owner, itself or as a member of the owner."""
    return role.superuser or owner in roles_with_rights_of(state, role)


def owns_object(
    state: State,
    role: Role,
    each: Grantable | Replica | NetworkPolicy,
) -> bool:
    """Return whether `role` has the rights of the owner of an object."""
    if each.owner == DATABASE_OWNER and owns_database(state, role, each):
        return True
    return owns(state, role, each.owner)


def may_maintain(state: State, role: Role, item: Item) -> bool:
    """Return whether `role` may VACUUM and ANALYZE a table: as its owner, or its database's."""
    return owns_object(state, role, item) or owns_database(state, role, item)


def owns_database(state: State, role: Role, each: Object) -> bool:
    """Return whether `role` has the rights of the owner of the database that an object is in."""
    if isinstance(each, Item | Secret | Connection):
        each = state.objects[each.schema]
    if isinstance(each, Schema) and each.database is not None:
        each = state.objects.get(each.database, each)
    return isinstance(each, Database) and owns(state, role, each.owner)


def _roles_at(state: State, role: Role, each: Grantable) -> frozenset[str]:
    """Return the roles whose rights on an object `role` has."""
    roles = roles_with_rights_of(state, role)
    return roles | {DATABASE_OWNER} if owns_database(state, role, each) else roles


def _given(grants: Iterable[Grant], roles: frozenset[str], privilege: Privilege) -> bool:
    letter = LETTERS[privilege]
    return any(
        letter in grant.rights and (grant.grantee == PUBLIC or grant.grantee in roles)
        for grant in grants
    )
