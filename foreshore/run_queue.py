"""How long a thread has waited for a processor: time that a busy machine took, not its work."""

import os
import threading
import time
from contextlib import suppress


class RunQueue:
    """The waits of a thread: of a process's first one, or of the current one."""

    def __init__(self, process: int | None = None) -> None:
        thread = f"/proc/self/task/{threading.get_native_id()}"
        place = thread if process is None else f"/proc/{process}/task/{process}"
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"{place}/schedstat", os.O_RDONLY)

    def seconds(self) -> float | None:
        """Return the waits so far; None if the thread has ended or the system is not Linux."""
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError):
            return None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Deadline:
    """A number of seconds from now, not counting the waits of a thread where they are known."""

    def __init__(self, seconds: float, waits: RunQueue) -> None:
        self._waits = waits
        self._end = self._now() + seconds

    def left(self) -> float:
        """Return the seconds that are left, less than 0 beyond the deadline."""
        return self._end - self._now()

    def _now(self) -> float:
        return time.monotonic() - (self._waits.seconds() or 0)
