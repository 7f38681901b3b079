"""How long a stream that has lost its connection is tried again."""

import asyncio
import time

FIRST_SECONDS, LONGEST_SECONDS = 0.05, 1.0


class Waits:
    """Waits between tries, for at most `seconds` since the connection was lost."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = FIRST_SECONDS
        self._ends: float | None = None
        self._has_begun = False

    def begin(self) -> None:
        """Note that the connection is there."""
        self._has_begun = True
        self._next, self._ends = FIRST_SECONDS, None

    async def wait(self, error: Exception) -> None:
        """Wait before the next try.

        Raises `error` if there is no time for one, or the connection was never there.
        """
        if not self._has_begun:
            raise error
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self._seconds
        if now + self._next > self._ends:
            raise error
        await asyncio.sleep(self._next)
        self._next = min(2 * self._next, LONGEST_SECONDS)
