"""Patience: who waits for hosts may stop to, because the work is not wanted or others go first.

    with patient(check):             calls of hosts on this thread ask `check` a few times a second
    with patient(check, engine=True) those on threads of an engine, too

`check` raises an error to end the wait. If that is `GivesWay`, the call goes on in the background,
and its answers are kept for the next try, until `unwanted` is set: then nobody tries again, and the
hosts of all these calls are killed. After any other error the host of the call is killed.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from foreshore.errors import Unavailable

Check: TypeAlias = Callable[[], None]
_Waiter: TypeAlias = tuple[Check, threading.Event | None]

POLL_SECONDS = 0.1
TAKES_LONG = "a function in Python takes long"  # begins what is told of who waits for one


class GivesWay(Unavailable):
    """A function takes long, and other work goes first; the same work is to be tried again."""

    sqlstate = "57W01"  # unknown to clients: it reaches none


class _Patience(threading.local):
    waiter: _Waiter | None = None


_of_thread = _Patience()
_of_engine: list[_Waiter] = []  # of the work that an engine does for this process


@contextmanager
def patient(
    check: Check, *, engine: bool = False, unwanted: threading.Event | None = None
) -> Iterator[None]:
    """Let `check` end waits for hosts within the block, and `unwanted` all calls from there."""
    before, waiter = _of_thread.waiter, (check, unwanted)
    _of_thread.waiter = waiter
    if engine:
        _of_engine.append(waiter)
    try:
        yield
    finally:
        _of_thread.waiter = before
        if engine:
            _of_engine.remove(waiter)


def current_check() -> Check | None:
    """Return what may end the waits of this thread, None if nothing does."""
    waiter = _current()
    return None if waiter is None else waiter[0]


def current_unwanted() -> threading.Event | None:
    """Return what is set when nobody wants this thread's calls any more, None if nothing is."""
    waiter = _current()
    return None if waiter is None else waiter[1]


def _current() -> _Waiter | None:
    if _of_thread.waiter is not None:
        return _of_thread.waiter
    return _of_engine[-1] if _of_engine else None


def at_turns(turn: float, others_wait: Callable[[], bool], check: Check) -> Check:
    """Return a check by which work gives way to others after `turn` seconds from now."""
    begun = time.monotonic()

    def may_go_on() -> None:
        check()
        if time.monotonic() - begun > turn and others_wait():
            raise GivesWay(f"{TAKES_LONG}, and other work goes first")

    return may_go_on
