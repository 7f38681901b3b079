"""A process of ours, such as a replica, as a child that listens in its scratch directory.

The secret that lets the controller command it goes through its environment and is its own.
"""

import asyncio
import contextlib
import logging
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreshore import blocking
from foreshore.processes.child_environment import COMPUTE, Names, child_environment
from foreshore.processes.launch import Launched
from foreshore.processes.outbox import Outbox
from foreshore.processes.scratch import Scratch
from foreshore.processes.socket_path import short_path
from foreshore.processes.transport import SCRATCH_VARIABLE, SECRET_VARIABLE, Connection

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

    async def connect(self, connection: Connection[Any]) -> None:
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


@dataclass(frozen=True, slots=True)
class _Begun:
    """A process, its scratch directory and its secret."""

    process: "subprocess.Popen[bytes]"
    scratch: Scratch
    secret: str
    program: str

    @property
    def path(self) -> str:
        """Return the socket on which it listens."""
        return _socket(self.scratch)


class ProcessLauncher:
    """Starts each replica as a child process, and kills it at the end.

    A server that starts knows its replicas late: meanwhile a *spare* process loads what a replica
    of size `embedded` needs, and the first replica gets it.
    """

    def __init__(self, command: Sequence[str] = COMMAND, *names: Names, umask: int = -1) -> None:
        """Each process gets variables with these names; by default those of replicas.

        `umask` is its own; -1: that of this process.
        """
        self._command, self._names, self._umask = command, names or (COMPUTE,), umask
        self._spare: asyncio.Task[_Begun] | None = None

    def begin_spare(self) -> None:
        """Begin to start the spare process."""
        assert self._spare is None, "there is one"
        self._spare = asyncio.get_running_loop().create_task(self._begin("--preload"))

    async def end_spare(self) -> None:
        """End the spare process if no replica got it."""
        spare, self._spare = self._spare, None
        if spare is not None:
            async with self._running(spare):
                pass

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Run the process until the context is left."""
        spare, self._spare = self._spare, None
        start = spare or asyncio.create_task(self._begin())
        async with self._running(start) as (begun, exited):
            yield ChildProcess(begun.process.pid, begun.path, begun.secret, exited)

    @asynccontextmanager
    async def _running(
        self, start: "asyncio.Task[_Begun]"
    ) -> AsyncIterator[tuple[_Begun, asyncio.Event]]:
        """End the process that is being started when the context is left, or on cancellation."""
        exited = asyncio.Event()
        try:
            begun = await asyncio.shield(start)
        except asyncio.CancelledError:
            begun = await start
            await _end(begun, asyncio.create_task(_wait(begun.process, exited)))
            raise
        watch = asyncio.create_task(_wait(begun.process, exited))
        try:
            yield begun, exited
        finally:
            await _end(begun, watch)

    async def _begin(self, *options: str) -> _Begun:
        """Start a process; its scratch directory is removed if that fails."""
        scratch, secret = Scratch(), secrets.token_hex(32)
        try:
            process = await blocking.run(None, self._start, scratch, secret, options)
        except BaseException:
            await asyncio.shield(blocking.run(None, scratch.remove))
            raise
        return _Begun(process, scratch, secret, self._command[-1])

    def _start(
        self, scratch: Scratch, secret: str, options: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        """Start the process, whose standard input closes when this process ends.

        This does not use the event loop: uvloop forks, which copies our page tables and runs
        Python's hooks in the child, with locks of threads that do not exist there.
        """
        return subprocess.Popen(
            [*self._command, "--listen", f"unix:{_socket(scratch)}", "--lifeline", *options],
            stdin=subprocess.PIPE,
            env=child_environment(
                scratch.path / "home",
                *self._names,
                **{SECRET_VARIABLE: secret, SCRATCH_VARIABLE: str(scratch.path)},
            ),
            umask=self._umask,
            start_new_session=True,
        )


def _socket(scratch: Scratch) -> str:
    return str(scratch.path / "socket")


async def _end(begun: _Begun, watch: "asyncio.Task[None]") -> None:
    """Kill a process, and remove its scratch directory once it has ended."""
    try:
        asked = begun.process.poll() is None
        begun.process.kill()
        await asyncio.shield(watch)
        status = {"pid": begun.process.pid, "status": begun.process.returncode}
        program = {"program": begun.program, **status}
        if asked:
            logger.debug("a process was ended", extra=program)
        else:
            logger.warning("a process has ended by itself", extra=program)
    finally:
        await asyncio.shield(blocking.run(None, begun.scratch.remove))


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
