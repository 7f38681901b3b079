"""Scratch directories: what a replica spills, and its socket, gone when nobody uses them any more.

Who makes one holds a lock (flock) on the directory itself for as long as it is in use, and removes
it at the end. The operating system lets go of a lock when its holder ends, however it ends; so a
directory that anybody can lock belongs to nobody, and whichever server starts next removes it.
Several servers on one machine do not disturb each other. systemd-tmpfiles keeps its hands off
locked directories for the same reason.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "foreshore-replica-"


class Scratch:
    """A directory of our own that only we may enter, below the system's one for temporary files."""

    def __init__(self) -> None:
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _lock(path)
            if lock is not None:
                self.path = path
                self._lock = lock
                return
            # somebody took it for abandoned before we had the lock, and removes it

    def remove(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> int:
    """Remove this user's scratch directories whose holders have ended; return how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            removed += 1
    return removed


def _lock(path: Path) -> int | None:
    """Lock a directory of ours that is still there; None if that cannot be."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone, another user's, or no directory
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # what was removed between the two calls can be locked, but is there no more
        if os.fstat(lock).st_uid == os.geteuid() and path.exists():
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None
