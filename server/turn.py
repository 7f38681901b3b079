"""Turns: of the servers of a data directory one answers at a time.

Whoever opens the data fences off who had it (storage/epoch.py): that server writes nothing more,
but until it notices it answers reads with what it knows. So the newcomer does not answer before the
other has ended, which a lock tells that goes with its process, however that ends, or has stood
still for so long that its lease to answer has run out (lease.py).
"""

import asyncio
import fcntl
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)

NAME = "server"  # the file in the data directory
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 10.0


class Turn:
    """A turn at a data directory, which must be there; begun by `wait`, ended with the block."""

    def __init__(self, data_dir: Path) -> None:
        self.begun = False
        self._path = data_dir / NAME
        self._beginning: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
        os.close(self._descriptor)

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until the servers before have ended, or stood still until their lease ran out.

        Then this one answers beside them, and the next has to wait for it, too. Who is asked to
        `stop` meanwhile waits no longer.
        """
        self._beginning = asyncio.create_task(self._begin())
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                [self._beginning, stopping],
                timeout=PATIENCE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
        if self._beginning in done:
            self._beginning.result()
        elif not done:
            logger.warning("the server before does not end, it may answer nobody any more")
            self._beginning.cancel()
            self._beginning = asyncio.create_task(self._share())
            await asyncio.sleep(0)  # in which it has the lock, if the other is not about to

    async def _begin(self) -> None:
        if not self._try(fcntl.LOCK_EX):
            before = {"pid": os.pread(self._descriptor, 20, 0).decode(errors="replace")}
            logger.warning("the data was taken over from a server that runs", extra=before)
            while not self._try(fcntl.LOCK_EX):  # noqa: ASYNC110 - the other tells nobody
                await asyncio.sleep(LOOK_SECONDS)
        await self._share()

    async def _share(self) -> None:
        """Have the lock as all have it who answer, so that who waits to be alone waits for all.

        Who is alone in between has fenced this one off, or will be by it, and does not answer.
        """
        while not self._try(fcntl.LOCK_SH):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        self.begun = True
        pid = str(os.getpid()).encode()
        os.pwrite(self._descriptor, pid, 0)  # in place, for which a full disk has room
        os.ftruncate(self._descriptor, len(pid))

    def _try(self, lock: int) -> bool:
        try:
            fcntl.flock(self._descriptor, lock | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
