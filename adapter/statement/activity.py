"""The present activity of a session, its start, and interruptions of it.

While a statement runs inside `running`, `request` cancels its task at the point where it waits, and
`running` raises the given error instead: of a cancel request or of statement_timeout. Requests are
ignored between statements and inside `Sheltered`, a commit on its way to the disk. After a commit
the statement can no longer be interrupted: the client is sent its success. A cancellation from
elsewhere, for example when the client is gone, passes through untouched. The end of the session
(pg_terminate_backend, idle time-outs) waits for the end of `Sheltered` alone; what the session has
not committed is rolled back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

from foreshore import tracing
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.clock import Clock
from foreshore.errors import (
    DatabaseError,
    IdleInTransactionSessionTimeout,
    IdleSessionTimeout,
    QueryCanceled,
    Unavailable,
)
from foreshore.latencies import STATEMENTS, kind_of
from foreshore.redaction import redacted, redacted_message
from foreshore.session_variables import Variables
from foreshore.setting_kinds import milliseconds
from foreshore.statement_history import StatementHistory, Who
from foreshore.statement_log import log, message_of

logger = logging.getLogger(__name__)

PLANNING_S = 10  # how long a text may be parsed or planned whose client has gone

STATES = {"I": "idle", "T": "idle in transaction", "E": "idle in transaction (aborted)"}


class ConnectionLost(Unavailable):
    """The client has gone, and what it waited for has lasted too long since then."""

    sqlstate = "08006"

    def __init__(self) -> None:
        super().__init__("connection to client lost")


class Activity:
    """The activity of one session; times are microseconds since 1970."""

    def __init__(
        self,
        clock: Clock,
        variables: Variables,
        interrupts: Interrupts,
        history: StatementHistory,
        who: Callable[[], Who],
    ) -> None:
        self._clock = clock
        self._variables = variables
        self._interrupts = interrupts
        self._history = history
        self._find_who = who
        self._who: Who | None = None
        self._who_at = -1  # the version of the variables
        self._result: str | int | None = None  # of the running statement
        self.connected_at = self.state_at = clock.now() * 1000
        self.query = ""
        self.sqlstate: str | None = None  # of the error with which `query` has ended
        self.query_at: int | None = None
        self.arrived_at = 0  # when the message with the statement did
        self.root: tracing.Root | None = None  # of the running statement, if it is traced
        self._began = 0.0  # when the statement began, by the process's counter
        self._timer: asyncio.TimerHandle | None = None
        self._terminate: Callable[[], object] | None = None  # set once the client has gone
        self._plans = False  # whether a thread parses or plans
        self._planning_timer: asyncio.TimerHandle | None = None
        self._gone_timer: asyncio.TimerHandle | None = None  # since the client has gone
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()

    def state(self, transaction_status: str) -> str:
        """Return what the session is doing, as pg_stat_activity shows it."""
        return "active" if self._interrupts.active else STATES[transaction_status]

    def begin(self, query: str, *, continues: bool = False) -> None:
        """Note that a statement begins, and start its timeout.

        It `continues` a message of several statements if it is not the first of these.
        """
        self.query, self.sqlstate = query, None
        self.query_at = self.state_at = self._clock.now() * 1000
        if not continues:
            self.arrived_at = self.query_at
        self._began = perf_counter()
        if self.root is not None:  # such as of a COPY that has sent its rows
            self._end_span(None)
        if tracing.is_on:
            self.root = tracing.begin(query)
        self._interrupts.begin()
        timeout_s = self._variables.settings.timeout_s
        if timeout_s is not None:
            self._timer = self._loop.call_later(
                timeout_s,
                self._interrupts.request,
                QueryCanceled("canceling statement due to statement timeout"),
            )

    def end_with(self, result: str | int) -> None:
        """Note that the statement is over, with this tag, or so many rows returned."""
        self._result = result
        self.end()

    def drop(self, name: str) -> None:
        """Note that what began is over and is no statement of the history; `name` is its span's."""
        if self.root is not None:
            self.root.drop(name)
            self.root = None
        self.end(is_kept=False)

    def end(self, error: DatabaseError | None = None, *, is_kept: bool = True) -> None:
        """Note that the statement is over, if there is one, perhaps with an error."""
        if error is not None:
            self.sqlstate = error.sqlstate
        if self._interrupts.active:
            elapsed = perf_counter() - self._began
            self.state_at = (self.query_at or 0) + int(elapsed * 1e6)
            if is_kept and self.query_at is not None:
                kind = "failed" if error is not None else kind_of(self._result)
                STATEMENTS[kind].observe(elapsed)
                settings = self._variables.settings
                if settings.is_logged or error is not None:
                    self._log(elapsed, error)
                if settings.history_rate != "0":
                    who = self._who
                    if who is None or settings.version != self._who_at:
                        who = self._who = self._find_who()
                        self._who_at = settings.version
                    began, ended = self.query_at, self.state_at
                    rate, result = settings.history_rate, self._result
                    self._history.add(who, rate, self.query, began, ended, result, error)
            if self.root is not None:
                self._end_span(error)
            self._result = None
        self._interrupts.end()
        self._idle_since = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_span(self, error: DatabaseError | None) -> None:
        """End the span of the statement; the texts have no secrets, and no values of parameters."""
        assert self.root is not None
        who, text = self._find_who(), redacted(self.query, self.sqlstate)
        attributes: dict[str, tracing.Attribute] = {
            "db.system.name": "foreshore",
            "db.namespace": who.database,
            "db.query.text": text,
            "db.user": who.name,
            "foreshore.session": who.pid,
            "foreshore.application": who.application,
        }
        if isinstance(self._result, int):
            attributes["db.response.returned_rows"] = self._result
        elif self._result is not None:
            attributes["foreshore.tag"] = self._result
        if error is not None:
            attributes["db.response.status_code"] = error.sqlstate
        words = text.split(None, 1)
        name = words[0].upper()[:40] if words else "statement"
        self.root.end(name, attributes, self._message_of(error))
        self.root = None

    def _message_of(self, error: DatabaseError | None) -> str | None:
        if error is None:
            return None
        return redacted_message(error.message, self.query, error.sqlstate)

    def _log(self, seconds: float, error: DatabaseError | None) -> None:
        """Log the statement if the session's settings say so."""
        message = message_of(self._variables, seconds, self._result, error)
        if message is not None:
            log(logger, message, self._find_who(), self.query, seconds, error)

    def outlives_client(self, terminate: Callable[[DatabaseError], None]) -> bool:
        """Whether what runs goes on to its end now that the client has gone, as in PostgreSQL.

        `terminate` is called later if client_connection_check_interval is set, or if planning
        takes long.
        """
        if self._interrupts.follows:
            return False
        self._terminate = partial(terminate, ConnectionLost())
        if self._plans:
            self._limit_planning()
        interval = milliseconds(self._variables["client_connection_check_interval"])
        if interval:
            self._gone_timer = self._loop.call_later(interval / 1000, self._terminate)
        return True

    def close(self) -> None:
        """End with the session, without the timers, which would keep it for hours."""
        self.end()
        for timer in (self._planning_timer, self._gone_timer):
            if timer is not None:
                timer.cancel()

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Note that a thread parses or plans in the block, which has a limit without a client."""
        self._plans = True
        self._limit_planning()
        try:
            yield
        finally:
            self._plans = False
            if self._planning_timer is not None:
                self._planning_timer.cancel()

    def _limit_planning(self) -> None:
        if self._planning_timer is not None:
            self._planning_timer.cancel()
        if self._terminate is not None:
            self._planning_timer = self._loop.call_later(PLANNING_S, self._terminate)

    def expired(self, now: float, *, in_block: bool) -> DatabaseError | None:
        """Return the error of a session that has been idle for too long at `now`."""
        if self._interrupts.active:
            return None
        kind = "in_transaction_session" if in_block else "session"
        timeout = milliseconds(self._variables[f"idle_{kind}_timeout"])
        if not timeout or now - self._idle_since < timeout / 1000:
            return None
        return IdleInTransactionSessionTimeout() if in_block else IdleSessionTimeout()


# --- signals ---------------------------------------------------------------------------------
