"""Links: keep a process started by a launcher and connected.

    start -> connect -> commanded -> lost -> pause -> start ...

A process that ends, or whose connection is lost, is restarted after a pause that grows until it has
run for a while.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from foreshore.errors import DatabaseError
from foreshore.processes.handshake import Handshake
from foreshore.processes.launch import Launched, Launcher
from foreshore.processes.messages import Hello, Message
from foreshore.processes.transport import Connection, Tables

logger = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 10.0
HEALTHY_SECONDS = 30.0

M = TypeVar("M", bound=Message)


class Link(Generic[M]):
    """Keeps one process running and connected, until cancelled.

    `receives` is the union of the messages that the process sends, and `kind` is the word for it in
    the log. `connected` is called with each new connection, `deliver` with each message, and `lost`
    at the end of a connection.
    """

    def __init__(
        self,
        name: str,
        launcher: Launcher,
        receives: Any,
        connected: Callable[[Connection[M]], None],
        deliver: Callable[[M, Tables], None],
        lost: Callable[[], None],
        kind: str = "replica",
    ) -> None:
        self.name = name
        self.pid: int | None = None
        self.starts = 0
        self.state = "starting"
        self._launcher = launcher
        self._receives = receives
        self._kind = kind
        self._connected = connected
        self._deliver = deliver
        self._lost = lost

    async def run(self) -> None:
        """Start and connect, repeatedly, until cancelled."""
        loop = asyncio.get_running_loop()
        wait = 0.1
        while True:
            began = loop.time()
            self.starts += 1
            self.state = "starting"
            try:
                async with self._launcher.start() as process:
                    self.pid = process.pid
                    await self._converse(process)
            except (OSError, DatabaseError) as error:
                told = {self._kind: self.name, "error": error}
                logger.warning("%s unreachable", self._kind, extra=told)
            except Exception:
                logger.exception(
                    "%s failed; trying again", self._kind, extra={self._kind: self.name}
                )
            finally:
                self.pid = None
            if loop.time() - began > HEALTHY_SECONDS:
                wait = 0.1
            self.state = "waiting"
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _converse(self, process: Launched) -> None:
        """Connect as soon as possible, and return when the connection is lost."""
        over = asyncio.Event()
        connection: Connection[M] = Connection(
            self._receives,
            lambda _, message, tables: self._deliver(message, tables),
            lambda _: over.set(),
            Handshake("connects", process.secret),
        )
        await process.connect(connection)
        if process.exited.is_set():
            return
        try:
            await connection.proven()
        except BaseException:
            connection.abort()
            raise
        if connection.closed or process.exited.is_set():
            return
        self.state = "connected"
        connection.send(Hello(self.name))
        self._connected(connection)
        try:
            await over.wait()
        finally:
            connection.abort()
            self.state = "lost"
            self._lost()
        if not process.exited.is_set():
            told = {self._kind: self.name, "pid": process.pid}
            logger.warning("%s lost", self._kind, extra=told)
