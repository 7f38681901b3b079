"""Clocks: where the time of day comes from, as an argument.

Nothing in the system calls the machine's clock directly, so that a test owns the time.
"""

import time
from typing import Protocol

from foreshore.update import Timestamp


class Clock(Protocol):
    """What o'clock it is; may jump, also backwards."""

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
        """Return the time the test has set."""
        return self.time

    def advance(self, by: int) -> None:
        """Let `by` milliseconds pass."""
        self.time += by
