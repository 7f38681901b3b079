"""Rights on objects that a role will create: ALTER DEFAULT PRIVILEGES.

The rights for objects in all schemas begin with those that a new object has anyway; those for one
schema are added to them.
"""

from collections.abc import Callable

import msgspec

from foreshore.catalog import acl
from foreshore.catalog.item import DefaultGrants, Role, Schema
from foreshore.catalog.state import State
from foreshore.privileges import Grant, initial


def grants_of_new(
    state: State, owner: str, kind: str, schema: str | None
) -> tuple[Grant, ...] | msgspec.UnsetType:
    """Return the rights on a new object, unset if they are the usual ones."""
    role = state.get(owner)
    if not isinstance(role, Role) or not role.default_grants:
        return msgspec.UNSET
    usual = initial(kind, owner)
    grants = defaults_of(role, kind, None)
    if schema is not None:
        for each in defaults_of(role, kind, schema):
            grants = acl.added(grants, each)
    grants = _sorted(state, grants)
    return msgspec.UNSET if grants == _sorted(state, usual) else grants


def listed_if_public(schema: Schema) -> Schema:
    """Return a schema with a list of its rights if it is called `public`.

    One without is of an older version, and open to all.
    """
    if schema.name != "public" or schema.grants is not msgspec.UNSET:
        return schema
    return msgspec.structs.replace(schema, grants=initial("schema", schema.owner))


def _sorted(state: State, grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Return a list in the order of PostgreSQL's default lists: by the oids of roles."""

    def oid(id: str) -> int:
        found = state.get(id)
        return 0 if found is None else found.oid

    return tuple(sorted(grants, key=lambda each: (oid(each.grantee), oid(each.grantor))))


def defaults_of(role: Role, kind: str, schema: str | None) -> tuple[Grant, ...]:
    """Return the rights that a role has set for a kind in one schema, or in all (None)."""
    for each in role.default_grants:
        if (each.kind, each.schema) == (kind, schema):
            return each.grants
    return initial(kind, role.id) if schema is None else ()


def changed_defaults(
    state: State,
    role: Role,
    kind: str,
    schema: str | None,
    apply: Callable[[tuple[Grant, ...]], tuple[Grant, ...]],
    new_oid: Callable[[], int],
) -> Role:
    """Return the role with its rights for a kind, in one schema or in all, changed by `apply`."""
    grants = _sorted(state, apply(defaults_of(role, kind, schema)))
    same = [e for e in role.default_grants if (e.kind, e.schema) == (kind, schema)]
    others = tuple(each for each in role.default_grants if each not in same)
    usual = initial(kind, role.id) if schema is None else ()
    if grants == _sorted(state, usual):
        return msgspec.structs.replace(role, default_grants=others)
    new = DefaultGrants(kind, schema, grants, same[0].oid if same else new_oid())
    return msgspec.structs.replace(role, default_grants=(*others, new))
