"""Workers that are threads of the test's process, behind the sockets of real ones."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow
from foreshore.compute.output import Output, TableOutput
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.workers.engine import WorkersEngine
from foreshore.compute.workers.mesh import Mesh
from foreshore.compute.workers.messages import Request
from foreshore.compute.workers.pool import Pool
from foreshore.compute.workers.wire import Wire
from foreshore.compute.workers.worker import Worker
from foreshore.ids import GlobalId
from tests.model import NegativeZero


class ThreadWorker:
    """A worker that is a thread."""

    def __init__(self, control: socket.socket, worker: Worker) -> None:
        self._control = control
        self._worker = worker
        threading.Thread(target=self._run, name="worker", daemon=True).start()

    def _run(self) -> None:
        try:
            self._worker.run()
        except OSError:
            return  # killed

    @property
    def pid(self) -> int:
        """Return the id of the test's process."""
        return os.getpid()

    def kill(self) -> None:
        """Cut its connection."""
        try:
            self._control.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended


def start_thread(
    index: int, control: socket.socket, peers: Mapping[int, socket.socket], seeds: str
) -> ThreadWorker:
    """Start a worker that is a thread."""
    seed, strings_seed = map(int, seeds.split(","))
    worker = Worker(Wire(control, Request), Mesh(index, peers), seed, strings_seed)
    return ThreadWorker(control, worker)


class Eager(WorkersEngine):
    """An engine whose outputs are fetched at once, for tests that read them after later steps."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow."""
        dataflow = super().create(_plain(description), schemas)
        for name in ("hydrate", "step"):
            setattr(dataflow, name, _fetching(getattr(dataflow, name)))
        return dataflow


def _plain(value: Any) -> Any:
    """Return a part of a plan without the model's own zeros, which no message has."""
    match value:
        case NegativeZero():
            return -0.0
        case tuple():
            return tuple(map(_plain, value))
        case msgspec.Struct():
            fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        case _:
            return value


def _fetching(call: Callable[..., Output]) -> Callable[..., Output]:
    def fetched(*args: Any) -> Output:
        output = call(*args)
        return TableOutput(output.rows, output.errors)

    return fetched


@contextmanager
def workers(count: int) -> Iterator[WorkersEngine]:
    """Yield an engine of workers that are threads."""
    bulk = DuckDbEngine(threads=1)
    engine = Eager(bulk, Pool(count, start_thread))
    try:
        yield engine
    finally:
        engine.close()
