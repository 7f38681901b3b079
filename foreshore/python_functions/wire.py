"""Messages between a process and the hosts of its Python functions: length, then bytes."""

import socket
import struct
import time
from threading import Event

from foreshore.python_functions.definition import PythonFunction
from foreshore.python_functions.patience import POLL_SECONDS

LENGTH = struct.Struct(">cQ")
DEFINE, CALL = b"D", b"C"  # kinds of requests
READY, ROWS, FAULT = b"S", b"R", b"F"  # kinds of answers
PIECE = 1 << 20

Definition = tuple[int, PythonFunction, bytes]  # number, function, Arrow's schema of the result


class Late(Exception):
    """The deadline has passed."""


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


class OutOfStep(OSError):
    """The message received does not answer the one sent."""


def send(to: socket.socket, kind: bytes, *pieces: object, deadline: float | None = None) -> None:
    """Send a message; raises OSError, or Late."""
    views = [memoryview(each).cast("B") for each in pieces]  # type: ignore[arg-type]
    _send(to, memoryview(LENGTH.pack(kind, sum(map(len, views)))), deadline)
    for view in views:
        _send(to, view, deadline)


def _send(to: socket.socket, view: memoryview, deadline: float | None) -> None:
    while len(view):
        _wait(to, deadline)
        try:
            view = view[to.send(view[:PIECE]) :]
        except TimeoutError:
            raise Late from None


def receive(
    source: socket.socket,
    deadline: float | None = None,
    most: int | None = None,
    abandoned: Event | None = None,
) -> tuple[bytes, bytearray]:
    """Return the kind and the bytes of the next message, which are `most` at most.

    Raises EOFError, OSError, Late, or Abandoned when that is set before the message begins.
    """
    kind, length = LENGTH.unpack(_take(source, LENGTH.size, deadline, abandoned))
    if most is not None and length > most:
        raise OutOfStep
    return kind, _take(source, length, deadline)


def _take(
    source: socket.socket, length: int, deadline: float | None, abandoned: Event | None = None
) -> bytearray:
    taken = bytearray(length)
    view = memoryview(taken)
    while len(view):
        _wait(source, deadline, POLL_SECONDS if abandoned is not None else None)
        try:
            count = source.recv_into(view[:PIECE])
        except TimeoutError:
            if abandoned is not None and abandoned.is_set():
                raise Abandoned from None
            continue  # `_wait` raises at the deadline
        if not count:
            raise EOFError
        view = view[count:]
    return taken


def _wait(on: socket.socket, deadline: float | None, most: float | None = None) -> None:
    """Let the next operation fail at the deadline, a time of the monotonic clock.

    With `most` after so many seconds, too.
    """
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late
        on.settimeout(left if most is None else min(left, most))
