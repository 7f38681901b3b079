"""Interrupts: how a running statement hears of a cancel request or that its time is up.

While a statement runs inside `running`, `request` cancels its task at the point where it waits, and
`running` turns that into the error that was asked for. Between statements a request means nothing,
and inside `sheltered` (a commit on its way to the disk) it comes too late; if that goes well, so it
does for the rest of the statement: the client is told what has been done. A cancellation from
elsewhere, as when the client is gone, passes through untouched. What is to end the session itself,
whatever it does, waits for the end of `sheltered` alone.
"""

import asyncio
from collections.abc import Callable

from foreshore.errors import DatabaseError


class Interrupts:
    """The interrupts of one session."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._reason: DatabaseError | None = None
        self._shelters = 0
        self._after_shelter: list[Callable[[], None]] = []
        self._is_done = False  # nothing of the statement can be undone any more
        self.active = False  # whether a statement is under way, perhaps between two batches

    def request(self, reason: DatabaseError) -> None:
        """Let the statement that is under way end with `reason`."""
        if self.active and not self._is_done and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    def begin(self) -> None:
        """Say that a statement is under way from now on."""
        self.active = True
        self._is_done = False
        self._reason = None

    def end(self) -> None:
        """Say that it is over."""
        self.active = False
        self._reason = None

    def running(self) -> "_Running":
        """Let requests interrupt the body, which is a part of a statement."""
        return _Running(self)

    def sheltered(self) -> "_Sheltered":
        """Let no request interrupt the body."""
        return _Sheltered(self)

    def outside_of_shelter(self, act: Callable[[], None]) -> None:
        """Have `act` called now, or as soon as the body of `sheltered` has been left."""
        if self._shelters:
            self._after_shelter.append(act)
        else:
            act()

    def check(self) -> None:
        """Raise if the statement was asked to end."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason


# Classes and no generators, as every statement enters them.


class _Running:
    __slots__ = ("_interrupts", "_outer", "_task")

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self._interrupts
        interrupts.check()
        self._task = asyncio.current_task()
        self._outer, interrupts._task = interrupts._task, self._task

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        interrupts, task = self._interrupts, self._task
        interrupts._task = self._outer
        if not isinstance(error, asyncio.CancelledError) or interrupts._reason is None:
            return
        if task is None:
            return
        reason, interrupts._reason = interrupts._reason, None
        if not task.uncancel():  # else it is to end altogether, too
            raise reason from None


class _Sheltered:
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
