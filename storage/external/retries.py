"""How a source or sink that fails is tried again, and what one is told of the failure."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from foreshore.errors import DatabaseError
from foreshore.sinks.errors import TargetLost

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
LEAST_WAIT_SECONDS = 0.25  # of a pause that is cut short


def waits(longest: float = LONGEST_WAIT_SECONDS) -> Iterator[float]:
    """Yield the seconds before each next try, at most `longest`."""
    seconds = FIRST_WAIT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, longest)


class Pauses:
    """The pauses between tries, which grow until `begin_anew`; each may be cut short."""

    def __init__(self, longest: float = LONGEST_WAIT_SECONDS) -> None:
        self._longest = longest
        self._waits = waits(longest)
        self._is_cut = asyncio.Event()

    def begin_anew(self) -> None:
        """Let the next pause be the shortest, as something got on."""
        self._waits = waits(self._longest)

    async def pause(self, announce: Callable[[float], None]) -> None:
        """Wait for the next try, or until `cut_short`; `announce` gets the seconds until then.

        However many cut pauses short, there are `LEAST_WAIT_SECONDS` between two tries.
        """
        self._is_cut.clear()
        seconds = next(self._waits)
        announce(seconds)
        least = min(seconds, LEAST_WAIT_SECONDS)
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - least):
                await self._is_cut.wait()

    def cut_short(self) -> None:
        """End the pause that there is, if any, as soon as it may end."""
        self._is_cut.set()


# Classes of SQLSTATE of failures that a pause does not mend: a feature or a value that the other
# system does not take, a broken constraint, refused passwords or rights, absent objects, limits.
_LASTING = ("0A", "22", "23", "28", "3D", "3F", "42", "54")
_OF_USER_CODE = "22023"  # an exception of a function in Python, which may be a network's


def is_lasting(error: OSError | DatabaseError) -> bool:
    """Return whether somebody has to act before a next try can succeed, as far as one can say."""
    if not isinstance(error, DatabaseError) or error.sqlstate == _OF_USER_CODE:
        return False
    return error.sqlstate == "55000" or error.sqlstate.startswith(_LASTING)


def is_lost(error: OSError | DatabaseError) -> bool:
    """Return whether a sink can never go on, so that it has to be created anew."""
    return isinstance(error, TargetLost)


def error_text(error: OSError | DatabaseError) -> str:
    """Return an error with its hint, in one line."""
    if isinstance(error, DatabaseError) and error.hint:
        return f"{error.message} ({error.hint})"
    return str(error) or type(error).__name__
