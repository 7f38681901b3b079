"""The timestamp oracle: one order of all reads and writes.

    write_ts()      is later than anything returned before it
    apply_write(t)  makes the writes at t visible
    read_ts()       is at or beyond every applied write, and before every write_ts() still to come

All three are linearizable, also across restarts: a range of times is durable before any is given
out, and a restart begins where the range ended. Times follow the clock when they can and never go
back when it does. Writers may take more times than the clock lets pass; how far they lead it by
that is bounded, and a writer beyond the bound waits. A clock that was set back is no lead of
theirs: until it has caught up each write takes the next time, and nobody waits. Ranges are short,
since a restart that comes at once leads the clock by what was left of the last one.
"""

import asyncio
import logging
from typing import Protocol

from foreshore.clock import Clock
from foreshore.failpoint import reached
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

RESERVED_MS = 1_000
MAX_LEAD_MS = 10_000
LOOK_SECONDS = 0.1  # at the clock, by who waits for it
SET_BACK_MS = 2_000  # from which on it is told


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
        self._seen = clock.now()
        self._steady = max(end, self._seen)  # a clock that stands still where the other goes back
        self._told = False
        self._reserving = asyncio.Lock()

    @classmethod
    async def open(
        cls, clock: Clock, reservation: Reservation, at_least: Timestamp = 0
    ) -> "TimestampOracle":
        """Continue after all times of earlier processes, and not before `at_least`."""
        oracle = cls(clock, reservation, max(await reservation.load(), at_least))
        await oracle._reserve(oracle._last + 1)
        return oracle

    async def write_ts(self) -> Timestamp:
        """Return a time later than all returned before."""
        while (excess := self.lead_ms() - MAX_LEAD_MS) > 0:  # noqa: ASYNC110 - the clock ends it
            await asyncio.sleep(min(excess / 1000, LOOK_SECONDS))
        time = self.next_ts()
        while time >= self._end:
            await self._reserve(time)
            time = self.next_ts()
        self._last = time
        return time

    def read_ts(self) -> Timestamp:
        """Return the time of a read that sees all applied writes."""
        return self._read

    def apply_write(self, time: Timestamp) -> None:
        """Let reads see the writes at `time`."""
        assert time <= self._last, f"{time} was never given out"
        self._read = max(self._read, time)

    def lead_ms(self) -> int:
        """Return how far the times lead the clock."""
        self._look()
        return max(0, self._last - self._steady)

    def _look(self) -> Timestamp:
        """Return the clock's time, and advance the steady clock, which never goes back.

        The two are equal again when the clock has caught up with the times that were given out.
        """
        now = self._clock.now()
        passed = self._steady + max(0, now - self._seen)
        self._steady = now if self._last <= now else max(now, passed)
        self._seen = now
        if (self._steady - now > SET_BACK_MS) is not self._told:
            self._told = not self._told
            behind = {"behind_ms": self._steady - now}
            if self._told:
                logger.warning("the clock is behind times that were given out", extra=behind)
            else:
                logger.info("the clock has caught up", extra=behind)
        return now

    def next_ts(self) -> Timestamp:
        """Return the time that `write_ts` would return now."""
        return max(self._look(), self._last + 1)

    async def _reserve(self, time: Timestamp) -> None:
        async with self._reserving:
            if time >= self._end:
                end = time + RESERVED_MS
                await self._reservation.store(end)
                reached("oracle.reserved")
                self._end = end
