"""Blocking sockets between the processes of one replica.

`Wire` carries messages with Arrow tables between the replica and a worker, as the frames of
`foreshore/processes/transport.py`. `packed` and `unpacked` make Arrow IPC streams of updates in
words, for the sockets between workers. The words of strings are numbers of the sender's interner,
so the strings go along.
"""

import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.convert import int64_array
from foreshore.compute.flow.intern import Interner
from foreshore.processes.messages import Message
from foreshore.processes.transport import Tables, decode_tables, encode_frame

_PREFIX = struct.Struct("<III")
_SMALL = 1 << 16  # bytes that are sent at once
_PARTS = 512  # buffers of one system call


def send_all(to: socket.socket, parts: Sequence[Any]) -> None:
    """Send buffers, one after the other."""
    if sum(map(len, parts)) <= _SMALL:
        to.sendall(b"".join(parts))
        return
    for part in parts:
        to.sendall(part)


def receive_into(sock: socket.socket, buffer: memoryview) -> bool:
    """Fill a buffer; return False if the other end has closed before its first byte.

    Raises ConnectionError if it has closed within.
    """
    filled = 0
    while filled < len(buffer):
        count = sock.recv_into(buffer[filled:])
        if not count:
            if not filled:
                return False
            raise ConnectionError("closed within a frame")
        filled += count
    return True


class Wire:
    """One end of a connection for messages with tables; any thread sends, one receives."""

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._decode = msgspec.msgpack.Decoder(receives).decode

    def send(self, message: Message, tables: Sequence[pa.Table] = ()) -> None:
        """Send a message; raises OSError if the other end is gone."""
        parts = encode_frame(message, tables)
        with self._lock:
            send_all(self._socket, parts)

    def receive(self) -> tuple[Any, Tables] | None:
        """Return the next message and its tables, None at the end."""
        prefix = bytearray(_PREFIX.size)
        if not receive_into(self._socket, memoryview(prefix)):
            return None
        size, header, count = _PREFIX.unpack(prefix)
        frame = bytearray(size + 4)
        frame[: len(prefix)] = prefix
        rest = memoryview(frame)[len(prefix) :]
        if len(rest) and not receive_into(self._socket, rest):
            raise ConnectionError("closed within a frame")
        end = _PREFIX.size + header
        message = self._decode(memoryview(frame)[_PREFIX.size : end])
        return message, decode_tables(memoryview(frame), end, count)

    def close(self) -> None:
        """Close the connection, also for those who use it on other threads."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was faster
            return


# --- updates in words


def packed(batch: Batch, strings: Ints, interner: Interner) -> list[Any]:
    """Return updates as buffers; `strings` are the words that are interned strings."""
    width = batch.width
    columns = [int64_array(batch.times), int64_array(batch.diffs)]
    names = ["time", "diff"]
    if width:
        words = pa.py_buffer(np.ascontiguousarray(batch.words))
        type = pa.binary(8 * width)
        columns.append(pa.FixedSizeBinaryArray.from_buffers(type, len(batch), [None, words]))
        names.append("words")
    parts = [_stream(pa.RecordBatch.from_arrays(columns, names))]
    if len(strings):
        numbers = np.unique(batch.words[:, strings])
        numbers = numbers[numbers != 0]
        values = interner.strings(numbers, pa.binary())
        parts.append(
            _stream(pa.RecordBatch.from_arrays([int64_array(numbers), values], ["n", "s"]))
        )
    return [struct.pack("<II", width, len(parts[0])), *parts]


def unpacked(data: memoryview, strings: Ints, interner: Interner) -> Batch:
    """Return the updates that `packed` has made buffers of."""
    width, size = struct.unpack_from("<II", data)
    rows = _batch(data[8 : 8 + size])
    times, diffs = _integers(rows.column(0)), _integers(rows.column(1))
    if not width:
        return Batch(np.zeros((len(times), 0), np.int64), times, diffs)
    column = rows.column(2)
    words = np.frombuffer(column.buffers()[1], np.int64, len(times) * width)
    words = words.reshape(-1, width).copy()  # kernels are compiled for arrays that can be written
    if len(strings):
        sent = _batch(data[8 + size :])
        numbers = _integers(sent.column(0))
        here = np.concatenate([[0], interner.numbers(sent.column(1))])
        for place in strings:
            at = np.searchsorted(numbers, words[:, place]) + 1
            at[words[:, place] == 0] = 0
            words[:, place] = here[at]
    return Batch(words, times, diffs)


def _stream(batch: pa.RecordBatch) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _batch(data: memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def _integers(column: pa.Array) -> Ints:
    return np.array(column.to_numpy(zero_copy_only=False), np.int64)
