"""An engine for expensive Python kernels: each evaluation has a process that can be killed.

While a Python kernel processes a single long value (a text of many megabytes, a large document), no
other thread of its process runs: neither the event loop nor the timer of statement_timeout. So
constants in statements that may become that expensive are evaluated here, and what may take only
so much memory.

A process is started on demand and reused. Cancellation kills it. It ends when its standard input
does.
"""

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from threading import Lock
from typing import IO, Any, TypeAlias

import pyarrow as pa

from foreshore import blocking
from foreshore.compute.engine import ALL_ROWS, Cancellation, Extent, Input
from foreshore.compute.finish import whole
from foreshore.compute.result import LONG_BYTES
from foreshore.errors import DatabaseError, QueryCanceled, Unavailable
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.memory import own_bytes
from foreshore.memory_shares import of_engine, of_process_apart
from foreshore.processes.child_environment import child_environment
from foreshore.processes.scratch import Scratch
from foreshore.query_memory import QUERY_MEMORY
from foreshore.scratch_file import ScratchFile

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.isolated.worker")
MOST_IDLE = 1
IDLE_BYTES = 128 << 20  # of a process that waits for its next evaluation: twice a new one's
LENGTH = struct.Struct(">Q")
QUESTION, CALL, NEXT, FORGET = b"Q", b"C", b"N", b"F"  # kinds of requests
PART, DONE, FAILED = b"P", b"D", b"E"  # kinds of answers


class IsolatedEngine:
    """Evaluates relations in processes that read files below `directories`.

    Thread-safe.
    """

    def __init__(
        self,
        directories: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
        *,
        low_priority: bool = True,
        memory: int | None = None,
    ) -> None:
        """`memory` is what an evaluation may take that has no limit."""
        self._command, self._directories = command, directories
        self._memory = memory
        self._low_priority = low_priority
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    @contextmanager
    def evaluations(
        self, cancellation: Cancellation, memory: int | None = None
    ) -> Iterator["_Worker"]:
        """Yield evaluations in one process; `cancellation` kills it.

        Each may take `memory` bytes more than the process has, or fails with OutOfMemory; DuckDB
        keeps to such a limit by spilling.
        """
        worker = self._take()
        worker.memory = memory
        worker.most = self._memory or of_process_apart(QUERY_MEMORY.limit)
        try:
            cancellation.arm(worker.kill)
            try:
                yield worker
            except Unavailable:
                cancellation.check()
                raise
            finally:
                cancellation.disarm()
        finally:
            self._give_back(worker)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        with self._lock:
            workers = list(self._all)
        for worker in workers:
            worker.kill()

    def close(self) -> None:
        """End all processes; their evaluations fail."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.end()

    def _take(self) -> "_Worker":
        with self._lock:
            if self._closed:
                raise QueryCanceled
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                self._all.discard(worker)
                worker.end()
            worker = _Worker(self._command, self._directories)
            if self._low_priority:
                blocking.lower_priority(worker.pid)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: "_Worker") -> None:
        worker.rest()
        is_small = own_bytes(worker.pid) <= IDLE_BYTES  # what it frees later may stay in its pools
        with self._lock:
            keeps = worker.alive and is_small and not self._closed
            if keeps and len(self._idle) < MOST_IDLE:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.end()


class _Worker:
    """A process that evaluates one relation at a time."""

    def __init__(self, command: Sequence[str], directories: Sequence[str]) -> None:
        scratch, memory = Scratch(), of_engine(QUERY_MEMORY.limit)
        self._scratch: Scratch | None = scratch
        self._lock = Lock()
        self._process = subprocess.Popen(
            [*command, str(scratch.path), str(memory), *directories],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            # What is reserved in advance would count as what a query takes.
            env=child_environment(
                scratch.path / "home", ARROW_DEFAULT_MEMORY_POOL="system", OPENBLAS_NUM_THREADS="1"
            ),
        )
        self.memory: int | None = None  # of each evaluation
        self.most = 0  # where that is None
        self._at_rest = True  # neither evaluating nor killed
        self._is_answering = False  # an answer has more parts

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process can be used."""
        return self._at_rest and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process without waiting; callable from any thread."""
        self._at_rest = False
        self._process.kill()

    def end(self) -> None:
        """End the process and close its pipes."""
        self.kill()
        with suppress(OSError), self._process:
            pass  # waits and closes the pipes; unsent data is lost
        with self._lock:
            scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.remove()

    def parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        extent: Extent = ALL_ROWS,
    ) -> Iterator[pa.Table]:
        """Yield the rows of `relation` as of a time, each part made when it is asked for.

        Raises Unavailable if the process ends.
        """
        limits = (max_bytes, extent, self.memory, self.most, QUERY_MEMORY.limit)
        yield from self._answers(QUESTION, (relation, dict(inputs), as_of, *limits))

    def batches(
        self, function: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield what a function of a module yields, each batch made when it is asked for.

        Raises its DatabaseErrors, and Unavailable if the process ends.
        """
        for part in self._answers(CALL, (function, arguments, self.memory or self.most)):
            yield from part.to_batches()

    def _answers(self, kind: bytes, asked: object) -> Iterator[pa.Table]:
        question = _Pieces()
        pickle.Pickler(question, protocol=5).dump(asked)
        kind, answer = self._ask(kind, *question.pieces)
        while kind == PART:
            with pa.ipc.open_stream(pa.py_buffer(answer)) as reader:
                part = reader.read_all()
            del answer
            yield part
            kind, answer = self._ask(NEXT)

    def rows(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time; raises Unavailable if the process ends."""
        return whole(self.parts(relation, inputs, as_of, max_bytes), max_bytes)

    def _ask(self, kind: bytes, *pieces: bytes) -> tuple[bytes, "Answer"]:
        """Return the kind and the bytes of the answer; raises its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._at_rest = False
        try:
            send(self._process.stdin, kind, *pieces)
            kind, answer = receive(self._process.stdout)
        except (OSError, EOFError, ValueError):
            raise Unavailable("the process that evaluated the query has ended") from None
        self._at_rest, self._is_answering = True, kind == PART
        if kind == FAILED:
            raise failure_of(answer)
        return kind, answer

    def rest(self) -> None:
        """Let the process forget the answer that it has not given to its end."""
        if self.alive and self._is_answering:
            with suppress(Unavailable):
                self._ask(FORGET)


class _Pieces:
    """A file for a pickler, whose writes are pieces: other threads can run between them."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(bytes(data))


def send(pipe: IO[bytes], kind: bytes, *pieces: "bytes | pa.Buffer") -> None:
    """Write a message: its kind, length and bytes."""
    pipe.write(kind + LENGTH.pack(sum(len(memoryview(each)) for each in pieces)))
    for each in pieces:
        pipe.write(each)
    pipe.flush()


Answer: TypeAlias = bytes | bytearray | memoryview


def receive(pipe: IO[bytes]) -> tuple[bytes, Answer]:
    """Return the kind and the bytes of the next message; raises EOFError at the end.

    A long part of an answer is not in memory.
    """
    start = bytearray(1 + LENGTH.size)
    _fill(pipe, start)
    kind, size = bytes(start[:1]), LENGTH.unpack(start[1:])[0]
    if kind == PART and size > LONG_BYTES:
        return kind, _mapped(pipe, size)
    answer = bytearray(size)
    _fill(pipe, answer)
    return kind, answer


def _mapped(pipe: IO[bytes], size: int) -> bytes | memoryview:
    """Return bytes that are read into a scratch file, and mapped from there."""
    piece = bytearray(1 << 20)
    with closing(ScratchFile()) as file:
        for left in range(size, 0, -len(piece)):
            part = memoryview(piece)[:left]
            _fill(pipe, part)
            file.extend(part)
        return file.read(0, size)


def _fill(pipe: IO[bytes], into: bytearray | memoryview) -> None:
    """Fill `into` in pieces, so that other threads can run in between."""
    descriptor, view, at = pipe.fileno(), memoryview(into), 0
    while at < len(into):
        count = os.readv(descriptor, [view[at : at + (1 << 20)]])
        if not count:
            raise EOFError
        at += count


def as_failure(error: DatabaseError) -> bytes:
    """Return the encoding of an error."""
    fields = (error.message, error.sqlstate, error.detail, error.hint)
    return pickle.dumps((_family_of(error), *fields))


def _family_of(error: DatabaseError) -> type[DatabaseError]:
    """Return the first of the error's classes that these fields alone define."""
    return next(
        each
        for each in type(error).__mro__
        if issubclass(each, DatabaseError) and each.__init__ is DatabaseError.__init__
    )


def failure_of(data: Answer) -> DatabaseError:
    """Return the error encoded by `as_failure`."""
    family, message, sqlstate, detail, hint = pickle.loads(data)
    error: DatabaseError = family(message, sqlstate=sqlstate, detail=detail, hint=hint)
    return error
