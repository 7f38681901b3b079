"""A replica as a child process, which listens on a socket in its scratch directory.

The secret that lets the controller command it goes through its environment and is its own.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from foreshore import blocking
from foreshore.compute.controller.launch import Launched
from foreshore.compute.outbox import Outbox
from foreshore.compute.protocol import Response
from foreshore.compute.scratch import Scratch
from foreshore.compute.socket_path import short_path
from foreshore.compute.transport import SCRATCH_VARIABLE, SECRET_VARIABLE, Connection

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.replica.main")
CONNECT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A replica that is a child process, and the socket that it listens on."""

    pid: int
    path: str
    secret: str
    exited: asyncio.Event

    async def connect(self, connection: Connection[Response]) -> None:
        """Connect as soon as it listens, or return when it has ended."""
        connection.outbox = Outbox(Path(self.path).parent)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_SECONDS
        while not self.exited.is_set():
            try:
                with short_path(self.path) as path:
                    await loop.create_unix_connection(lambda: connection, path)
            except OSError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(0.02)
            else:
                return


class ProcessLauncher:
    """Starts each replica as a child process, and kills it at the end."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Run the process until the context is left."""
        scratch = Scratch()
        path, secret = str(scratch.path / "socket"), secrets.token_hex(32)
        try:
            process = await self._started(path, secret, scratch)
            exited = asyncio.Event()
            watch = asyncio.create_task(_wait(process, exited))
            try:
                yield ChildProcess(process.pid, path, secret, exited)
            finally:
                process.kill()
                await asyncio.shield(watch)
                status = {"pid": process.pid, "status": process.returncode}
                logger.info("replica ended", extra=status)
        finally:
            await asyncio.shield(blocking.run(None, scratch.remove))

    async def _started(self, path: str, secret: str, scratch: Scratch) -> "subprocess.Popen[bytes]":
        """Start the process; if cancelled meanwhile, end it."""
        start = asyncio.create_task(blocking.run(None, self._start, path, secret, scratch))
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            process = await start
            process.kill()
            await _wait(process, asyncio.Event())
            raise

    def _start(self, path: str, secret: str, scratch: Scratch) -> "subprocess.Popen[bytes]":
        """Start the process, whose standard input closes when this process ends.

        This does not use the event loop: uvloop forks, which copies our page tables and runs
        Python's hooks in the child, with locks of threads that do not exist there.
        """
        return subprocess.Popen(
            [*self._command, "--listen", f"unix:{path}", "--lifeline"],
            stdin=subprocess.PIPE,
            env={**os.environ, SECRET_VARIABLE: secret, SCRATCH_VARIABLE: str(scratch.path)},
            start_new_session=True,
        )


async def _wait(process: "subprocess.Popen[bytes]", exited: asyncio.Event) -> None:
    """Wait, on a thread, until the process has ended, and reap it."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(exited.set)

    threading.Thread(target=wait, name="replica", daemon=True).start()
    await exited.wait()
    assert process.stdin is not None
    process.stdin.close()
