"""What sources of Python functions define, found by a limited process that compiles them.

The server itself never parses or compiles a source, because that may take any time and memory
(`compiler.py`). What a source defines is kept, so that calls of its function need no process.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec

from foreshore.errors import OutOfMemory, QueryCanceled, StatementTooComplex, SyntaxError_
from foreshore.python_functions import compiler

MEMORY = 512 << 20  # bytes of the process, beyond which compilation fails
SECONDS = 5  # of the processor for one source
KEPT = 64 << 20  # characters of sources of which the definitions are kept


class Definition(msgspec.Struct, frozen=True):
    """A function or a class of a source; `most` is None if it takes any number of arguments."""

    kind: str  # "function", "async" or "class"
    name: str
    required: int = 0
    most: int | None = None
    needs_names: bool = False
    has_arrays: bool = False
    methods: tuple[str, ...] = ()


class _Answer(msgspec.Struct):
    definitions: tuple[Definition, ...] = ()
    message: str = ""
    line: str = ""


class Compiler:
    """A process that compiles sources, one at a time; it is replaced when it ends. Thread-safe."""

    def __init__(self, memory: int = MEMORY, seconds: int = SECONDS) -> None:
        self._memory, self._seconds = memory, seconds
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[str, tuple[Definition, ...]] = {}  # read without the lock
        self._length = 0

    def definitions_of(self, source: str) -> tuple[Definition, ...]:
        """Return the functions and classes of a source, in its order.

        For one that is known it waits for nothing, else also for other compilations. Raises
        SyntaxError_ with the line, or OutOfMemory, QueryCanceled or StatementTooComplex at a limit.
        """
        known = self._known.get(source)
        if known is not None:
            return known
        with self._lock:
            known = self._known.get(source)  # it may have been compiled meanwhile
            if known is not None:
                return known
            answer = self._ask(source)
            if answer.message:
                raise SyntaxError_(
                    answer.message,
                    detail=f"The line is: {answer.line}" if answer.line else None,
                    where="compilation of a Python function",
                )
            self._keep(source, answer.definitions)
            return answer.definitions

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _keep(self, source: str, definitions: tuple[Definition, ...]) -> None:
        self._known[source] = definitions
        self._length += len(source)
        while self._length > KEPT and len(self._known) > 1:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._length -= len(oldest)

    def _ask(self, source: str) -> _Answer:
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            process = self._process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(source).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=_Answer)
        code = self._end()
        if code == -signal.SIGXCPU:
            raise QueryCanceled(
                "canceling statement because compilation of a Python function takes more than "
                f"{self._seconds} s"
            )
        if code == compiler.OUT_OF_MEMORY:
            raise OutOfMemory(
                f"Compilation of a Python function needs more than {self._memory >> 20} MB."
            )
        raise StatementTooComplex("the source of a Python function is too complex to compile")

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(compiler.__file__)),
             str(self._memory), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={},
        )  # fmt: skip

    def _end(self) -> int | None:
        """End the process, if there is one; return how it has ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        with suppress(BrokenPipeError):  # it has ended, with a part of a source unread
            process.stdin.close()  # at which it ends by itself
        return process.wait()


_compilers: dict[int, Compiler] = {}


def definitions_of(source: str) -> tuple[Definition, ...]:
    """Return what a source defines, by the compiler of this process, also after a fork."""
    pid = os.getpid()
    found = _compilers.get(pid)
    if found is None:
        made = Compiler()
        found = _compilers.setdefault(pid, made)  # another thread may have been first
        if found is made:
            atexit.register(found.close)
    return found.definitions_of(source)
