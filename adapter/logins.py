"""What the server has to know of roles before a session exists."""

import msgspec

from foreshore.adapter.client import Login
from foreshore.adapter.coordinator import Coordinator
from foreshore.adapter.transaction.catalog_commit import CatalogChange
from foreshore.adapter.transaction.group_commit import Write
from foreshore.catalog.item import Role
from foreshore.catalog.rights import members_of
from foreshore.catalog.state import State
from foreshore.scram import Verifier


def login_of(state: State, name: str) -> Login | None:
    """Return the login of the role `name`; None if there is no such role."""
    role = state.role(name)
    if role is None:
        return None
    return Login(
        id=role.id,
        name=role.name,
        superuser=role.superuser,
        can_login=role.login,
        verifier=role.verifier,
        valid_until=role.valid_until,
        connection_limit=role.connection_limit,
        groups=frozenset(state.objects[id].name for id in members_of(state, role)),
    )


def is_same_login(login: Login, role: Role) -> bool:
    """Return whether a role is the one that a client has proven to be, with the same password.

    The role may have been dropped and made anew meanwhile, or its password have been changed.
    """
    return login.id == role.id and login.verifier == role.verifier


def has_passwords(state: State) -> bool:
    """Return whether a role has a password."""
    return any(role.verifier is not None for role in state.all(Role))


async def set_password(coordinator: Coordinator, name: str, password: str) -> None:
    """Give the role `name` a password, durably, if it exists and has another one."""
    role = coordinator.state.role(name)
    if role is None:
        return
    verifier = None if role.verifier is None else Verifier.parse(role.verifier)
    if verifier is not None and verifier.verifies(password):
        return
    change = coordinator.catalog.transaction()
    change.put(msgspec.structs.replace(role, verifier=str(Verifier.of(password))))
    await coordinator.catalog_commits.commit(Write({}), CatalogChange(change))
