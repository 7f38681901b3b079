"""Scratch directories of replicas, for spilled data and sockets; removed after use.

The owner of a directory holds a lock (flock) on it while it is in use, and removes it at the end.
The operating system releases the lock when the owner dies. So a directory that can be locked is
abandoned, and the next server to start removes it. Several servers on one machine do not disturb
each other. systemd-tmpfiles skips locked directories, too.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "foreshore-replica-"


class Scratch:
    """A private directory below the system's directory for temporary files."""

    def __init__(self) -> None:
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _lock(path)
            if lock is not None:
                self.path = path
                self._lock = lock
                return
            # another process locked it first, took it for abandoned, and is removing it

    def remove(self) -> None:
        """Remove the directory and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> int:
    """Remove this user's scratch directories whose owners have ended; return how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            removed += 1
    return removed


def _lock(path: Path) -> int | None:
    """Lock an existing directory of ours; return None if that is not possible."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone, another user's, or no directory
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # a directory removed between the two calls can be locked, but no longer exists
        if os.fstat(lock).st_uid == os.geteuid() and path.exists():
            return lock
    except BlockingIOError:
        pass
    os.close(lock)
    return None
