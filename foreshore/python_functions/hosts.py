"""The hosts of this process: started when first needed, reused, and replaced when one ends.

A call takes a host for itself, so calls of several threads run side by side, in at most as many
hosts as there are processors. A row that takes too long is an error of that row (`row_limit.py`).
A host that takes a few times as long for a batch is killed. A host that ends fails the call with
38000, external_routine_exception: that is no error of a row, because another attempt may succeed.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from threading import Condition, Event

import msgspec
import pyarrow as pa

from foreshore.errors import DatabaseError, OutOfMemory, QueryCanceled, Unavailable
from foreshore.once_per_process import once_per_process
from foreshore.processes.child_environment import child_environment, private_home
from foreshore.python_functions.definition import PythonFunction, function_of
from foreshore.python_functions.limits import Limits, limits
from foreshore.python_functions.patience import POLL_SECONDS
from foreshore.python_functions.wire import (
    CALL,
    DEFINE,
    FAULT,
    ROWS,
    Abandoned,
    Late,
    OutOfStep,
    receive,
    send,
)
from foreshore.run_queue import Deadline, RunQueue

MODULE = "foreshore.python_functions.host"
START_SECONDS = 30.0
BATCH = 3  # times that a row may take is what a batch may take
SLICE = 16_384  # rows of a call at most
SLICE_BYTES = 16 << 20
FIRST_SLICE = 16  # rows of the first call of a function
SLICE_SECONDS = 1.0  # that a call should take at most,
SHARE = 8  # and at most this part of the time that it may take
MORE_BYTES = 64 << 20  # of an answer than a host may take
MOST_DEFINED = 256  # functions that a host has loaded
_SET = {
    "PYTHONHASHSEED": "0",  # the order of sets is the same in each host
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TZ": "UTC",
}

Outcome = tuple[pa.Array, pa.Array | None]


class ExternalRoutineException(Unavailable):
    """The process of a function has failed, or the function is not what it is declared to be."""

    sqlstate = "38000"


class Host:
    """One process."""

    def __init__(self, limit: Limits) -> None:
        self._limit = limit
        self._socket, other = socket.socketpair()
        read, self._lifeline = os.pipe()
        command = (sys.executable, "-P", "-m", MODULE)
        arguments = (str(other.fileno()), str(read), str(limit.memory), str(limit.seconds))
        try:
            self._process = subprocess.Popen(
                [*command, *arguments],
                pass_fds=(other.fileno(), read),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=child_environment(private_home(), **_SET),
            )
        finally:
            other.close()
            os.close(read)
        self._waits = RunQueue(self._process.pid)
        self._defined: dict[str, int] = {}
        self._calls = 0
        self._is_new, self._closed = True, False

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process can be used for further functions."""
        return self._process.poll() is None and len(self._defined) < MOST_DEFINED

    def call(
        self, key: str, batch: pa.RecordBatch, result: pa.DataType, abandoned: Event
    ) -> tuple[pa.Array, pa.Array]:
        """Return values and errors for a batch; raises DatabaseError, OSError or EOFError."""
        function = function_of(key)
        if self._is_new:
            receive(self._socket, Deadline(START_SECONDS, self._waits))
            self._is_new = False
        deadline = Deadline(BATCH * self._limit.seconds, self._waits)
        if key not in self._defined:
            number = self._defined[key] = len(self._defined)
            schema = pa.schema([("result", result)]).serialize().to_pybytes()
            told = msgspec.json.encode((number, function, schema))
            send(self._socket, DEFINE, told, deadline=deadline)
        self._calls += 1
        metadata = {"function": str(self._defined[key]), "call": str(self._calls)}
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema.with_metadata(metadata)) as writer:
            writer.write_batch(batch.replace_schema_metadata(metadata))
        send(self._socket, CALL, out.getvalue(), deadline=deadline)
        most = self._limit.memory + MORE_BYTES
        kind, answer = receive(self._socket, deadline, most, abandoned)
        if kind == FAULT:
            call, *told = msgspec.json.decode(answer)
            if call not in (0, self._calls):
                raise OutOfStep
            raise _fault(function, *told)
        if kind != ROWS:
            raise OutOfStep
        with pa.ipc.open_stream(pa.py_buffer(answer)) as reader:
            found = reader.read_next_batch()
            if reader.schema.metadata != {b"call": str(self._calls).encode()}:
                raise OutOfStep
        values, errors = found.columns
        return values, errors

    def end(self) -> int:
        """End the process; return how it has ended."""
        self._process.kill()
        code = self._process.wait()
        if not self._closed:
            self._closed = True
            self._socket.close()
            self._waits.close()
            os.close(self._lifeline)
        return code


def _fault(function: PythonFunction, state: str, message: str, hint: str | None) -> DatabaseError:
    if state == OutOfMemory.sqlstate:
        error: DatabaseError = OutOfMemory(
            f'Python function "{function.name}" needs more memory than a function may take.'
        )
        return error
    return ExternalRoutineException(message, sqlstate=state, hint=hint)


class _Pace:
    """How many rows a call of each function gets, so that it takes about `seconds` at most.

    Else a function that takes 5 ms for a row could never be called for many. Thread-safe.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows: dict[str, int] = {}

    def rows(self, key: str) -> int:
        """Return how many rows the next call of a function gets at most."""
        return self._rows.get(key, FIRST_SLICE)

    def slow(self, key: str) -> None:
        """Let the next calls of a function get one row, then again more."""
        self._rows[key] = 1

    def note(self, key: str, rows: int, seconds: float) -> None:
        """Take how long a call has taken."""
        if seconds > self._seconds:
            found = max(1, int(rows * self._seconds / seconds))
        else:
            found = min(SLICE, max(self.rows(key), 4 * rows))
        self._rows.pop(key, None)
        self._rows[key] = found
        while len(self._rows) > MOST_DEFINED:
            self._rows.pop(next(iter(self._rows)), None)


class Hosts:
    """The hosts of a process. Thread-safe."""

    def __init__(self, most: int, limit: Limits) -> None:
        self._most, self._limit = most, limit
        self._pace = _Pace(min(SLICE_SECONDS, limit.seconds / SHARE))
        self._free = Condition()
        self._idle: list[Host] = []
        self._count = 0

    @property
    def pids(self) -> list[int]:
        """The idle processes."""
        with self._free:
            return [host.pid for host in self._idle]

    def outcome(
        self,
        key: str,
        arrays: Sequence[pa.Array],
        result: pa.DataType,
        abandoned: Event | None = None,
    ) -> Outcome:
        """Return the values of a function, NULL where it fails, and the errors or None.

        Raises ExternalRoutineException, OutOfMemory, or QueryCanceled when `abandoned` is set.
        """
        rows = len(arrays[0])
        if not rows:
            return pa.nulls(0, result), None
        batch = pa.RecordBatch.from_arrays(list(arrays), [str(i) for i in range(len(arrays))])
        most = max(1, min(SLICE, rows * SLICE_BYTES // max(batch.nbytes, 1)))
        abandoned = abandoned or Event()
        host = self._take(abandoned)
        parts: list[tuple[pa.Array, pa.Array]] = []
        at = 0
        try:
            while at < rows:
                part = batch.slice(at, min(most, self._pace.rows(key)))
                begun = time.monotonic()
                parts.append(host.call(key, part, result, abandoned))
                self._pace.note(key, part.num_rows, time.monotonic() - begun)
                at += part.num_rows
        except OutOfMemory:  # after which it ends
            host.end()
            raise
        except DatabaseError:
            raise
        except BaseException as error:
            raise self._ended(host, key, error) from None
        finally:
            self._give_back(host)
        values = pa.concat_arrays([value for value, _ in parts])
        errors = pa.concat_arrays([error for _, error in parts])
        return values, None if errors.null_count == rows else errors

    def _ended(self, host: Host, key: str, error: BaseException) -> BaseException:
        """Return the error of a call whose host cannot be used any more."""
        code, name = host.end(), function_of(key).name
        match error:
            case Abandoned():
                return QueryCanceled()
            case Late():
                self._pace.slow(key)
                return ExternalRoutineException(
                    f'Python function "{name}" took longer than'
                    f" {BATCH * self._limit.seconds:g} s for a batch of rows",
                    hint="The server's option --python-function-timeout sets the limit.",
                )
            case OutOfStep():
                return ExternalRoutineException(
                    f'the process of Python function "{name}" has sent what is no answer',
                    hint="A function must leave the descriptors of its process alone.",
                )
            case EOFError() | OSError():
                how = f"signal {-code}" if code < 0 else f"code {code}"
                return ExternalRoutineException(
                    f'the process of Python function "{name}" has ended',
                    detail=f"It ended with {how}.",
                )
            case _:
                return error

    def _take(self, abandoned: Event) -> Host:
        with self._free:
            while True:
                while self._idle:
                    host = self._idle.pop()
                    if host.alive:
                        return host
                    self._count -= 1
                    host.end()
                if self._count < self._most:
                    self._count += 1
                    break
                self._free.wait(POLL_SECONDS)
                if abandoned.is_set():
                    raise QueryCanceled
        try:
            return Host(self._limit)
        except BaseException:
            with self._free:
                self._count -= 1
                self._free.notify()
            raise

    def _give_back(self, host: Host) -> None:
        keeps = host.alive  # asked once: afterwards another thread may have it
        with self._free:
            if keeps:
                self._idle.append(host)
            else:
                self._count -= 1
            self._free.notify()
        if not keeps:
            host.end()

    def close(self) -> None:
        """End the hosts that are idle."""
        with self._free:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for host in idle:
            host.end()


def hosts() -> Hosts:
    """Return the hosts of this process, also after a fork."""
    return _hosts_of(limits())


@once_per_process(4)
def _hosts_of(limit: Limits) -> Hosts:
    return Hosts(os.cpu_count() or 1, limit)
