"""The statements that have ended lately, in memory: what ran, for whom, how long, with what result.

The newest are kept, `MOST` of them, since the start. Texts and messages of errors are kept as their
session knows them and cut to what is shown; whoever shows them hides secrets (`redaction.py`). A
message is kept without the secrets that the cut takes from the text.
"""

from collections import deque
from random import random

import msgspec

from foreshore.errors import DatabaseError
from foreshore.redaction import MOST_SHOWN, redacted_message

MOST = 10_000
_CANCELED = "57014"


class Who(msgspec.Struct, frozen=True, gc=False):
    """Whose statement it is; `role` is the session's role, by id, and its name."""

    role: str
    name: str
    database: str
    application: str
    pid: int


class EndedStatement(msgspec.Struct, frozen=True, gc=False):
    """A statement; times are microseconds since 1970.

    `result` is its command tag, or the number of rows of a query; None: it is not known.
    """

    number: int
    who: Who
    rate: float  # of the statements like it that are kept
    text: str
    began: int
    ended: int
    result: str | int | None
    sqlstate: str | None  # of its error
    message: str | None

    @property
    def status(self) -> str:
        """Return how it ended."""
        if self.sqlstate is None:
            return "success"
        return "canceled" if self.sqlstate == _CANCELED else "error"


class StatementHistory:
    """The history of an environment, which its event loop owns."""

    def __init__(self) -> None:
        self.entries: deque[EndedStatement] = deque(maxlen=MOST)
        self._number = 0

    def add(
        self,
        who: Who,
        rate: str,
        text: str,
        began: int,
        ended: int,
        result: str | int | None = None,
        error: DatabaseError | None = None,
    ) -> None:
        """Keep a statement, or by chance not, if `rate` is below 1."""
        kept = 1.0 if rate == "1" else float(rate)
        if kept < 1 and random() >= kept:
            return
        self._number += 1
        # The error itself would keep the frames that it went through; it may quote a long value.
        state = None if error is None else error.sqlstate
        message = None if error is None else error.message[:MOST_SHOWN]
        if len(text) > MOST_SHOWN:
            if error is not None:  # its secret may be in what is cut off
                message = redacted_message(error.message, text, state)
            text = text[:MOST_SHOWN]
        self.entries.append(
            EndedStatement(self._number, who, kept, text, began, ended, result, state, message)
        )
