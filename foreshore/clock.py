"""Clocks: the source of the current time, passed as an argument so that tests control it."""

import time
from typing import Protocol

from foreshore.update import Timestamp


class Clock(Protocol):
    """The current time; it may jump, also backwards."""

    def now(self) -> Timestamp:
        """Return the milliseconds since 1970."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Timestamp:
        """Return the milliseconds since 1970 by the machine's clock."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that a test sets."""

    def __init__(self, now: Timestamp = 1_000) -> None:
        self.time = now

    def now(self) -> Timestamp:
        """Return the time set by the test."""
        return self.time

    def advance(self, by: int) -> None:
        """Advance the clock by `by` milliseconds."""
        self.time += by
