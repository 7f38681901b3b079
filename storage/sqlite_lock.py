"""The server lock of a database with consensus in an SQLite file that several directories may name.

It is a `flock` on the file `<consensus>.server`: the kernel frees it when the process ends. SQLite
locks its own file otherwise, and loses those locks when anybody else closes it in this process.
"""

import asyncio
import os
import socket
from pathlib import Path

from foreshore.processes.file_lock import try_lock

POLL_SECONDS = 0.02
GRACE_SECONDS = 1.0  # for a server that is about to end


class SqliteLock:
    """The lock on the consensus of one database, for the servers of one machine."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.with_name(f"{path.name}.server")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def acquire(self, stop: asyncio.Event, *, patient: bool) -> str | None:
        """Acquire the lock and return None, or return a description of the server that has it."""
        left = GRACE_SECONDS if patient else 0.0
        while not self._try():
            if stop.is_set() or left <= 0:
                holder = os.pread(self._descriptor, 4096, 0)
                return holder.decode(errors="replace") or "an unknown process"
            left -= POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def wait(self) -> None:
        """Return when the lock is acquired."""
        while not self._try():  # noqa: ASYNC110 - no one tells when it is free
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        """Free the lock."""
        os.close(self._descriptor)

    def _try(self) -> bool:
        if not try_lock(self._descriptor):
            return False
        signature = f"process {os.getpid()} on {socket.gethostname()}".encode()
        os.pwrite(self._descriptor, signature, 0)
        os.ftruncate(self._descriptor, len(signature))
        return True
