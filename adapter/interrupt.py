"""Interrupts: how a running statement hears of a cancel request or that its time is up.

While a statement runs inside `running`, `request` cancels its task at the point where it waits, and
`running` turns that into the error that was asked for. Between statements a request means nothing,
and inside `sheltered` (a commit on its way to the disk) it comes too late. A cancellation from
elsewhere, as when the client is gone, passes through untouched. What is to end the session itself,
whatever it does, waits for the end of `sheltered` alone.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foreshore.errors import DatabaseError


class Interrupts:
    """The interrupts of one session."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._reason: DatabaseError | None = None
        self._shelters = 0
        self._after_shelter: list[Callable[[], None]] = []
        self.active = False  # whether a statement is under way, perhaps between two batches

    def request(self, reason: DatabaseError) -> None:
        """Let the statement that is under way end with `reason`."""
        if self.active and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    def begin(self) -> None:
        """Say that a statement is under way from now on."""
        self.active = True
        self._reason = None

    def end(self) -> None:
        """Say that it is over."""
        self.active = False
        self._reason = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let requests interrupt the body, which is a part of a statement."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason
        task = asyncio.current_task()
        outer, self._task = self._task, task
        try:
            yield
        except asyncio.CancelledError:
            if self._reason is None or task is None:
                raise
            reason, self._reason = self._reason, None
            if task.uncancel():  # it is to end altogether, too
                raise
            raise reason from None
        finally:
            self._task = outer

    @contextmanager
    def sheltered(self) -> Iterator[None]:
        """Let no request interrupt the body."""
        outer, self._task = self._task, None
        self._shelters += 1
        try:
            yield
        finally:
            self._task = outer
            self._shelters -= 1
            if not self._shelters:
                waiting, self._after_shelter = self._after_shelter, []
                for act in waiting:
                    act()

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
