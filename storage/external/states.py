"""The states of sources and sinks, and how they changed."""

from collections import deque
from dataclasses import dataclass

from foreshore.clock import Clock
from foreshore.ids import GlobalId

MOST_HISTORY = 10_000  # changes of all sources or sinks that are kept


@dataclass(slots=True)
class Status:
    """The state of a source or sink, its time in milliseconds, and the amounts so far.

    `next_try` is the time in milliseconds at which it is tried again, if it has stalled.
    """

    state: str = "starting"
    error: str | None = None
    since: int = 0
    updates: int = 0
    bytes: int = 0
    next_try: int | None = None


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The state that a source or sink had from a time on, in milliseconds."""

    id: GlobalId
    at: int
    state: str
    error: str | None


class States:
    """Sets states, and keeps the history."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.history: deque[StatusChange] = deque(maxlen=MOST_HISTORY)

    def set(self, id: GlobalId, status: Status, state: str, error: str | None) -> None:
        """Note a state, if it is another one."""
        if state != "stalled":
            status.next_try = None
        if (status.state, status.error) != (state, error):
            status.state, status.error, status.since = state, error, self._clock.now()
            self.history.append(StatusChange(id, status.since, state, error))

    def set_next_try(self, status: Status, seconds: float) -> None:
        """Note that what has stalled is tried again in so many seconds."""
        if status.state == "stalled":
            status.next_try = self._clock.now() + round(1000 * seconds)
