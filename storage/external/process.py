"""A process beside the environment that reaches external systems."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import uvloop

from foreshore import logs
from foreshore.loop_watchdog import Watchdog
from foreshore.processes.handshake import Handshake
from foreshore.processes.lifeline import standard_input_ends
from foreshore.processes.messages import Message
from foreshore.processes.socket_path import short_path
from foreshore.processes.transport import SCRATCH_VARIABLE, SECRET_VARIABLE, Connection, Tables
from foreshore.storage.external.process_memory import limit_memory


class Send(Protocol):
    """Sends a message with tables to the environment."""

    def __call__(self, message: Message, tables: tuple[pa.Table, ...] = ()) -> None:
        """Send it."""
        ...


class Serving(Protocol):
    """What a process does for the environment."""

    def deliver(self, command: Any, tables: Tables, send: Send) -> None:
        """Obey a command."""
        ...

    def stop(self) -> None:
        """Stop all that runs, as the environment is away."""
        ...


async def serve(
    address: str, worker: Callable[[], Serving], commands: Any, secret: str, scratch: Path
) -> None:
    """Listen at a socket, `unix:PATH`, until standard input ends."""
    path, serving = address.removeprefix("unix:"), worker()
    loop = asyncio.get_running_loop()

    def deliver(connection: Connection[Any], command: Any, tables: Tables) -> None:
        serving.deliver(command, tables, connection.send)

    def connection() -> Connection[Any]:
        handshake = Handshake("accepts", secret)
        return Connection(commands, deliver, lambda _: serving.stop(), handshake, scratch)

    with short_path(path) as short:
        server = await loop.create_unix_server(connection, short)
    Watchdog().start()
    await standard_input_ends()
    server.close()  # until here it is held, as a server that is collected no longer listens
    shutil.rmtree(scratch, ignore_errors=True)  # its owner may have been killed
    os._exit(0)  # threads of connectors must not keep the process alive


def run(address: str, worker: Callable[[], Serving], commands: Any, name: str) -> None:
    """Run a process that is called `name` in logs, until standard input ends."""
    logs.configure(name)
    limit_memory()
    forget_identity()
    secret = os.environ.pop(SECRET_VARIABLE)
    scratch = Path(os.environ[SCRATCH_VARIABLE])
    pa.array(
        []
    )  # imports pandas where it is installed, which the first source would do on the loop
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(address, worker, commands, secret, scratch))


def forget_identity() -> None:
    """Remove from the environment what libpq would send to whoever a connection names.

    It is told all else for each connection (`postgres_identity.py`), but not these: a service, and
    settings of a session.
    """
    for name in [each for each in os.environ if each.startswith("PG")]:
        del os.environ[name]
