"""An environment with roles and rights, written into the catalog by name.

await granted(env, "reader", "SELECT", "t")
await granted(env, "reader", "SELECT", "t", "a", "b")      on columns
"""

from typing import Any

import msgspec

from foreshore.adapter.session.session import Session
from foreshore.catalog.item import Cluster, Database, Item, Membership, Object, Role, Schema
from foreshore.catalog.rights import grants_on
from foreshore.catalog.state import State, with_objects
from foreshore.privileges import LETTERS, PUBLIC, Grant, Privilege
from tests.adapter.harness import TestEnvironment


def _put(env: TestEnvironment, *objects: Object) -> None:
    catalog = env.environment.coordinator.catalog
    catalog.state = with_objects(catalog.state, {each.id: each for each in objects})


def _state(env: TestEnvironment) -> State:
    return env.environment.coordinator.catalog.state


def _object(state: State, name: str) -> Item | Schema | Database | Cluster:
    for kind in (Item, Schema, Database, Cluster):
        for each in state.all(kind):
            if each.name == name:
                return each
    raise AssertionError(name)


def role(env: TestEnvironment, name: str, *member_of: str, **attributes: Any) -> Role:
    """Make a role, a member of others, or change its attributes."""
    state = _state(env)
    found = state.role(name)
    if found is None:
        number = 9_000 + sum(1 for _ in state.all(Role))
        found = Role(f"o{number}", 40_000 + number, name, superuser=False)
    of = []
    for each in member_of:
        granted = state.role(each)
        assert granted is not None, each
        of.append(Membership(granted.id, "o1"))
    found = msgspec.structs.replace(found, member_of=(*found.member_of, *of), **attributes)
    _put(env, found)
    return found


def grant(env: TestEnvironment, to: str, privileges: str, on: str, *columns: str) -> None:
    """Grant rights, such as `SELECT, INSERT`, on an object or on columns; to `public` or a role."""
    state = _state(env)
    grantee = PUBLIC if to == "public" else role(env, to).id
    letters = "".join(LETTERS[_privilege(each)] for each in privileges.split(", "))
    each = _object(state, on)
    given = Grant(grantee, each.owner, letters)
    if not columns:
        _put(env, msgspec.structs.replace(each, grants=(*grants_on(each), given)))
        return
    assert isinstance(each, Item)
    names = env.environment.coordinator.catalog.planned[each.id].desc.names
    known = dict(each.column_grants or {})
    for column in columns:
        at = names.index(column) + 1
        known[at] = (*known.get(at, ()), given)
    _put(env, msgspec.structs.replace(each, column_grants=known))


def revoke(env: TestEnvironment, of: str, on: str) -> None:
    """Take from a role all rights on an object and its columns."""
    each, grantee = _object(_state(env), on), role(env, of).id
    changes: dict[str, Any] = {
        "grants": tuple(each for each in grants_on(each) if each.grantee != grantee)
    }
    if isinstance(each, Item):
        changes["column_grants"] = msgspec.UNSET
    _put(env, msgspec.structs.replace(each, **changes))


def give(env: TestEnvironment, to: str, *names: str) -> None:
    """Let a role own objects."""
    for name in names:
        _put(env, msgspec.structs.replace(_object(_state(env), name), owner=role(env, to).id))


def _privilege(name: str) -> Privilege:
    return next(each for each in LETTERS if each == name)


async def session_as(env: TestEnvironment, name: str) -> Session:
    """Return the session of the same name, in which that role is the current one."""
    session = await env.session(name)
    await env.ran(name, f"SET SESSION AUTHORIZATION {name}")
    return session
