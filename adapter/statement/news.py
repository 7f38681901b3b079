"""News for the client of a session: notices, notifications and changed parameters."""

from collections.abc import Callable, Mapping, Sequence

from foreshore.adapter.client import Notice
from foreshore.notifications import Inbox, Notification
from foreshore.session_variables import Variables

SEVERITIES = {"debug1": 0, "log": 1, "info": 2, "notice": 3, "warning": 4, "error": 5}


class Notices:
    """The notices that a session sends its client; `tell` is called when one should not wait."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.waiting: list[Notice] = []
        self.tell: Callable[[], None] = lambda: None

    def __call__(
        self,
        message: str,
        *,
        now: bool = False,
        severity: str = "NOTICE",
        sqlstate: str = "00000",
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Send a notice with the next answer, or at once if `now`.

        Notices below client_min_messages are dropped.
        """
        least = SEVERITIES.get(self._variables["client_min_messages"], 0)
        if SEVERITIES[severity.lower()] >= least:
            self.waiting.append(Notice(message, severity, sqlstate, detail, hint))
            if now:
                self.tell()

    def drain(self) -> list[Notice]:
        """Return the notices since the last call."""
        waiting, self.waiting = self.waiting, []
        return waiting


class News:
    """The notices, the notifications and the changed parameters of a session."""

    def __init__(self, pid: int, variables: Variables, in_transaction: Callable[[], bool]) -> None:
        self._variables = variables
        self._in_transaction = in_transaction
        self.notice = Notices(variables)
        self.inbox = Inbox(pid)

    @property
    def may_wait(self) -> bool:
        """Whether there may be notices, notifications or changed parameters."""
        variables = self._variables
        is_set = variables.version != variables.reported_version
        return bool(is_set or self.notice.waiting or self.inbox.waiting)

    def changed_parameters(self) -> Mapping[str, str]:
        """Return what ParameterStatus has to tell since the last call."""
        return self._variables.drain_reports()

    def notices(self) -> Sequence[Notice]:
        """Return the notices since the last call."""
        return self.notice.drain()

    def when_noticed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notices that should not wait for an answer."""
        self.notice.tell = tell

    def notifications(self, most: int) -> Sequence[Notification]:
        """Return the next notifications, at most so many; none within a transaction."""
        if not self.inbox or self._in_transaction():
            return ()
        return self.inbox.take(most)

    def when_notified(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notifications."""
        self.inbox.tell = tell
