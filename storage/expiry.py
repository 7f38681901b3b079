"""Expiry: ends leases whose holders send no heartbeat.

The time counted between two looks at the clock is at least zero and at most `MAX_STEP_MS`. So
setting the clock, suspending the machine or blocking the event loop does not end leases whose
holders could not be heard. Expiry is not durable: a heartbeat costs no write, and in a new
environment each lease starts again.
"""

from collections.abc import Iterable

from foreshore.clock import Clock
from foreshore.ids import GlobalId

TICK_SECONDS = 1.0  # how often leases are checked
MAX_STEP_MS = 2_000


class Expiry:
    """The leases of one environment by token, and the time at which each ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.now()
        self._passed = 0  # milliseconds
        self._ends: dict[str, tuple[GlobalId, int]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def renew(self, id: GlobalId, token: str, lease_ms: int) -> None:
        """Let a lease, new or renewed, end `lease_ms` from now."""
        self._advance()
        self._ends[token] = (id, self._passed + lease_ms)

    def forget(self, tokens: Iterable[str]) -> None:
        """Stop watching leases that have ended in another way."""
        for token in tokens:
            self._ends.pop(token, None)

    def take_ended(self) -> list[tuple[GlobalId, str]]:
        """Remove and return the leases that have run out."""
        self._advance()
        ended = [(id, token) for token, (id, end) in self._ends.items() if end <= self._passed]
        self.forget(token for _, token in ended)
        return ended

    def _advance(self) -> None:
        now = self._clock.now()
        self._passed += min(max(now - self._seen, 0), MAX_STEP_MS)
        self._seen = now
