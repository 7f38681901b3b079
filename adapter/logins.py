"""The roles of clients that authenticate, and the settings with which a session begins."""

from dataclasses import replace

import msgspec

from foreshore.adapter.client import Login, Startup
from foreshore.adapter.ddl.roles.settings import settings_at_login
from foreshore.adapter.services.names import Names
from foreshore.adapter.statement.roles import SessionRoles, require_login, require_settable
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.item import Role
from foreshore.catalog.network_policies import check_peer
from foreshore.catalog.rights import members_of
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, InvalidCatalogName, UndefinedObject
from foreshore.scram import Verifier
from foreshore.session_variables import OF_ROLES, Variables
from foreshore.settings import VARIABLES
from foreshore.tokens import AccessToken


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


def login_by(state: State, given: AccessToken, now: int) -> Login | None:
    """Return the login of the role whose token this is, at `now` in microseconds since 1970.

    None if there is no such token, or it has expired. The time that it takes does not tell which.
    """
    role = state.get(given.role)
    kept = role.tokens if isinstance(role, Role) else ()
    found = next((each for each in kept if each.number == given.number), None)
    is_right = given.fits(None if found is None else found.digest)
    if not is_right or found is None or not isinstance(role, Role):
        return None
    if found.valid_until is not None and found.valid_until <= now:
        return None
    login = login_of(state, role.name)
    return None if login is None else replace(login, token=found.number)


def is_same_login(login: Login, role: Role) -> bool:
    """Return whether a role is the one that a client has proven to be, with the same proof.

    The role may have been dropped and made anew meanwhile, its password have been changed, or its
    token have been dropped.
    """
    if login.token is not None:
        return login.id == role.id and any(each.number == login.token for each in role.tokens)
    return login.id == role.id and login.verifier == role.verifier


class FirstSettings:
    """The settings with which a session begins: kept ones, then those that the client asks for.

    What is kept for the role or the database and cannot be set, such as a role that was dropped
    since, is told in `warnings`; what the client asks for has to be possible.
    """

    def __init__(self, state: State, role: Role, startup: Startup) -> None:
        self.variables = Variables({"database": startup.database})
        self.warnings: list[str] = []
        self._roles: list[tuple[str, str, bool]] = []
        _require_database(state, role, startup.database)
        check_peer(state, role, startup.peer)
        for name in startup.parameters:
            require_settable(role, name)
        for name, value in settings_at_login(state, role, startup.database):
            self._set(name, value, is_kept=True)
        for name, value in startup.parameters.items():
            self._set(name, value, is_kept=False)
        if self.variables["database"] != startup.database:
            _require_database(state, role, self.variables["database"])

    def _set(self, name: str, value: str, *, is_kept: bool) -> None:
        if name.lower() in OF_ROLES:
            self._roles.append((name, value, is_kept))
            return
        known = VARIABLES.get(name.lower())
        if is_kept and known is not None and known.server:
            self.variables.set_fixed(name, value)
            return
        try:
            self.variables.set_default(name, value)
        except UndefinedObject as error:
            self.warnings.append(error.message)
        except DatabaseError as error:
            if not is_kept:
                raise
            self.warnings.append(error.message)

    def assume_roles(self, roles: SessionRoles) -> None:
        """Set the roles of the session that has begun with the other settings."""
        for name, value, is_kept in self._roles:
            try:
                roles.set(name, (value,))
            except DatabaseError as error:
                if not is_kept:
                    raise
                self.warnings.append(error.message)
            self.variables.commit()


def _require_database(state: State, role: Role, name: str) -> None:
    database = state.database(name)
    if database is None:
        raise InvalidCatalogName(f'database "{name}" does not exist')
    require_login(state, role, database)


def has_passwords(state: State) -> bool:
    """Return whether a role has a password."""
    return any(role.verifier is not None for role in state.all(Role))


async def set_password(names: Names, name: str, password: str) -> None:
    """Give the role `name` a password, durably, if it exists and has another one."""
    role = names.state.role(name)
    if role is None:
        return
    verifier = None if role.verifier is None else Verifier.parse(role.verifier)
    if verifier is not None and verifier.verifies(password):
        return
    change = names.catalog.transaction()
    change.put(msgspec.structs.replace(role, verifier=str(Verifier.of(password))))
    await names.catalog_commits.commit(Write({}), CatalogChange(change))
