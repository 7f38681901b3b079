"""What one session may keep: how many objects of each kind, by a setting that superusers set.

PostgreSQL bounds these by memory alone, so a session could take all of it.
"""

from collections.abc import Mapping

from foreshore.errors import Unavailable


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
