"""The process of a replica: `python -m foreshore.compute.replica.main --listen ADDRESS`."""

import asyncio
import gc
import logging
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import uvloop

from foreshore import logs
from foreshore.compute.engine import Engine
from foreshore.compute.memory_limit import machine_bytes
from foreshore.compute.protocol import Command
from foreshore.compute.replica.instance import ENGINES, EngineFactory, load_embedded
from foreshore.compute.replica.replica import Replica
from foreshore.deep_trees import run_on_deep_stack
from foreshore.loop_watchdog import Watchdog
from foreshore.processes.handshake import LEAST_SECRET, Handshake
from foreshore.processes.lifeline import standard_input_ends
from foreshore.processes.scratch import Scratch, remove_abandoned
from foreshore.processes.socket_path import short_path
from foreshore.processes.transport import SCRATCH_VARIABLE, SECRET_VARIABLE, Connection

logger = logging.getLogger(__name__)


def _then_freeze(factory: EngineFactory) -> EngineFactory:
    """Return `factory` wrapped so that the objects alive after its call are never collected."""

    def start_engine(options: Mapping[str, str]) -> Engine:
        engine = factory(options)
        gc.freeze()
        return engine

    return start_engine


async def serve(
    address: str,
    secret: str,
    engines: Mapping[str, EngineFactory],
    scratch: Path,
    *,
    lifeline: bool,
    preload: bool,
) -> None:
    """Listen at `unix:PATH` or `HOST:PORT`; with a `lifeline`, until standard input ends."""
    factories = {name: _then_freeze(factory) for name, factory in engines.items()}
    replica = Replica(factories, scratch)
    loop = asyncio.get_running_loop()

    def connection() -> Connection[Command]:
        return Connection(
            Command, replica.deliver, replica.lost, Handshake("accepts", secret), scratch
        )

    if address.startswith("unix:"):
        with short_path(address.removeprefix("unix:")) as path:
            server = await loop.create_unix_server(connection, path)
    else:
        host, _, port = address.rpartition(":")
        server = await loop.create_server(connection, host, int(port))
    Watchdog().start()
    task = loop.create_task(replica.run())
    if preload:
        loop.run_in_executor(None, load_embedded)
    if lifeline:
        ended = loop.create_task(standard_input_ends())
        await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    else:
        await asyncio.wait([task])
    if task.done():
        logger.critical("the replica cannot go on", exc_info=task.exception())
    server.close()
    if lifeline:  # its owner may have been killed
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(int(task.done()))  # engine threads must not keep the process alive


def start(
    address: str,
    *,
    lifeline: bool,
    preload: bool = False,
    engines: Mapping[str, EngineFactory] = ENGINES,
) -> None:
    """Run a replica in this process; `preload` loads the modules of the embedded engine at once."""
    logs.configure("replica")
    secret = os.environ.pop(SECRET_VARIABLE, "")
    if len(secret) < LEAST_SECRET:
        raise SystemExit(f"{SECRET_VARIABLE} has to hold the secret that the controller knows")
    given = os.environ.get(SCRATCH_VARIABLE)
    if given is None:  # started by hand
        remove_abandoned()
    scratch = Path(given) if given is not None else Scratch().path
    _fail_allocations()
    sys.setswitchinterval(0.0005)  # an index lookup does not wait long for a step's Python code

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(address, secret, engines, scratch, lifeline=lifeline, preload=preload))

    run_on_deep_stack(run)  # messages hold plans, which are decoded where they are received


def _fail_allocations() -> None:
    """Let allocations fail before the machine's memory is exhausted, so that nothing is killed.

    A dataflow whose allocation failed is stalled. An operator may ask for much at once, between
    two looks at the memory.
    """
    machine = machine_bytes()
    if machine is None or not hasattr(resource, "RLIMIT_DATA"):
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(0.9 * machine)
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


@click.command()
@click.option("--listen", "address", required=True, help="HOST:PORT, or unix:PATH.")
@click.option("--lifeline", is_flag=True, help="End when standard input does.")
@click.option("--preload", is_flag=True, help="Load the embedded engine before it is asked for.")
def main(address: str, lifeline: bool, preload: bool) -> None:
    """Run a replica of a cluster."""
    start(address, lifeline=lifeline, preload=preload)


if __name__ == "__main__":
    main()
