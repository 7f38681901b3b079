"""Expiry: how long nothing has been heard of those who hold leases.

Time is what passes while somebody could have been heard: between two looks at the clock never less
than nothing and never more than `MAX_STEP_MS`. So a clock that is set, a machine that slept and an
event loop that stood still end no lease whose holder would have been heard. Nothing of it is
durable: a heartbeat costs no write, and in a new environment each lease begins anew.
"""

from collections.abc import Iterable

from foreshore.clock import Clock
from foreshore.ids import GlobalId

TICK_SECONDS = 1.0  # how often it is looked who has gone
MAX_STEP_MS = 2_000


class Expiry:
    """The leases of one environment, by token, and the time at which each ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.now()
        self._passed = 0  # milliseconds
        self._ends: dict[str, tuple[GlobalId, int]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def renew(self, id: GlobalId, token: str, lease_ms: int) -> None:
        """Let a lease, a new one or one whose holder was heard, end `lease_ms` from now."""
        self._look()
        self._ends[token] = (id, self._passed + lease_ms)

    def forget(self, tokens: Iterable[str]) -> None:
        """Watch over these no longer; they have ended otherwise."""
        for token in tokens:
            self._ends.pop(token, None)

    def take_ended(self) -> list[tuple[GlobalId, str]]:
        """Return the leases that have run out, and watch over them no longer."""
        self._look()
        ended = [(id, token) for token, (id, end) in self._ends.items() if end <= self._passed]
        self.forget(token for _, token in ended)
        return ended

    def _look(self) -> None:
        now = self._clock.now()
        self._passed += min(max(now - self._seen, 0), MAX_STEP_MS)
        self._seen = now
