"""The server lock: it lets one server at a time serve a data directory.

    acquire                     before the data is opened; fails if a live server has the lock
    acquire(take_over=True)     fails for no one; then open the data, which fences the live server
    wait_for_others             after a take-over: the other server answers until it notices the
                                fence, so this one answers nobody before the other has ended

The lock is a `flock` on the file `server` in the data directory. The kernel frees it when the
process ends, also by SIGKILL, so the next start is neither refused nor delayed. Each server that
answers has it *shared*. Whoever gets it *exclusively* knows that no such server is left.

A server that stands still (SIGSTOP) does not end. After `PATIENCE_SECONDS` its lease to answer has
run out (lease.py). Then the new server shares the lock with it and answers.

The lock `server.start` admits one starting server at a time. It covers the step from the exclusive
to the shared lock, in which `flock` frees the lock for a moment, and a take-over until its end.

Data that other machines can reach has a second lock, which all of them see (`SharedLock`).
"""

import asyncio
import fcntl
import logging
import os
import socket
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from foreshore.errors import LockFileExists
from foreshore.processes.file_lock import try_lock
from foreshore.processes.owner import LOCK_FILE, Holder, holder_in

logger = logging.getLogger(__name__)

START_FILE = "server.start"
POLL_SECONDS = 0.02
GRACE_SECONDS = 1.0  # before a server is taken for live
ENDING_SECONDS = 20.0  # for a server that has announced its end
PATIENCE_SECONDS = 10.0  # for a server that has been taken over from


class SharedLock(Protocol):
    """A lock that servers on several machines see."""

    async def acquire(self, stop: asyncio.Event, *, patient: bool) -> str | None:
        """Acquire the lock and return None, or return a description of the server that has it.

        With `patient` wait for a server that may have ended until it can no longer have the lock,
        or until `stop` is set.
        """
        ...

    async def wait(self) -> None:
        """Return when the lock is acquired, which goes on if this is cancelled."""
        ...

    async def close(self) -> None:
        """Free the lock."""
        ...


class ServerLock:
    """The lock of one server on a data directory, which must exist."""

    def __init__(self, data_dir: Path, shared: SharedLock | None = None) -> None:
        self.held = False  # shared with none but servers that stand still
        self._data_dir = data_dir
        self._shared = shared
        self._signature: Holder | None = None
        self._start, self._lock = (
            os.open(data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for name in (START_FILE, LOCK_FILE)
        )

    async def acquire(self, stop: asyncio.Event, *, take_over: bool = False) -> None:
        """Acquire the lock; raises LockFileExists if another live server has it.

        Waits for a server that is ending. With `take_over` the lock may not be held on return, and
        `wait_for_others` must follow when the data has been opened. Returns early when `stop` is
        set.
        """
        patience = PATIENCE_SECONDS if take_over else GRACE_SECONDS
        free = await _within(patience, stop, self._lock_exclusively(self._start))
        if take_over:
            free = try_lock(self._lock)
        elif free:
            free = await _within(patience, stop, self._lock_exclusively(self._lock))
            if not free and (ending := self._read()) is not None and ending.ending:
                free = await _within(ENDING_SECONDS, stop, self._lock_exclusively(self._lock))
        what = f'data directory "{self._data_dir}"'
        holder = None if free else str(self._read() or "an unknown process")
        if free and self._shared is not None:
            what = f"the database of {what}"
            holder = await self._shared.acquire(stop, patient=not take_over)
            free = holder is None
        if free:
            await self._share()
        elif take_over:
            logger.warning("the data is taken over from a live server", extra={"holder": holder})
        elif not stop.is_set():
            raise LockFileExists(
                f"{what} is in use by another server",
                detail=f"It is {holder}.",
                hint="End that server, or start this one with --take-over.",
            )

    async def wait_for_others(self, stop: asyncio.Event) -> None:
        """Wait until servers that were taken over from have ended, or may answer no more.

        Returns early when `stop` is set.
        """
        if self.held:
            return
        if not await _within(PATIENCE_SECONDS, stop, self._wait_for_others()):
            if stop.is_set():
                return
            logger.warning("the other server does not end; it may answer nobody any more")
        await self._share()

    def announce_address(self, address: str) -> None:
        """Write into the file where this server answers."""
        if self._signature is not None:
            self._sign(msgspec.structs.replace(self._signature, address=address))

    def announce_end(self) -> None:
        """Write into the file that this server is ending, so that the next one waits for it."""
        if self._signature is not None and self._read() == self._signature:
            self._sign(msgspec.structs.replace(self._signature, ending=True))

    async def close(self) -> None:
        """Free the lock."""
        os.close(self._lock)
        os.close(self._start)
        if self._shared is not None:
            await self._shared.close()

    async def _wait_for_others(self) -> None:
        await self._lock_exclusively(self._lock)
        if self._shared is not None:
            await self._shared.wait()

    async def _lock_exclusively(self, descriptor: int) -> None:
        while not try_lock(descriptor):  # noqa: ASYNC110 - no one tells when it is free
            await asyncio.sleep(POLL_SECONDS)

    async def _share(self) -> None:
        """Hold the lock as all servers do that answer, and let the next one start."""
        while not try_lock(self._lock, shared=True):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        self.held = True
        self._sign(Holder(os.getpid(), socket.gethostname(), datetime.now(UTC)))
        fcntl.flock(self._start, fcntl.LOCK_UN)

    def _sign(self, holder: Holder) -> None:
        """Write into the file which server has the lock."""
        self._signature = holder
        data = msgspec.json.encode(holder)
        try:
            os.pwrite(self._lock, data, 0)  # in place: that rarely needs space on a full disk
            os.ftruncate(self._lock, len(data))
        except OSError as error:
            logger.warning("could not write which server has the lock", exc_info=error)

    def _read(self) -> Holder | None:
        """Return the server that last acquired the lock; None if the file does not name it."""
        return holder_in(os.pread(self._lock, 4096, 0))


async def _within(seconds: float, stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether `work` ends within so many seconds and before `stop` is set; else cancel it."""
    tasks = [asyncio.create_task(each) for each in (work, _wait(stop))]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].done() and tasks[0].result() is None
    finally:
        for task in tasks:
            task.cancel()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()
