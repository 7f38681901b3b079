"""Rights and memberships as relations: lists of rights as text, and what has_..._privilege read."""

from collections.abc import Iterator, Sequence

import msgspec

from foreshore.catalog import acl
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import (
    Grantable,
    Item,
    Role,
    Schema,
)
from foreshore.catalog.predefined import DATABASE_OWNER, EVERYWHERE, id_of
from foreshore.catalog.rights import (
    FOR_STATISTICS,
    FOR_SUPERUSERS,
    grants_on,
    kind_of,
    members_of,
    owns,
    roles_with_rights_of,
)
from foreshore.catalog.role_names import role_oid
from foreshore.catalog.state import State, is_system
from foreshore.privileges import LETTERS, RIGHTS, Grant

SUPERUSER_OID = 10  # owns the system objects; no one can connect as it


def shown(snapshot: IntrospectionSnapshot, each: Grantable) -> list[str] | None:
    """Return the list of rights of an object as text; None if it has none of its own."""
    if each.grants is msgspec.UNSET or is_system(each.id):
        return None
    return acl.items(each.grants, snapshot.name)


def shown_of_column(snapshot: IntrospectionSnapshot, item: Item, position: int) -> list[str] | None:
    """Return the list of rights on a column as text, None without one."""
    grants = (item.column_grants or {}).get(position)
    return None if grants is None else acl.items(grants, snapshot.name)


def object_rights(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rights on each object and column; owners have the options of all rights.

    A `grantee` of 0 is PUBLIC, a `position` of 0 the object as a whole.
    """
    state = snapshot.state
    others = (each for each in state.objects.values() if not isinstance(each, Item))
    for each in (*(others if snapshot.is_rest else ()), *snapshot.all_items):
        if not isinstance(each, Grantable):
            continue
        if isinstance(each, Item) and each.type in ("index", "subscription", "policy"):
            continue
        if isinstance(each, Schema) and each.id not in snapshot.schemas:
            continue  # `public` of another database has the same oid
        yield from _entries(state, each.oid, 0, grants_on(each))
        yield from _everywhere(state, each)
        owner, rights = role_oid(state, each.owner), RIGHTS[kind_of(each)]
        yield {"oid": each.oid, "position": 0, "grantee": owner, "grantable": rights}
        if isinstance(each, Item) and each.column_grants:
            for position, grants in each.column_grants.items():
                yield from _entries(state, each.oid, position, grants)
    for builtin in snapshot.builtins:
        if builtin.name not in FOR_SUPERUSERS:
            only = builtin.name in FOR_STATISTICS
            grantee = state.objects[id_of("pg_read_all_stats")].oid if only else 0
            yield {"oid": builtin.oid, "position": 0, "grantee": grantee, "rights": "r"}


def _everywhere(state: State, each: Grantable) -> Iterator[Row]:
    """Yield the rights on an object that predefined roles give."""
    kind = kind_of(each)
    for (of, privilege), roles in EVERYWHERE.items():
        if of == kind:
            for id in sorted(roles):
                role, letter = state.objects[id], LETTERS[privilege]
                yield {"oid": each.oid, "position": 0, "grantee": role.oid, "rights": letter}


def _entries(state: State, oid: int, position: int, grants: Sequence[Grant]) -> Iterator[Row]:
    for grant in grants:
        yield {
            "oid": oid,
            "position": position,
            "grantee": role_oid(state, grant.grantee),
            "rights": grant.rights,
            "grantable": grant.grantable,
        }


def role_rights(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield whose rights each role has (U), whose member (M) and admin (A) it is; 0 is PUBLIC."""
    state = snapshot.state
    database = state.database(snapshot.database)
    yield {"role": 0, "has": 0, "kind": "U"}
    for role in state.all(Role):
        yield {"role": role.oid, "has": 0, "kind": "U"}
        members = members_of(state, role)
        admins = {
            one.role
            for id in members
            for one in getattr(state.objects[id], "member_of", ())
            if one.admin
        }
        for kind, ids in (
            ("U", roles_with_rights_of(state, role)),
            ("M", members),
            ("A", admins),
        ):
            for id in ids:
                yield {"role": role.oid, "has": state.objects[id].oid, "kind": kind}
        if database is not None and owns(state, role, database.owner):
            owner = state.objects[DATABASE_OWNER].oid
            yield {"role": role.oid, "has": owner, "kind": "U"}


def memberships(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_auth_members."""
    state = snapshot.state
    for role in state.all(Role):
        for each in role.member_of:
            yield {
                "roleid": role_oid(state, each.role),
                "member": role.oid,
                "grantor": role_oid(state, each.grantor),
                "admin_option": each.admin,
            }
