"""The time that a function may take for a row: a thread that looks on, and interrupts it.

The exception is raised within the call, like that of an interrupt from the keyboard, so it ends
loops in Python and what lets signals in. A function that catches it, or is in other code for long,
goes on until its host is killed. The time for which the call had no processor to run on does not
count, where the system tells it (Linux): a busy machine is not the function's fault.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from foreshore.run_queue import Deadline, RunQueue

LOOKS = 10  # in the time that a row may take


class TookTooLong(BaseException):
    """A row has taken longer than it may."""


class RowLimit:
    """Watches the calls of the main thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls = 0
        self._is_inside = False
        self._late = -1  # the call that is to end
        self._main = threading.main_thread().ident or 0
        self._busy = threading.Event()
        signal.signal(signal.SIGUSR1, self._end)
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def seconds(self) -> float:
        """The time that a row may take."""
        return self._seconds

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Look on while a batch is evaluated."""
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()

    def enter(self) -> None:
        """Note that a call begins; its exceptions are caught from here on."""
        self._calls += 1
        self._is_inside = True

    def leave(self) -> None:
        """Note that it has ended."""
        self._is_inside = False

    def _watch(self) -> None:
        waits = RunQueue(os.getpid())  # of the main thread
        while True:
            self._busy.wait()
            call, deadline = self._calls, Deadline(self._seconds, waits)
            while self._busy.is_set() and self._calls == call:
                time.sleep(self._seconds / LOOKS)
                if deadline.left() < 0 and self._calls == call:
                    self._late = call
                    with suppress(ProcessLookupError):
                        signal.pthread_kill(self._main, signal.SIGUSR1)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._is_inside and self._calls == self._late:
            self._late = -1
            raise TookTooLong
