"""What a session is doing and since when: for pg_stat_activity, and for its time-outs."""

import asyncio

from foreshore.adapter.session.interrupt import Interrupts
from foreshore.adapter.session.variables import Variables, milliseconds
from foreshore.clock import Clock
from foreshore.errors import (
    DatabaseError,
    IdleInTransactionSessionTimeout,
    IdleSessionTimeout,
    QueryCanceled,
)

STATES = {"I": "idle", "T": "idle in transaction", "E": "idle in transaction (aborted)"}


class Activity:
    """The activity of one session; times are microseconds since 1970."""

    def __init__(self, clock: Clock, variables: Variables, interrupts: Interrupts) -> None:
        self._clock = clock
        self._variables = variables
        self._interrupts = interrupts
        self.connected_at = self.state_at = clock.now() * 1000
        self.query = ""
        self.query_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = asyncio.get_running_loop().time()

    def state(self, transaction_status: str) -> str:
        """Return what the session is doing, as pg_stat_activity shows it."""
        return "active" if self._interrupts.active else STATES[transaction_status]

    def begin(self, query: str) -> None:
        """Note that a statement begins, and start its statement_timeout."""
        self.query = query
        self.query_at = self.state_at = self._clock.now() * 1000
        self._interrupts.begin()
        timeout = self._variables["statement_timeout"]
        if timeout != "0":
            self._timer = asyncio.get_running_loop().call_later(
                (milliseconds(timeout) or 0) / 1000,
                self._interrupts.request,
                QueryCanceled("canceling statement due to statement timeout"),
            )

    def end(self) -> None:
        """Note that the statement is over, if there is one."""
        if self._interrupts.active:
            self.state_at = self._clock.now() * 1000
        self._interrupts.end()
        self._idle_since = asyncio.get_running_loop().time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expired(self, now: float, *, in_block: bool) -> DatabaseError | None:
        """Return the error of a session that has been idle for too long at `now`."""
        if self._interrupts.active:
            return None
        kind = "in_transaction_session" if in_block else "session"
        timeout = milliseconds(self._variables[f"idle_{kind}_timeout"])
        if not timeout or now - self._idle_since < timeout / 1000:
            return None
        return IdleInTransactionSessionTimeout() if in_block else IdleSessionTimeout()
