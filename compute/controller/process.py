"""A replica's link in the controller: a process or an address, and a connection.

    start -> connect -> commanded -> lost -> pause -> start ...

A child process that dies, or whose connection is lost, is restarted after a pause that grows until
it has run for a while. The secret that authorizes the controller is passed in the process's
environment and is different for each process.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from foreshore import blocking
from foreshore.compute.protocol import Hello, Response
from foreshore.compute.scratch import Scratch
from foreshore.compute.transport import (
    SCRATCH_VARIABLE,
    SECRET_VARIABLE,
    Connection,
    Tables,
)

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.replica.replica")
CONNECT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 10.0
HEALTHY_SECONDS = 30.0


class ReplicaLink:
    """Keeps one replica running and connected, until cancelled.

    `connected` is called with each new connection, `deliver` with each message, and `lost` at the
    end of a connection.
    """

    def __init__(
        self,
        name: str,
        address: str | None,
        connected: Callable[[Connection[Response]], None],
        deliver: Callable[[Response, Tables], None],
        lost: Callable[[], None],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.name = name
        self.address = address  # None: a child process
        self.pid: int | None = None
        self.starts = 0
        self.state = "starting"
        self._connected = connected
        self._deliver = deliver
        self._lost = lost
        self._command = command

    async def run(self) -> None:
        """Start and connect, repeatedly, until cancelled."""
        loop = asyncio.get_running_loop()
        wait = 0.1
        while True:
            began = loop.time()
            self.starts += 1
            try:
                if self.address is None:
                    await self._run_process()
                else:
                    secret = os.environ.get(SECRET_VARIABLE, "")
                    await self._converse(self.address, secret, asyncio.Event())
            except OSError as error:
                logger.warning("replica unreachable", extra={"replica": self.name, "error": error})
            except Exception:
                logger.exception("replica given up for now", extra={"replica": self.name})
            if loop.time() - began > HEALTHY_SECONDS:
                wait = 0.1
            self.state = "waiting"
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _run_process(self) -> None:
        self.state = "starting"
        scratch = Scratch()
        try:
            await self._run_in(scratch)
        finally:
            await asyncio.shield(blocking.run(None, scratch.remove))

    async def _run_in(self, scratch: Scratch) -> None:
        """Run the process until it ends or its connection is lost, then end it."""
        address = f"unix:{scratch.path / 'socket'}"
        secret = secrets.token_hex(32)
        start = asyncio.create_task(blocking.run(None, self._start, address, secret, scratch))
        try:
            process = await asyncio.shield(start)
        except asyncio.CancelledError:
            process = await start
            process.kill()
            await _wait(process, asyncio.Event())
            raise
        self.pid = process.pid
        exited = asyncio.Event()
        watch = asyncio.create_task(_wait(process, exited))
        try:
            await self._converse(address, secret, exited)
            if not exited.is_set():
                logger.warning("replica lost", extra={"replica": self.name, "pid": process.pid})
        finally:
            process.kill()
            self.pid = None
            await asyncio.shield(watch)
            logger.info("replica ended", extra={"replica": self.name, "status": process.returncode})

    def _start(self, address: str, secret: str, scratch: Scratch) -> "subprocess.Popen[bytes]":
        """Start the process, whose standard input closes when this process ends.

        This does not use the event loop: uvloop forks, which copies our page tables and runs
        Python's hooks in the child, with locks of threads that do not exist there.
        """
        return subprocess.Popen(
            [*self._command, "--listen", address, "--lifeline"],
            stdin=subprocess.PIPE,
            env={**os.environ, SECRET_VARIABLE: secret, SCRATCH_VARIABLE: str(scratch.path)},
            start_new_session=True,
        )

    async def _converse(self, address: str, secret: str, exited: asyncio.Event) -> None:
        """Connect as soon as possible, and return when the connection is lost."""
        over = asyncio.Event()
        connection: Connection[Response] = Connection(
            Response,
            lambda _, message, tables: self._deliver(message, tables),
            lambda _: over.set(),
        )
        await self._connect(address, connection, exited)
        if connection.closed or exited.is_set():
            return
        self.state = "connected"
        connection.send(Hello(secret, self.name))
        self._connected(connection)
        try:
            await over.wait()
        finally:
            connection.abort()
            self.state = "lost"
            self._lost()

    async def _connect(
        self, address: str, connection: Connection[Response], exited: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_SECONDS
        while not exited.is_set():
            try:
                if address.startswith("unix:"):
                    path = address.removeprefix("unix:")
                    await loop.create_unix_connection(lambda: connection, path)
                else:
                    host, _, port = address.rpartition(":")
                    await loop.create_connection(lambda: connection, host, int(port))
            except OSError:
                if loop.time() > deadline or not address.startswith("unix:"):
                    raise
                await asyncio.sleep(0.02)
            else:
                return


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
