"""Turns: of the servers of a data directory one answers at a time.

Whoever opens the data fences off who had it (storage/epoch.py): that server writes nothing more,
but until it notices it answers reads with what it knows. So the newcomer does not answer before the
other has ended, which a lock tells that goes with its process, however that ends.
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
        self._path = data_dir / NAME

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    async def wait(self) -> None:
        """Wait until the server before has ended, or stands still for too long to answer anyone."""
        give_up = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        told = False
        while not self._begin():
            before = {"pid": os.pread(self._descriptor, 20, 0).decode(errors="replace")}
            if asyncio.get_running_loop().time() > give_up:
                logger.warning("the server before does not end, its answers grow old", extra=before)
                return
            if not told:
                told = True
                logger.warning("the data was taken over from a server that runs", extra=before)
            await asyncio.sleep(LOOK_SECONDS)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def _begin(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
