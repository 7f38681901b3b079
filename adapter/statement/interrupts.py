"""Interruptions of a session."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from foreshore.errors import (
    DatabaseError,
)
from foreshore.scratch_share import NOBODY, SCRATCH, ScratchShare


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
        self.ended = asyncio.Event()  # the session
        self._end: Callable[[DatabaseError], None] = lambda _: None
        self.follows = False  # whether it waits for changes, which may never come

    def request(self, reason: DatabaseError) -> None:
        """End the running statement with `reason`."""
        if self.active and not self._is_done and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        """Have `end` called when the session is to end at once, whatever its client does."""
        self._end = end

    def terminate(self, reason: DatabaseError) -> None:
        """End the session at once with `reason`; a commit on its way to the disk is let through."""
        self.outside_of_shelter(partial(self._end, reason))

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

    def outside_of_shelter(self, act: Callable[[], None]) -> None:
        """Call `act` now, or at the end of `Sheltered`."""
        if self._shelters:
            self._after_shelter.append(act)
        else:
            act()

    def check(self) -> None:
        """Raise the error of a request, if there is one."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason


class Sheltered(Struct, eq=False):
    """A block that no request interrupts; no generator, because every change enters it."""

    interrupts: Interrupts
    outer: asyncio.Task[object] | None = None

    def __enter__(self) -> None:
        interrupts = self.interrupts
        self.outer, interrupts._task = interrupts._task, None
        interrupts._shelters += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        interrupts = self.interrupts
        interrupts._task = self.outer
        interrupts._shelters -= 1
        if error is None:
            interrupts._is_done, interrupts._reason = True, None
        if not interrupts._shelters:
            waiting, interrupts._after_shelter = interrupts._after_shelter, []
            for act in waiting:
                act()
