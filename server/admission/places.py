"""Places: how many sessions there are, and may be, in all and of a role.

A client has a place once it has proven who it is. The last `reserved` ones are for superusers, who
also have no limit of their role.
"""

from collections import Counter
from dataclasses import dataclass, field

from foreshore.adapter.client import Login
from foreshore.errors import DatabaseError, TooManyConnections


@dataclass
class Places:
    """The places of one server."""

    most: int
    reserved: int
    taken: int = 0
    _of_roles: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Raise TooManyConnections if there is no place."""
        if self.taken >= self.most:
            raise too_many()

    def take(self, login: Login) -> "Place":
        """Return a place for a session of a role, to be released; raises TooManyConnections."""
        self.check()
        if not login.superuser:
            if 0 <= login.connection_limit <= self._of_roles[login.id]:
                raise TooManyConnections(f'too many connections for role "{login.name}"')
            if self.taken >= self.most - self.reserved:
                raise TooManyConnections(
                    "remaining connection slots are reserved for non-replication superuser "
                    "connections"
                )
        self._of_roles[login.id] += 1
        self.taken += 1
        return Place(self, login.id)

    def release(self, role: str) -> None:
        """Free a place, and the session that was counted for the role with this id."""
        self.taken -= 1
        self._of_roles[role] -= 1
        if not self._of_roles[role]:
            del self._of_roles[role]


@dataclass
class Place:
    """A client's place, and the role whose session has it."""

    _places: Places
    _role: str

    def release(self) -> None:
        """Free the place; call it once."""
        self._places.release(self._role)


def too_many() -> DatabaseError:
    """Return the error for a client for which there is no place."""
    return TooManyConnections("sorry, too many clients already")
