"""Links: keep a replica started by a launcher and connected.

    start -> connect -> commanded -> lost -> pause -> start ...

A replica that ends, or whose connection is lost, is restarted after a pause that grows until it has
run for a while.
"""

import asyncio
import logging
from collections.abc import Callable

from foreshore.compute.controller.launch import Launched, Launcher
from foreshore.compute.protocol import Hello, Response
from foreshore.compute.transport import Connection, Tables

logger = logging.getLogger(__name__)

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
        launcher: Launcher,
        connected: Callable[[Connection[Response]], None],
        deliver: Callable[[Response, Tables], None],
        lost: Callable[[], None],
    ) -> None:
        self.name = name
        self.pid: int | None = None
        self.starts = 0
        self.state = "starting"
        self._launcher = launcher
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
                async with self._launcher.start() as replica:
                    self.pid = replica.pid
                    await self._converse(replica)
            except OSError as error:
                logger.warning("replica unreachable", extra={"replica": self.name, "error": error})
            except Exception:
                logger.exception("replica failed; trying again", extra={"replica": self.name})
            finally:
                self.pid = None
            if loop.time() - began > HEALTHY_SECONDS:
                wait = 0.1
            self.state = "waiting"
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _converse(self, replica: Launched) -> None:
        """Connect as soon as possible, and return when the connection is lost."""
        over = asyncio.Event()
        connection: Connection[Response] = Connection(
            Response,
            lambda _, message, tables: self._deliver(message, tables),
            lambda _: over.set(),
        )
        await replica.connect(connection)
        if connection.closed or replica.exited.is_set():
            return
        self.state = "connected"
        connection.send(Hello(replica.secret, self.name))
        self._connected(connection)
        try:
            await over.wait()
        finally:
            connection.abort()
            self.state = "lost"
            self._lost()
        if not replica.exited.is_set():
            logger.warning("replica lost", extra={"replica": self.name, "pid": replica.pid})
