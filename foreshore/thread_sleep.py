"""For how long a thread has slept: it waits for a lock, a file, another process or a clock.

A thread that has had no time of the processor, and could not use any now, has slept all the while.
So a busy machine makes no difference. Nor does the interpreter's lock (GIL): a thread that waits
for it wakes each 5 ms, to ask for it again.
"""

import os
import threading
import time
from contextlib import suppress
from threading import get_ident
from time import perf_counter

_ASLEEP = (b"S", b"D")  # states of the system: waiting, also where no signal interrupts it


class ThreadSleep:
    """The sleep of the thread that makes it, as another thread sees it."""

    def __init__(self) -> None:
        self._clock = time.pthread_getcpuclockid(get_ident())
        self._file: int | None = None
        with suppress(OSError):  # not Linux
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/stat", os.O_RDONLY)
        self.spent = time.clock_gettime(self._clock)
        self._since = perf_counter()

    def look(self) -> float:
        """Return for how many seconds the thread has not run, 0 if it has since the last look.

        `spent` is then its time of the processor.
        """
        spent, now = time.clock_gettime(self._clock), perf_counter()
        if spent != self.spent:
            self.spent, self._since = spent, now
        return now - self._since

    def could_not_run(self) -> bool:
        """Return whether the thread sleeps, rather than waits for a processor; False if unknown."""
        if self._file is None:
            return False
        try:
            state = os.pread(self._file, 200, 0).rpartition(b") ")[2]
        except OSError:
            return False
        return state.startswith(_ASLEEP)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
