"""Objects without their references to what does not exist, where they can do without.

Rights, memberships, default privileges, settings and the roles of policies are forgotten; what a
missing role owned, or has given as memberships, is the first role's. A view without a table that it
reads, or a table without its schema, cannot be.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from foreshore.catalog.acl import owned_by
from foreshore.catalog.item import FIRST_ROLE_ID, Granted, Item, Object, Role
from foreshore.catalog.references import Reference
from foreshore.network_policy import SETTING
from foreshore.privileges import PUBLIC, Grant

if TYPE_CHECKING:
    from foreshore.catalog.state import State

O = TypeVar("O", bound=Object)  # noqa: E741 - an object of any one collection
Gone = Callable[[Reference], bool]


def forget(each: Object, gone: Gone) -> Object | None:
    """Return an object without the references that are `gone`; those that it needs stay.

    None: it means nothing any more, as a policy all of whose roles are gone.
    """
    if isinstance(each, Role):
        return _role(each, gone)
    if gone(Reference("owner", each.owner)):
        each = owned_by(each, FIRST_ROLE_ID)
    changed: dict[str, Any] = {}
    if isinstance(each, Granted) and each.grants:
        changed["grants"] = _grants(each.grants, gone)
    if isinstance(each, Item) and each.column_grants:
        left = {at: _grants(grants, gone) for at, grants in each.column_grants.items()}
        kept = {at: grants for at, grants in left.items() if grants}
        changed["column_grants"] = kept or msgspec.UNSET
    if isinstance(each, Item) and each.policy and each.policy.roles:
        roles = tuple(id for id in each.policy.roles if not gone(Reference("role of a policy", id)))
        if not roles:
            return None
        changed["policy"] = msgspec.structs.replace(each.policy, roles=roles)
    settings = getattr(each, "settings", None)
    if settings is not None:
        changed["settings"] = _settings(settings, gone)
    return _replaced(each, changed)


def forget_all(state: "State", gone: Collection[Reference]) -> dict[str, Object | None]:
    """Return the objects that have one of some references, without them; see `forget`."""
    users = {each.id: each for reference in gone for each in state.grouped(reference)}
    return {id: forget(each, gone.__contains__) for id, each in users.items()}


def without(state: "State", ids: Collection[str]) -> dict[str, Object | None]:
    """Return the changes that drop objects, with default privileges and settings in them."""
    gone = {
        each
        for id in ids
        for each in (
            Reference("schema of default privileges", id),
            Reference("database of settings", id),
        )
    }
    return {**forget_all(state, gone), **dict.fromkeys(ids)}


def _role(role: Role, gone: Gone) -> Role:
    members = tuple(
        msgspec.structs.replace(each, grantor=FIRST_ROLE_ID)
        if gone(Reference("grantor of a membership", each.grantor))
        else each
        for each in role.member_of
        if not gone(Reference("role of a membership", each.role))
    )
    defaults = tuple(
        msgspec.structs.replace(each, grants=_grants(each.grants, gone))
        for each in role.default_grants
        if each.schema is None or not gone(Reference("schema of default privileges", each.schema))
    )
    return _replaced(
        role,
        {
            "member_of": members,
            "default_grants": tuple(e for e in defaults if e.grants or e.schema is None),
            "database_settings": {
                id: settings
                for id, settings in role.database_settings.items()
                if not gone(Reference("database of settings", id))
            },
            "settings": _settings(role.settings, gone),
        },
    )


def _grants(grants: tuple[Grant, ...], gone: Gone) -> tuple[Grant, ...]:
    return tuple(
        each
        for each in grants
        if not gone(Reference("grantor", each.grantor))
        and (each.grantee == PUBLIC or not gone(Reference("grantee", each.grantee)))
    )


def _settings(settings: dict[str, str], gone: Gone) -> dict[str, str]:
    policy = settings.get(SETTING)
    if policy is None or not gone(Reference("network policy", policy)):
        return settings
    return {name: value for name, value in settings.items() if name != SETTING}


def _replaced(each: O, changed: dict[str, Any]) -> O:
    """Return an object with other values, itself if it has them."""
    differing = {name: new for name, new in changed.items() if getattr(each, name) != new}
    return msgspec.structs.replace(each, **differing) if differing else each
