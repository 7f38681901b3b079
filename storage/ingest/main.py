"""An ingestion process: `python -m foreshore.storage.ingest.main --listen unix:PATH --lifeline`."""

import asyncio
import os
import shutil
from pathlib import Path

import click
import uvloop

from foreshore import logs
from foreshore.processes.lifeline import standard_input_ends
from foreshore.processes.socket_path import short_path
from foreshore.processes.transport import SCRATCH_VARIABLE, SECRET_VARIABLE, Connection, Tables
from foreshore.storage.ingest.messages import Command
from foreshore.storage.ingest.worker import Worker


async def serve(path: str, secret: str, scratch: Path) -> None:
    """Listen at a socket until standard input ends."""
    worker = Worker()
    loop = asyncio.get_running_loop()

    def deliver(connection: Connection[Command], command: Command, tables: Tables) -> None:
        worker.deliver(command, tables, connection.send)

    def connection() -> Connection[Command]:
        return Connection(Command, deliver, lambda _: worker.stop(), secret, scratch)

    with short_path(path) as short:
        await loop.create_unix_server(connection, short)
    await standard_input_ends()
    shutil.rmtree(scratch, ignore_errors=True)  # its owner may have been killed
    os._exit(0)  # threads of connectors must not keep the process alive


@click.command()
@click.option("--listen", "address", required=True, help="unix:PATH.")
@click.option("--lifeline", is_flag=True, required=True, help="End when standard input does.")
def main(address: str, lifeline: bool) -> None:
    """Run the sources of a cluster."""
    logs.configure("ingest")
    secret = os.environ.pop(SECRET_VARIABLE)
    scratch = Path(os.environ[SCRATCH_VARIABLE])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(address.removeprefix("unix:"), secret, scratch))


if __name__ == "__main__":
    main()
