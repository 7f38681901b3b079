"""The timestamp oracle: one order for all that the database does.

    write_ts()      is later than anything returned before it
    apply_write(t)  makes the writes at t visible
    read_ts()       is at or beyond every applied write, and before every write_ts() still to come

All three are linearizable, also across restarts: a range of times is durable before any is given
out, and a restart begins where the range ended. Times follow the clock when they can and never go
back when it does; how far they may lead it is bounded, and a writer beyond the bound waits. Ranges
are short, since a restart that comes at once leads the clock by what was left of the last one.
"""

import asyncio
from typing import Protocol

from foreshore.clock import Clock
from foreshore.failpoint import reached
from foreshore.update import Timestamp

RESERVED_MS = 1_000
MAX_LEAD_MS = 10_000


class Reservation(Protocol):
    """The durable end of the times that may have been given out."""

    async def load(self) -> Timestamp:
        """Return the last stored end; 0 if there is none."""
        ...

    async def store(self, end: Timestamp) -> None:
        """Make `end` durable; it is later than any stored before."""
        ...


class TimestampOracle:
    """The oracle of one timeline; owned by the event loop."""

    def __init__(self, clock: Clock, reservation: Reservation, end: Timestamp) -> None:
        self._clock = clock
        self._reservation = reservation
        self._end = end  # times before it are reserved
        self._last = end  # the last time given out by either method
        self._read = end
        self._reserving = asyncio.Lock()

    @classmethod
    async def open(
        cls, clock: Clock, reservation: Reservation, at_least: Timestamp = 0
    ) -> "TimestampOracle":
        """Go on after all times of earlier processes, and not before `at_least`."""
        oracle = cls(clock, reservation, max(await reservation.load(), at_least))
        await oracle._reserve(oracle._last + 1)
        return oracle

    async def write_ts(self) -> Timestamp:
        """Return a time later than all returned before."""
        while (excess := self.lead_ms() - MAX_LEAD_MS) > 0:  # noqa: ASYNC110 - the clock ends it
            await asyncio.sleep(excess / 1000)
        time = self._next()
        while time >= self._end:
            await self._reserve(time)
            time = self._next()
        self._last = time
        return time

    def try_write_ts(self) -> Timestamp | None:
        """Return what `write_ts` would if that needs no waiting, else None."""
        time = self._next()
        if time >= self._end or self.lead_ms() > MAX_LEAD_MS:
            return None
        self._last = time
        return time

    def read_ts(self) -> Timestamp:
        """Return the time of a read that sees all that was applied."""
        return self._read

    def apply_write(self, time: Timestamp) -> None:
        """Let reads see the writes at `time`."""
        assert time <= self._last, f"{time} was never given out"
        self._read = max(self._read, time)

    def lead_ms(self) -> int:
        """Return how far the times are ahead of the clock."""
        return max(0, self._last - self._clock.now())

    def _next(self) -> Timestamp:
        return max(self._clock.now(), self._last + 1)

    async def _reserve(self, time: Timestamp) -> None:
        async with self._reserving:
            if time >= self._end:
                end = time + RESERVED_MS
                await self._reservation.store(end)
                reached("oracle.reserved")
                self._end = end
