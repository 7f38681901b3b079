"""The process of a worker: `python -m foreshore.compute.workers.main`, started by its replica.

It inherits its sockets, and ends when that of the replica does.
"""

import gc
import logging
import os
import socket
import sys

import click

from foreshore import logs
from foreshore.compute.flow.warm import warm
from foreshore.compute.workers.mesh import Mesh
from foreshore.compute.workers.messages import Request
from foreshore.compute.workers.wire import Wire
from foreshore.compute.workers.worker import Worker
from foreshore.deep_trees import run_on_deep_stack

logger = logging.getLogger(__name__)

SEEDS_VARIABLE = "FORESHORE_WORKER_SEEDS"  # of the hashes of rows and of strings


@click.command()
@click.option("--index", required=True, type=int, help="The worker's number.")
@click.option("--control", required=True, type=int, help="The socket of the replica.")
@click.option("--peers", required=True, help="PEER:SOCKET,...")
def main(index: int, control: int, peers: str) -> None:
    """Run a worker of a replica."""
    logs.configure(f"worker {index}")
    seed, strings_seed = map(int, os.environ.pop(SEEDS_VARIABLE).split(","))
    pairs = (pair.split(":") for pair in peers.split(",") if pair)
    sockets = {int(peer): socket.socket(fileno=int(number)) for peer, number in pairs}
    sys.setswitchinterval(0.0005)  # a step waits for what threads receive
    warm()
    gc.freeze()
    wire = Wire(socket.socket(fileno=control), Request)
    worker = Worker(wire, Mesh(index, sockets), seed, strings_seed)
    try:
        run_on_deep_stack(worker.run)
    except OSError:
        logger.info("the replica has ended")
    except BaseException:
        logger.critical("the worker cannot go on", exc_info=True)
    os._exit(0)  # threads must not keep the process alive


if __name__ == "__main__":
    main()
