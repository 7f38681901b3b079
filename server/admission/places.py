"""Places: how many sessions there are, and may be, in all and of a role.

A client has a place from its startup message on. The last `reserved` ones are for superusers, who
also have no limit of their role.
"""

from collections import Counter
from dataclasses import dataclass, field

from foreshore.adapter.client import Login
from foreshore.errors import DatabaseError, TooManyConnections
from foreshore.server import metrics


@dataclass
class Places:
    """The places of one server."""

    most: int
    reserved: int
    taken: int = 0
    _of_roles: Counter[str] = field(default_factory=Counter)

    def take(self) -> "Place":
        """Return a place, to be released; raises TooManyConnections if there is none."""
        if self.taken >= self.most:
            raise too_many()
        self.taken += 1
        metrics.SESSIONS.set(self.taken)
        return Place(self)

    def admit(self, login: Login) -> None:
        """Count a session of a role whose client has a place; raises TooManyConnections."""
        if not login.superuser:
            if 0 <= login.connection_limit <= self._of_roles[login.id]:
                raise TooManyConnections(f'too many connections for role "{login.name}"')
            if self.taken > self.most - self.reserved:
                raise TooManyConnections(
                    "remaining connection slots are reserved for non-replication superuser "
                    "connections"
                )
        self._of_roles[login.id] += 1

    def release(self, login: Login | None) -> None:
        """Free a place, and the session that was counted for `login`."""
        self.taken -= 1
        metrics.SESSIONS.set(self.taken)
        if login is not None:
            self._of_roles[login.id] -= 1
            if not self._of_roles[login.id]:
                del self._of_roles[login.id]


@dataclass
class Place:
    """A client's place, and the role whose session has it."""

    _places: Places
    _login: Login | None = None

    def admit(self, login: Login) -> None:
        """Count the session of a role; raises TooManyConnections."""
        self._places.admit(login)
        self._login = login

    def release(self) -> None:
        """Free the place; call it once."""
        self._places.release(self._login)


def too_many() -> DatabaseError:
    """Return the error for a client for which there is no place."""
    return TooManyConnections("sorry, too many clients already")
