"""Messages between a process and the hosts of its Python functions: length, then bytes."""

import socket
import struct
from threading import Event

from foreshore.python_functions.definition import PythonFunction
from foreshore.python_functions.patience import POLL_SECONDS
from foreshore.run_queue import Deadline

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


def send(to: socket.socket, kind: bytes, *pieces: object, deadline: Deadline | None = None) -> None:
    """Send a message; raises OSError, or Late."""
    views = [memoryview(each).cast("B") for each in pieces]  # type: ignore[arg-type]
    _send(to, memoryview(LENGTH.pack(kind, sum(map(len, views)))), deadline)
    for view in views:
        _send(to, view, deadline)


def _send(to: socket.socket, view: memoryview, deadline: Deadline | None) -> None:
    while len(view):
        _wait(to, deadline)
        try:
            view = view[to.send(view[:PIECE]) :]
        except TimeoutError:
            continue  # `_wait` raises at the deadline


def receive(
    source: socket.socket,
    deadline: Deadline | None = None,
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
    source: socket.socket, length: int, deadline: Deadline | None, abandoned: Event | None = None
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


def _wait(on: socket.socket, deadline: Deadline | None, most: float | None = None) -> None:
    """Let the next operation fail at the deadline, or with `most` after so many seconds."""
    if deadline is not None:
        left = deadline.left()
        if left <= 0:
            raise Late
        on.settimeout(left if most is None else min(left, most))
