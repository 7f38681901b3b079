"""What one session may keep: how many objects of each kind, and how much, by superusers' settings.

PostgreSQL bounds these by memory alone, so a session could take all of it.
"""

from collections.abc import Callable, Mapping

from foreshore.errors import Unavailable
from foreshore.sizes import bytes_of

LONG = 4096  # bytes of one object; so many shorter ones as may be kept are not much together


class SessionLimitExceeded(Unavailable):
    """A session keeps as many objects of a kind as a setting allows."""

    sqlstate = "53400"


def check_room(variables: Mapping[str, str], setting: str, has: int, what: str) -> None:
    """Raise SessionLimitExceeded if a session that `has` so many may have no more of them.

    `what` they are is a plural; `setting` is the number that it may have, 0 if there is no limit.
    """
    most = int(variables[setting])
    if 0 < most <= has:
        raise SessionLimitExceeded(
            f"too many {what} in this session",
            detail=f'The setting "{setting}" allows {most}.',
        )


class Kept:
    """How much a session keeps that its client has sent: texts, arguments and settings together."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._kinds: list[Callable[[], int]] = []

    def count(self, kind: Callable[[], int]) -> None:
        """Count also what `kind` returns, in bytes or characters."""
        self._kinds.append(kind)

    def check_room(self, more: int, *, instead_of: int = 0) -> None:
        """Raise SessionLimitExceeded if the session may not keep an object of `more` bytes.

        It takes the place of others of `instead_of` bytes.
        """
        most = self._variables["max_session_size"]
        if more < LONG or most == "0":
            return
        if sum(kind() for kind in self._kinds) + more - instead_of > bytes_of(most):
            raise SessionLimitExceeded(
                "this session keeps too much",
                detail="Prepared statements, arguments of portals and settings are too long"
                f' together: the setting "max_session_size" allows {most}.',
            )
