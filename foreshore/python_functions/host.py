"""The host process of Python functions: it runs the code of users, one batch at a time.

    python -m foreshore.python_functions.host SOCKET LIFELINE BYTES SECONDS

A batch that takes more than so many bytes of memory fails, and the process ends. A row that takes
more than so many seconds is an error. The process also ends, even in an endless loop, when the one
that has started it does: then the lifeline, a pipe, is closed.
"""

import fcntl
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

import msgspec
import pyarrow as pa

from foreshore.memory import at_most_more
from foreshore.python_functions.calls import Fault, Loaded
from foreshore.python_functions.definition import PythonFunction
from foreshore.python_functions.row_limit import RowLimit
from foreshore.python_functions.wire import (
    CALL,
    DEFINE,
    FAULT,
    READY,
    ROWS,
    Definition,
    receive,
    send,
)

ENDED_BY_MEMORY = 77


def main() -> None:
    """Answer requests until the socket is closed."""
    with suppress(OSError):  # the kernel kills this process first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    descriptor, lifeline, memory = map(int, sys.argv[1:4])
    limit = RowLimit(float(sys.argv[4]))
    _end_with(lifeline)
    requests = socket.socket(fileno=descriptor)
    os.register_at_fork(after_in_child=requests.close)  # a process of users answers nothing
    with at_most_more(memory), suppress(EOFError, OSError):
        _serve(requests, limit)
    os._exit(0)  # threads of users do not keep it


def _end_with(lifeline: int) -> None:
    """End this process when the lifeline is closed, whatever it does then."""
    if hasattr(os, "O_ASYNC"):  # SIGIO ends it, even while C code holds the interpreter's lock
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(0)

    Thread(target=wait, daemon=True).start()


def _serve(requests: socket.socket, limit: RowLimit) -> None:
    send(requests, READY)
    loaded: dict[int, _Function] = {}
    while True:
        kind, data = receive(requests)
        if kind == DEFINE:
            number, function, result = msgspec.json.decode(data, type=Definition)
            loaded[number] = _Function(function, pa.ipc.read_schema(pa.py_buffer(result)), limit)
            continue
        assert kind == CALL, kind
        number = 0
        try:
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                batch, metadata = reader.read_next_batch(), reader.schema.metadata
            number = int(metadata[b"call"])
            answer = _answer(loaded[int(metadata[b"function"])], batch, number)
        except Fault as fault:
            told = (number, fault.sqlstate, fault.message, fault.hint)
            send(requests, FAULT, msgspec.json.encode(told))
        except MemoryError:
            del data
            told = (number, "53200", "out of memory", None)
            send(requests, FAULT, msgspec.json.encode(told))
            os._exit(ENDED_BY_MEMORY)
        else:
            send(requests, ROWS, answer)


class _Function:
    """A function, whose module is run when it is called first."""

    def __init__(self, function: PythonFunction, schema: pa.Schema, limit: RowLimit) -> None:
        self._function = function
        self._limit = limit
        self._result = schema.field(0).type
        self._loaded: Loaded | None = None

    def outcome(self, arrays: Sequence[pa.Array]) -> tuple[pa.Array, dict[int, str]]:
        """Return the values and errors of a batch; raises Fault."""
        if self._loaded is None:
            self._loaded = Loaded(self._function, self._limit)
        with self._limit.batch():
            return self._loaded.outcome(arrays, self._result)


def _answer(function: _Function, batch: pa.RecordBatch, number: int) -> pa.Buffer:
    """Return the values and errors of a batch of arguments, with the number of the call."""
    values, errors = function.outcome(batch.columns)
    if errors:
        texts = pa.array([errors.get(i) for i in range(len(values))], pa.string())
    else:
        texts = pa.nulls(len(values), pa.string())
    answer = pa.RecordBatch.from_arrays(
        [values, texts], ["value", "error"], metadata={"call": str(number)}
    )
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, answer.schema) as writer:
        writer.write_batch(answer)
    return out.getvalue()


if __name__ == "__main__":
    main()
