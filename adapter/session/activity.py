"""The present activity of a session, its start, and interruptions of it.

While a statement runs inside `running`, `request` cancels its task at the point where it waits, and
`running` raises the given error instead: of a cancel request or of statement_timeout. Requests are
ignored between statements and inside `sheltered`, a commit on its way to the disk. After a commit
the statement can no longer be interrupted: the client is sent its success. A cancellation from
elsewhere, for example when the client is gone, passes through untouched. The end of the session
(pg_terminate_backend, idle time-outs) waits for the end of `sheltered` alone; what the session has
not committed is rolled back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from foreshore import tracing
from foreshore.catalog.rights import may_act_as, owns
from foreshore.clock import Clock
from foreshore.errors import (
    AdminShutdown,
    DatabaseError,
    IdleInTransactionSessionTimeout,
    IdleSessionTimeout,
    InsufficientPrivilege,
    NumericValueOutOfRange,
    QueryCanceled,
    Unavailable,
)
from foreshore.latencies import STATEMENTS, kind_of
from foreshore.redaction import redacted, redacted_message
from foreshore.scratch_share import NOBODY, SCRATCH, ScratchShare
from foreshore.session_variables import Variables
from foreshore.setting_kinds import milliseconds
from foreshore.statement_history import StatementHistory, Who
from foreshore.statement_log import log, message_of
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session
    from foreshore.adapter.statement.context import StatementContext

logger = logging.getLogger(__name__)

PLANNING_S = 10  # how long a text may be parsed or planned whose client has gone

STATES = {"I": "idle", "T": "idle in transaction", "E": "idle in transaction (aborted)"}


class ConnectionLost(Unavailable):
    """The client has gone, and what it waited for has lasted too long since then."""

    sqlstate = "08006"

    def __init__(self) -> None:
        super().__init__("connection to client lost")


class Interrupts:
    """The interrupts of one session."""

    def __init__(self, scratch: ScratchShare = NOBODY) -> None:
        self.scratch = scratch
        self._task: asyncio.Task[object] | None = None
        self._reason: DatabaseError | None = None
        self._outer: list[asyncio.Task[object] | None] = []  # of the blocks around the present one
        self._shelters = 0
        self._after_shelter: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None  # of the statement
        self._is_done = False  # the statement has committed
        self.active = False  # whether a statement is running, perhaps between two batches
        self.follows = False  # whether it waits for changes, which may never come

    def request(self, reason: DatabaseError) -> None:
        """End the running statement with `reason`."""
        if self.active and not self._is_done and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    def begin(self) -> None:
        """Note that a statement begins."""
        self.active = True
        self._is_done = self.follows = False
        self._reason = None

    def end(self) -> None:
        """Note that the statement has ended."""
        self.active = False
        self._reason = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` then if the statement still runs; the last one that is given counts."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)

    def running(self) -> "Interrupts":
        """Let requests interrupt the block, which is a part of a statement."""
        return self

    def __enter__(self) -> None:
        if self._reason is not None:
            self.check()
        SCRATCH.set(self.scratch)
        self._outer.append(self._task)
        self._task = asyncio.current_task()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        task, self._task = self._task, self._outer.pop()
        if error is None or not isinstance(error, asyncio.CancelledError):
            return
        if self._reason is None or task is None:
            return
        reason, self._reason = self._reason, None
        if not task.uncancel():  # else the task is cancelled too
            raise reason from None

    def sheltered(self) -> "_Sheltered":
        """Let no request interrupt the block."""
        return _Sheltered(self)

    def outside_of_shelter(self, act: Callable[[], None]) -> None:
        """Call `act` now, or at the end of `sheltered`."""
        if self._shelters:
            self._after_shelter.append(act)
        else:
            act()

    def check(self) -> None:
        """Raise the error of a request, if there is one."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason


class _Sheltered:
    """A class instead of a generator, because every change enters it."""

    __slots__ = ("_interrupts", "_outer")

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self._interrupts
        self._outer, interrupts._task = interrupts._task, None
        interrupts._shelters += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        interrupts = self._interrupts
        interrupts._task = self._outer
        interrupts._shelters -= 1
        if error is None:
            interrupts._is_done, interrupts._reason = True, None
        if not interrupts._shelters:
            waiting, interrupts._after_shelter = interrupts._after_shelter, []
            for act in waiting:
                act()


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
        own, most = self._variables["statement_timeout"], self._variables["max_statement_time"]
        if own != "0" or most != "0":
            times = (milliseconds(each) or 0 for each in (own, most) if each != "0")
            self._timer = asyncio.get_running_loop().call_later(
                min(times) / 1000,
                self._interrupts.request,
                QueryCanceled("canceling statement due to statement timeout"),
            )

    def returned(self, result: str | int) -> None:
        """Note the tag of the running statement, or how many rows it has returned."""
        self._result = result

    def end_rows(self, rows: int) -> None:
        """Note that the statement is over, which has returned so many rows."""
        self._result = rows
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
                self._log(elapsed, error)
                self._remember(self.query_at, error)
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
        given = self._variables
        is_chosen = given["log_min_duration_statement"] != "-1" or given["log_statement"] != "none"
        if not is_chosen and error is None:
            return
        message = message_of(given, seconds, self._result, error)
        if message is not None:
            log(logger, message, self._find_who(), self.query, seconds, error)

    def _remember(self, began: int, error: DatabaseError | None = None) -> None:
        """Add the statement to the history."""
        rate, version = self._variables["statement_logging_sample_rate"], self._variables.version
        if rate == "0":
            return
        if self._who is None or version != self._who_at:
            self._who, self._who_at = self._find_who(), version
        self._history.add(self._who, rate, self.query, began, self.state_at, self._result, error)

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


async def signal(context: "StatementContext", function: str, args: Sequence[Datum]) -> bool | None:
    """Return whether the session of the first argument was signalled; None for NULL."""
    if None in args:
        return None
    pid, *rest = (int(str(arg)) for arg in args)
    timeout_ms = rest[0] if rest else 0
    if timeout_ms < 0:
        raise NumericValueOutOfRange('"timeout" must not be negative')
    target = context.sessions.get(pid)
    if target is None:
        _warn(context, f"PID {pid} is not a PostgreSQL backend process")
        return False
    verb = "cancel query" if function.startswith("pg_cancel_backend") else "terminate process"
    _require_signal(context, target, verb)
    if function.startswith("pg_cancel_backend"):
        if pid == context.pid:
            raise QueryCanceled
        target.interrupt(QueryCanceled())
        return True
    target.terminate(AdminShutdown())
    if pid == context.pid:
        await asyncio.sleep(0)  # the session ends here
    if timeout_ms:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await target.closed.wait()
        except TimeoutError:
            unit = "millisecond" if timeout_ms == 1 else "milliseconds"
            _warn(context, f"backend with PID {pid} did not terminate within {timeout_ms} {unit}")
            return False
    return True


def _require_signal(context: "StatementContext", target: "Session", verb: str) -> None:
    """Raise InsufficientPrivilege unless the role has the rights of the session's role."""
    role, other = context.role, target.roles.session
    if other.superuser and not role.superuser:
        noun = verb.replace("cancel query", "query").replace("terminate process", "process")
        raise InsufficientPrivilege(f"must be a superuser to {verb.split()[0]} superuser {noun}")
    state = context.planner.state
    if not (owns(state, role, other.id) or may_act_as(state, role, "pg_signal_backend")):
        what = "whose query is being canceled" if verb.startswith("c") else "whose process is being"
        what += "" if verb.startswith("c") else " terminated"
        raise InsufficientPrivilege(
            f"must be a member of the role {what} or member of pg_signal_backend"
        )


def _warn(context: "StatementContext", message: str) -> None:
    context.notice(message, severity="WARNING", sqlstate="01000")
