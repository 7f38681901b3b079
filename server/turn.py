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
        """Wait until the server before has ended, or has stood still until its lease ran out.

        Then the turn begins as soon as that one has ended: the next has to wait for this one, too.
        Who is asked to `stop` meanwhile waits no longer.
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

    async def _begin(self) -> None:
        if not self._try():
            before = {"pid": os.pread(self._descriptor, 20, 0).decode(errors="replace")}
            logger.warning("the data was taken over from a server that runs", extra=before)
            while not self._try():  # noqa: ASYNC110 - the other process tells nobody
                await asyncio.sleep(LOOK_SECONDS)
        self.begun = True
        pid = str(os.getpid()).encode()
        os.pwrite(self._descriptor, pid, 0)  # in place, for which a full disk has room
        os.ftruncate(self._descriptor, len(pid))

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
