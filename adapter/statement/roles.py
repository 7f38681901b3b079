"""The roles of a session: who logged in, for whom the session acts, and whose rights count.

    SET SESSION AUTHORIZATION reader    the session user
    SET ROLE writer                     the current user, whose rights count

Both are variables, so ROLLBACK undoes them and SET LOCAL lasts until the end of the transaction. A
role is known by its id since it was named, so it may be renamed meanwhile. A role that was dropped
has no rights.
"""

from collections.abc import Callable, Iterator

from foreshore.catalog.item import Database, Role
from foreshore.catalog.rights import holds, is_member, may_act_as
from foreshore.catalog.state import State
from foreshore.errors import InsufficientPrivilege, InvalidAuthorization, UndefinedObject
from foreshore.session_variables import Variables
from foreshore.settings import VARIABLES

NO_ROLE = "none"
_SEES_SETTINGS = "pg_read_all_settings"


class SessionRoles:
    """The roles of one session.

    `state` returns the catalog as its transaction sees it, `committed` that of all.
    """

    def __init__(
        self,
        login: Role,
        variables: Variables,
        state: Callable[[], State],
        committed: Callable[[], State],
    ) -> None:
        self._login = login
        self._variables = variables
        self._state = state
        self._committed = committed
        self._ids = {login.name: login.id}
        self._known: tuple[State | None, int, Role] = (None, -1, login)
        variables.set_fixed("role", NO_ROLE)
        variables.set_fixed("session_authorization", login.name)
        variables.set_fixed("is_superuser", _on_or_off(login))

    @property
    def login(self) -> Role:
        """The role as which the client has logged in."""
        return self._present(self._login.id, self._login.name)

    @property
    def session(self) -> Role:
        """The session user."""
        return self._named(self._variables["session_authorization"])

    @property
    def current(self) -> Role:
        """The current user."""
        state, version, role = self._known
        if state is not self._state() or version != self._variables.plan_version:
            name = self._variables["role"]
            role = self.session if name == NO_ROLE else self._named(name)
            self._known = (self._state(), self._variables.plan_version, role)
        return role

    def set(self, variable: str, values: tuple[str, ...] | None, *, local: bool = False) -> None:
        """Set the variable `role` or `session_authorization`; None is its default."""
        name = values[0] if values else None
        match variable.lower():
            case "role":
                self.set_role(name, local=local)
            case "session_authorization":
                self.set_session(name, local=local)
            case _:
                self._variables.set(variable, values, local=local)  # it is fixed

    def set_role(self, name: str | None, *, local: bool = False) -> None:
        """Run SET ROLE; None or `none` is the session user."""
        if name is None or name == NO_ROLE:
            name, role = NO_ROLE, self.session
        else:
            role = self._found(name)
            if not is_member(self._state(), self.session, role.id):
                raise InsufficientPrivilege(f'permission denied to set role "{name}"')
        self._assign("role", name, local)
        self._assign("is_superuser", _on_or_off(role), local)

    def set_session(self, name: str | None, *, local: bool = False) -> None:
        """Run SET SESSION AUTHORIZATION, which resets the role; None is the role of the login."""
        role = self.login if name is None else self._found(name)
        if role.id != self._login.id and not self.login.superuser:
            raise InsufficientPrivilege("permission denied to set session authorization")
        self._assign("session_authorization", role.name, local)
        self._assign("role", NO_ROLE, local)
        self._assign("is_superuser", _on_or_off(role), local)

    def _assign(self, variable: str, value: str, local: bool) -> None:
        self._variables.assign(variable, value, local=local)

    def _found(self, name: str) -> Role:
        role = self._state().role(name)
        if role is None:
            raise UndefinedObject(f'role "{name}" does not exist')
        self._note(role)
        return role

    def _note(self, role: Role) -> None:
        """Know a role by its id, unless the transaction has created it and may be rolled back."""
        if self._committed().get(role.id) is not None:
            self._ids[role.name] = role.id
        else:
            self._ids.pop(role.name, None)

    def _named(self, name: str) -> Role:
        if name not in self._ids and (role := self._state().role(name)) is not None:
            self._note(role)
            return role
        return self._present(self._ids.get(name, ""), name)

    def _present(self, id: str, name: str) -> Role:
        found = self._state().get(id)
        if isinstance(found, Role):
            return found
        return Role(id, 0, name, superuser=False, login=False)


def _on_or_off(role: Role) -> str:
    return "on" if role.superuser else "off"


def require_settable(role: Role, variable: str) -> None:
    """Raise InsufficientPrivilege if only superusers may set a variable."""
    known = VARIABLES.get(variable.lower())
    if known is not None and known.superuser and not role.superuser:
        raise InsufficientPrivilege(f'permission denied to set parameter "{known.name}"')


def require_untrusted_language(role: Role, language: str) -> None:
    """Raise InsufficientPrivilege unless a role may create functions in an untrusted language."""
    if not role.superuser:
        raise InsufficientPrivilege(
            f"permission denied for language {language}",
            hint="Must be superuser to create a function in an untrusted language.",
        )


def require_visible(state: State, role: Role, variable: str) -> None:
    """Raise InsufficientPrivilege if a role may not see a variable."""
    known = VARIABLES.get(variable.lower())
    if known is not None and known.hidden and not may_act_as(state, role, _SEES_SETTINGS):
        raise InsufficientPrivilege(
            "must be superuser or have privileges of pg_read_all_settings "
            f'to examine "{known.name}"'
        )


def visible_settings(
    state: State, role: Role, variables: Variables, only: str | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and description of the variables that a role may see, as `show_all`."""
    all_shown = may_act_as(state, role, _SEES_SETTINGS)
    for row in variables.show_all(only):
        known = VARIABLES.get(row[0].lower())
        if known is None or not known.hidden or all_shown:
            yield row


def require_login(state: State, role: Role, database: Database) -> None:
    """Raise unless a role may connect to a database."""
    if not role.login:
        raise InvalidAuthorization(f'role "{role.name}" is not permitted to log in')
    if not holds(state, role, database, "CONNECT"):
        raise InsufficientPrivilege(
            f'permission denied for database "{database.name}"',
            detail="User does not have CONNECT privilege.",
        )
