"""Turns of dataflows that call functions in Python, which may take long, or for ever.

Such a dataflow gives way after a while: its work ends by `GivesWay`, and begins again when others
have had their turn. What has been asked of a function goes on meanwhile, and its answers are kept,
so each turn comes farther. A row that takes longer than the function's limit is an error of it.
"""

import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TypeVar

from foreshore.compute.protocol import Failure
from foreshore.errors import DatabaseError, QueryCanceled
from foreshore.expr.ir import Relation
from foreshore.expr.python_calls import calls_python
from foreshore.python_functions.patience import TAKES_LONG, GivesWay, at_turns, patient

R = TypeVar("R")

TURN_SECONDS = (1.0, 2.0, 4.0, 8.0)


class Turns:
    """Whether a dataflow calls functions in Python, and the turns since its last success."""

    def __init__(self, relation: Relation) -> None:
        self.calls_python = calls_python(relation)
        self.count = 0
        self.notice: str | None = None  # what it waits for
        self._unwanted = Event()
        self._since = 0.0

    def limited(self, work: Callable[[], R], others_wait: Callable[[], bool]) -> Callable[[], R]:
        """Return `work` so that it gives way to others after a turn, if it calls functions."""
        return partial(self._turn, work, others_wait) if self.calls_python else work

    def _turn(self, work: Callable[[], R], others_wait: Callable[[], bool]) -> R:
        if not self.count:
            self._since = time.monotonic()
        seconds = TURN_SECONDS[min(self.count, len(TURN_SECONDS) - 1)]
        check = at_turns(seconds, others_wait, self._check)
        with patient(check, engine=True, unwanted=self._unwanted):
            return work()

    def drop(self) -> None:
        """End what has been asked, also in turns that are over: nobody wants it any more."""
        self._unwanted.set()

    def _check(self) -> None:
        if self._unwanted.is_set():
            raise QueryCanceled
        if time.monotonic() - self._since > TURN_SECONDS[0]:
            self.notice = self._told()

    def _told(self) -> str:
        return f"{TAKES_LONG}: {time.monotonic() - self._since:.0f} s by now"

    def taken(self) -> Failure:
        """Note that it has given way; return the failure that its status shows."""
        self.count += 1
        return Failure("38000", self._told())

    def ended(self) -> bool:
        """Note a success; return whether there was a notice."""
        noticed, self.notice, self.count = self.notice is not None, None, 0
        return noticed


def gives_way(error: Exception) -> bool:
    """Whether work has ended to give way; an engine's errors keep the state only."""
    return isinstance(error, DatabaseError) and error.sqlstate == GivesWay.sqlstate
