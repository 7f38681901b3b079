"""A session's share of scratch files: of results, of transactions' writes, of rows that COPY takes.

The share of the session that runs is in `SCRATCH`, also on threads that work for it
(`blocking.run`). A file that is made then belongs to it until it is closed, whoever writes to it.
"""

import resource
from collections.abc import Mapping
from contextvars import ContextVar
from threading import RLock

from foreshore.errors import OutOfMemory
from foreshore.session_limits import SessionLimitExceeded
from foreshore.sizes import bytes_of

MOST_FILES = 4096
OF_LIMIT = 4  # of the files that the process may open, so many-th
OF_FILES = 4  # of these, so many-th for one session


class ScratchShare:
    """The files and bytes of one session; `variables` are its settings, None: no session's."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = variables
        self._lock = RLock()
        self.files = 0
        self.bytes = 0

    def add_file(self) -> None:
        """Count a file more; raises SessionLimitExceeded, or OutOfMemory for all sessions."""
        with self._lock:
            if self._variables is not None and self.files >= most_files() // OF_FILES:
                raise SessionLimitExceeded(
                    "too many temporary files in this session",
                    hint="Close portals and cursors that are not needed.",
                )
            _ALL.add()
            self.files += 1

    def remove_file(self, size: int) -> None:
        """Count a file of this size less."""
        with self._lock:
            self.files -= 1
            self.bytes -= size
        _ALL.remove()

    def add(self, size: int) -> None:
        """Count bytes that are about to be written; raises SessionLimitExceeded."""
        with self._lock:
            text = "-1" if self._variables is None else self._variables["temp_file_limit"]
            if text != "-1" and self.bytes + size > (most := 0 if text == "0" else bytes_of(text)):
                raise SessionLimitExceeded(
                    f"temporary file size exceeds temp_file_limit ({most >> 10}kB)",
                    hint="Ask for less at once, or commit in between.",
                )
            self.bytes += size

    def give(self, size: int) -> None:
        """Count bytes less."""
        with self._lock:
            self.bytes -= size


class _All:
    """The scratch files of the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._count = 0

    def add(self) -> None:
        with self._lock:
            if self._count >= most_files():
                raise OutOfMemory(f"{self._count} results that do not fit in memory are on disk.")
            self._count += 1

    def remove(self) -> None:
        with self._lock:
            self._count -= 1


_ALL = _All()


def most_files() -> int:
    """Return how many scratch files the process may have, by the limit of the moment."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # a server raises it as it starts
    return MOST_FILES if most == resource.RLIM_INFINITY else min(most // OF_LIMIT, MOST_FILES)


NOBODY = ScratchShare()
SCRATCH: ContextVar[ScratchShare] = ContextVar("SCRATCH", default=NOBODY)
