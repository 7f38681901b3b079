"""Locks of open files by `flock`, which the kernel frees when the process ends."""

import fcntl


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, or change its lock; return False if another lock prevents that."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
