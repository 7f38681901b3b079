"""The workers of one replica, as its own process has them: their start, requests and end.

A pool with a worker that has ended is lost, as each had a share of all that there was.
"""

import itertools
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from foreshore.compute.workers.messages import Reply
from foreshore.compute.workers.wire import Wire
from foreshore.errors import Unavailable
from foreshore.processes.child_environment import COMPUTE, child_environment, private_home
from foreshore.processes.messages import Message
from foreshore.processes.transport import Tables

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.workers.main")

Answer = tuple[Reply, Tables]


class WorkerProcess(Protocol):
    """A started worker, and the id of its process."""

    @property
    def pid(self) -> int:
        """The id of its process."""
        ...

    def kill(self) -> None:
        """End it."""


class Start(Protocol):
    """How a worker is started."""

    def __call__(
        self, index: int, control: socket.socket, peers: Mapping[int, socket.socket], seeds: str
    ) -> WorkerProcess:
        """Start the worker with this number, which gets one end of each socket."""


def start_process(
    index: int, control: socket.socket, peers: Mapping[int, socket.socket], seeds: str
) -> WorkerProcess:
    """Start a worker as a child process, which ends when its `control` socket does."""
    named = ",".join(f"{peer}:{sock.fileno()}" for peer, sock in peers.items())
    options = ["--index", str(index), "--control", str(control.fileno()), "--peers", named]
    return subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.DEVNULL,
        env=child_environment(private_home(), COMPUTE, FORESHORE_WORKER_SEEDS=seeds),
        pass_fds=[control.fileno(), *(sock.fileno() for sock in peers.values())],
    )


class Pool:
    """`count` workers. Any thread may ask them."""

    def __init__(self, count: int, start: Start = start_process) -> None:
        self.count = count
        self.lost = False
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock = threading.Lock()
        self.processes: list[WorkerProcess] = []
        self._wires: list[Wire] = []
        # Of the hashes of rows and of strings, by which keys have their owners.
        self.seed, self.strings_seed = secrets.randbits(64), secrets.randbits(64)
        seeds = f"{self.seed},{self.strings_seed}"
        meshes: list[dict[int, socket.socket]] = [{} for _ in range(count)]
        for a, b in itertools.combinations(range(count), 2):
            meshes[a][b], meshes[b][a] = socket.socketpair()
        for index in range(count):
            ours, theirs = socket.socketpair()
            self.processes.append(start(index, theirs, meshes[index], seeds))
            self._wires.append(Wire(ours, Reply))
        for index, wire in enumerate(self._wires):
            name = f"worker {index}"
            threading.Thread(target=self._read, args=(wire,), name=name, daemon=True).start()

    def number(self) -> int:
        """Return a number for a request."""
        return next(self._numbers)

    def ask(self, worker: int, request: Any, tables: Sequence[pa.Table] = ()) -> Future[Answer]:
        """Send a request, which has a number of its own; return its future reply."""
        future: Future[Answer] = Future()
        with self._lock:
            if self.lost:
                raise Unavailable("a worker of the replica has ended")
            self._waiting[request.request] = future
        try:
            self._wires[worker].send(request, tables)
        except OSError:
            self._lose()
        return future

    def ask_each(
        self, request: Any, workers: Sequence[int], tables: Sequence[Sequence[pa.Table]] = ()
    ) -> list[Answer]:
        """Send a request to some workers, to each its tables; return their replies."""
        futures = [
            self.ask(worker, msgspec.structs.replace(request, request=self.number()), share)
            for worker, share in zip(workers, tables or [()] * len(workers), strict=True)
        ]
        return [future.result() for future in futures]

    def tell(self, message: Message) -> None:
        """Send something to all workers that has no reply."""
        for wire in self._wires:
            try:
                wire.send(message)
            except OSError:
                self._lose()
                return

    def check(self) -> None:
        """Raise Unavailable if a worker has ended."""
        if self.lost:
            raise Unavailable("a worker of the replica has ended")

    def lose(self) -> None:
        """Give all workers up, because they do not agree any more."""
        self._lose()

    def close(self) -> None:
        """End all workers."""
        self._lose()
        for process in self.processes:
            process.kill()

    def _read(self, wire: Wire) -> None:
        try:
            while (received := wire.receive()) is not None:
                reply, tables = received
                with self._lock:
                    future = self._waiting.pop(reply.request, None)
                if future is not None:
                    future.set_result((reply, tables))
        except (OSError, msgspec.DecodeError):
            pass  # as at the end
        self._lose()

    def _lose(self) -> None:
        with self._lock:
            self.lost = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for wire in self._wires:
            wire.close()
        for future in waiting:
            future.set_exception(Unavailable("a worker of the replica has ended"))
