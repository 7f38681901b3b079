"""A launcher whose ingestion process is a worker on the environment's event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from foreshore.processes.handshake import Handshake
from foreshore.processes.launch import Launched
from foreshore.processes.transport import Connection
from foreshore.storage.external.process import Serving
from foreshore.storage.ingest.messages import Command, Response
from foreshore.storage.ingest.worker import Worker

SECRET = "known to both ends as they are one"


class InProcess:
    """A worker on this event loop, which a test may end as SIGKILL would."""

    pid: int | None = None
    secret = SECRET

    def __init__(self, worker: Serving, commands: Any) -> None:
        self.exited = asyncio.Event()
        self.worker = worker
        self._commands = commands
        self._ends: list[Connection[Any]] = []

    async def connect(self, connection: Connection[Response]) -> None:
        """Connect both ends of a pair of sockets."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        def end() -> Connection[Any]:
            made: Connection[Any] = Connection(
                self._commands,
                lambda each, command, tables: self.worker.deliver(command, tables, each.send),
                lambda _: self.worker.stop(),
                Handshake("accepts", SECRET),
            )
            self._ends.append(made)
            return made

        await loop.connect_accepted_socket(end, theirs)
        await loop.create_connection(lambda: connection, sock=ours)

    def kill(self) -> None:
        """Lose what is on its way."""
        self.worker.stop()
        for each in self._ends:
            each.abort()
        self.exited.set()


class IngestInProcess:
    """Starts such workers; `last` is the one that was started last."""

    last: InProcess

    def _made(self) -> InProcess:
        return InProcess(Worker(), Command)

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Run a worker until the context is left."""
        made = self.last = self._made()
        try:
            yield made
        finally:
            made.kill()
