"""A launcher whose replicas run on the controller's event loop, behind the same protocol.

Everything except the process is real: the replica's loop, threads and engine, and the frames, which
go through a pair of sockets. Tests that are not about processes use it, because it starts in
milliseconds instead of a second.
"""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from foreshore import blocking
from foreshore.compute.engine import Engine
from foreshore.compute.protocol import Command, Response
from foreshore.compute.replica.instance import ENGINES, EngineFactory
from foreshore.compute.replica.replica import Replica
from foreshore.processes.handshake import Handshake
from foreshore.processes.launch import Launched
from foreshore.processes.outbox import Outbox
from foreshore.processes.transport import Connection

SECRET = "known to both ends as they are one"


class InProcess:
    """A replica on this event loop."""

    pid: int | None = None
    secret = SECRET

    def __init__(self, replica: Replica, scratch: Path) -> None:
        self.exited = asyncio.Event()
        self._replica = replica
        self._scratch = scratch

    async def connect(self, connection: Connection[Response]) -> None:
        """Connect both ends of a pair of sockets."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        replica = self._replica
        await loop.connect_accepted_socket(
            lambda: Connection(
                Command, replica.deliver, replica.lost, Handshake("accepts", SECRET), self._scratch
            ),
            theirs,
        )
        connection.outbox = Outbox(self._scratch)
        await loop.create_connection(lambda: connection, sock=ours)


class InProcessLauncher:
    """Runs each replica on the running loop, with `engines` by their names."""

    def __init__(self, engines: Mapping[str, EngineFactory] = ENGINES) -> None:
        self._engines = engines

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Run the replica until the context is left; then close its engine."""
        started: list[Engine] = []

        def kept(factory: EngineFactory) -> EngineFactory:
            def start_engine(options: Mapping[str, str]) -> Engine:
                started.append(factory(options))
                return started[-1]

            return start_engine

        scratch = Path(tempfile.mkdtemp(prefix="foreshore-in-process-"))
        replica = Replica({name: kept(each) for name, each in self._engines.items()}, scratch)
        launched = InProcess(replica, scratch)
        running = asyncio.get_running_loop().create_task(replica.run())
        running.add_done_callback(lambda _: launched.exited.set())
        try:
            yield launched
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for engine in started:
                await blocking.run(None, engine.close)
            shutil.rmtree(scratch, ignore_errors=True)
