"""Transport: frames of a message and its tables over a socket between two Foreshore processes.

    frame   = u32 length of all that follows, u32 length of header, u32 number of tables,
              header, tables
    header  = the message in msgpack
    table   = u32 length of schema, u32 number of batches, schema, batches
              or u32 0, u32 length of name, name of a file in a directory of the receiver
              or u32 length of schema, u32 max, schema, a batch of tuples (`few_updates.py`)
    batch   = u64 length, batch

Schema and batches are Arrow IPC messages, each at a multiple of 8 bytes from the frame's start, and
are used in place. There is no pickle: a peer can send nothing but data. Both ends first show that
they know a secret (`handshake.py`); otherwise the connection is closed. A malformed frame also
closes it, because the start of the next frame cannot be found.

Frames are sent in order, those of one turn of the event loop together. A peer that does not read is
disconnected when too much is queued for it; it can start again from a snapshot. Large tables go to
a replica of the same machine through files (`outbox.py`); what is sent later waits until these are
written.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
import pyarrow as pa

from foreshore import blocking
from foreshore.few_updates import FewUpdates, packed_updates, unpacked_updates
from foreshore.loop_watchdog import protocol_callback
from foreshore.processes import handshake
from foreshore.processes.handshake import Handshake, HandshakeError
from foreshore.processes.messages import Message
from foreshore.processes.outbox import Outbox, are_large, take
from foreshore.update import decode_schema, encode_schema

logger = logging.getLogger(__name__)

SECRET_VARIABLE = "FORESHORE_REPLICA_SECRET"  # in the environment of a replica process
SCRATCH_VARIABLE = (
    "FORESHORE_REPLICA_SCRATCH"  # a directory that is removed after the process has ended
)
MAX_FRAME = (1 << 32) - 1
FIRST_FRAMES = handshake.MAX_FRAME  # before the other end has shown that it knows the secret
MAX_UNSENT = 2 << 30
_PREFIX = struct.Struct("<III")
_TABLE = struct.Struct("<II")
_BATCH = struct.Struct("<Q")
_TUPLES = (1 << 32) - 1  # in place of a number of batches
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0", b"\0\0\0\0", b"\0" * 5, b"\0" * 6, b"\0" * 7)

M = TypeVar("M", bound=Message)
Tables = tuple[pa.Table, ...]
Sent: TypeAlias = pa.Table | FewUpdates  # the other end gets a table

_NO_FILES: Mapping[int, str] = MappingProxyType({})

_encode_message = msgspec.msgpack.Encoder().encode


class FrameError(Exception):
    """The bytes are not a frame; the connection is unusable."""


def encode_frame(
    message: Message, tables: Sequence[Sent] = (), files: Mapping[int, str] = _NO_FILES
) -> list[Any]:
    """Return the frame as bytes-like parts; raises FrameError if it would be too large.

    `files` has the names of files in place of some of the tables, by their numbers.
    """
    header = _encode_message(message)
    parts: list[Any] = [b"", header]
    position = _PREFIX.size + len(header)

    def add(part: Any) -> None:
        nonlocal position
        padding = -position % 8
        if padding:
            parts.append(_PADDING[padding])
        parts.append(part)
        position += padding + len(part)

    for number, table in enumerate(tables):
        if number in files:
            name = files[number].encode()
            add(_TABLE.pack(0, len(name)))
            add(name)
            continue
        schema = encode_schema(table.schema)
        if isinstance(table, FewUpdates):
            data = packed_updates(table)
            add(_TABLE.pack(len(schema), _TUPLES))
            add(schema)
            add(_BATCH.pack(len(data)))
            add(data)
            continue
        batches = [batch.serialize() for batch in table.to_batches() if batch.num_rows]
        add(_TABLE.pack(len(schema), len(batches)))
        add(schema)
        for batch in batches:
            add(_BATCH.pack(batch.size))
            add(memoryview(batch))
    if position > MAX_FRAME:
        raise FrameError(f"a frame of {position} bytes is too large")
    parts[0] = _PREFIX.pack(position - 4, len(header), len(tables))
    return parts


def _encode_with_files(message: Message, tables: Sequence[Sent], outbox: Outbox) -> list[Any]:
    """Return the frame of a message with large tables, which are written to files; blocks."""
    try:
        named = {number: outbox.put(table) for number, table in enumerate(tables)}
    except OSError as error:
        logger.warning("a large table goes through the socket: %s", error)
        return encode_frame(message, tables)
    return encode_frame(message, tables, {i: name for i, name in named.items() if name})


def decode_tables(
    frame: memoryview, position: int, count: int, files: Path | None = None
) -> Tables:
    """Return the `count` tables from `position` on, which must fill the rest of the frame.

    Some may be in files of the directory `files`.
    """
    tables = []

    def part(size: int) -> memoryview:
        nonlocal position
        position += -position % 8
        begin, position = position, position + size
        if position > len(frame):
            raise FrameError("a table reaches beyond its frame")
        return frame[begin:position]

    for _ in range(count):
        schema_size, batch_count = _TABLE.unpack(part(_TABLE.size))
        if not schema_size:
            tables.append(_in_file(files, bytes(part(batch_count))))
            continue
        schema = decode_schema(bytes(part(schema_size)))
        if batch_count == _TUPLES:
            (size,) = _BATCH.unpack(part(_BATCH.size))
            try:
                tables.append(unpacked_updates(schema, part(size)).table)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise FrameError("tuples that do not fit their columns") from error
            continue
        batches = []
        for _ in range(batch_count):
            (size,) = _BATCH.unpack(part(_BATCH.size))
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(part(size)), schema))
        tables.append(pa.Table.from_batches(batches, schema))
    if position != len(frame):
        raise FrameError("bytes are left over in a frame")
    return tuple(tables)


def _in_file(directory: Path | None, name: bytes) -> pa.Table:
    if directory is None:
        raise FrameError("a table in a file of another machine")
    try:
        return take(directory, name.decode())
    except (OSError, ValueError) as error:
        raise FrameError(f"a table in a file: {error}") from error


class Frames:
    """Cuts received bytes into frames; `receive` yields complete ones.

    `limit` may change between two frames, even within the same bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""  # the start of a frame, shorter than its prefix
        self._frame: bytearray | None = None  # an incomplete frame
        self._filled = 0

    def receive(self, data: bytes) -> Iterator[memoryview]:
        """Add `data` and yield the frames that it completes."""
        if self._frame is not None:
            taken = min(len(self._frame) - self._filled, len(data))
            self._frame[self._filled : self._filled + taken] = memoryview(data)[:taken]
            self._filled += taken
            if self._filled < len(self._frame):
                return
            complete, self._frame = self._frame, None
            yield memoryview(complete)
            data = data[taken:]
        elif self._rest:
            data = self._rest + data
            self._rest = b""
        view = memoryview(data)
        start = 0
        while len(data) - start >= _PREFIX.size:
            size = 4 + int.from_bytes(view[start : start + 4], "little")
            if not _PREFIX.size <= size <= self.limit:
                raise FrameError(f"a frame of {size} bytes")
            if len(data) - start < size:
                self._frame = bytearray(size)
                self._filled = len(data) - start
                self._frame[: self._filled] = view[start:]
                return
            frame = view[start : start + size]
            # batches must be at multiples of 8 in memory, as they are in the frame
            yield frame if start == 0 else memoryview(bytes(frame))
            start += size
        self._rest = data[start:]


class Connection(asyncio.Protocol, Generic[M]):
    """One end of a connection, which sends and delivers messages with their tables.

    `deliver` is called on the event loop for each message in order, `lost` once at the end. With a
    `handshake` nothing is delivered, and nothing may be sent, before it is over; `proven` waits
    for that. The accepting end passes the directory `files` in which the other end may leave large
    tables; the other end sets `outbox` then.
    """

    def __init__(
        self,
        receives: Any,
        deliver: Callable[["Connection[M]", M, Tables], None],
        lost: Callable[["Connection[M]"], None],
        handshake: Handshake | None = None,
        files: Path | None = None,
    ) -> None:
        self._decode = msgspec.msgpack.Decoder(receives).decode
        self._deliver = deliver
        self._lost = lost
        self._handshake = handshake
        self._refused = "the connection was lost"  # why there is no handshake
        self._is_proven = asyncio.Event()  # or lost
        self._patience: asyncio.TimerHandle | None = None
        self._frames = Frames(MAX_FRAME if handshake is None else FIRST_FRAMES)
        self._transport: asyncio.Transport | None = None
        self._files = files
        self.closed = False
        self._has_room = asyncio.Event()  # whether the peer reads what is sent
        self._has_room.set()
        self.outbox: Outbox | None = None
        # What is sent after a message whose files are being written.
        self._waiting: deque[list[Any] | tuple[Message, Sequence[Sent]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    # --- asyncio's side

    @protocol_callback
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and disable write buffering."""
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=1 << 20)
        self._transport = cast(asyncio.Transport, transport)
        if self._handshake is not None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(handshake.SECONDS, self.abort)
            if (first := self._handshake.begin()) is not None:
                self._write(encode_frame(first))

    async def proven(self) -> None:
        """Wait until both ends have shown the secret; raises ConnectionError if they do not."""
        await self._is_proven.wait()
        if self._handshake is not None:
            raise ConnectionError(f"no handshake: {self._refused}")

    def pause_writing(self) -> None:
        """Note that much is unsent."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """Note that most of it was sent."""
        self._has_room.set()

    @protocol_callback
    def data_received(self, data: bytes) -> None:
        """Deliver the messages that `data` completes."""
        try:
            for frame in self._frames.receive(data):
                if self.closed:
                    return
                self._received(frame)
        except HandshakeError as error:
            self._refused = str(error)
            logger.warning("connection closed, no handshake: %s", error)
            self.close()
        except (FrameError, msgspec.DecodeError, pa.ArrowInvalid, struct.error) as error:
            logger.warning("connection closed, not a frame: %s", error)
            self.close()

    def _received(self, frame: memoryview) -> None:
        _, header_size, count = _PREFIX.unpack_from(frame)
        end = _PREFIX.size + header_size
        if end > len(frame):
            raise FrameError("a header reaches beyond its frame")
        if self._handshake is not None:
            self._greet(self._handshake, bytes(frame[_PREFIX.size : end]))
            return
        message = self._decode(frame[_PREFIX.size : end])
        tables: Tables = ()
        if count or end < len(frame):
            tables = decode_tables(frame, end, count, self._files)
        self._deliver(self, message, tables)

    def _greet(self, handshake: Handshake, data: bytes) -> None:
        """Take a message of the handshake."""
        if (answer := handshake.receive(data)) is not None:
            self._write(encode_frame(answer))
        if handshake.is_over:
            self._handshake = None
            self._frames.limit = MAX_FRAME
            self._is_proven.set()
            if self._patience is not None:
                self._patience.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Call `lost`, once."""
        self.closed = True
        self._is_proven.set()
        if self._patience is not None:
            self._patience.cancel()
        self._has_room.set()
        self._transport = None
        self._lost(self)

    # --- ours

    def send(self, message: Message, tables: Sequence[Sent] = ()) -> None:
        """Send `message` after all earlier ones; no effect if the connection is closed."""
        if self.closed:
            return
        assert self._handshake is None, "who is at the other end is not known yet"
        if self.outbox is not None and are_large(tables):
            self._waiting.append((message, tables))
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send_waiting())
        else:
            self.send_frame(encode_frame(message, tables))

    def send_frame(self, parts: list[Any]) -> None:
        """Send a frame made by `encode_frame`, perhaps over several connections."""
        if self._sending is not None:
            self._waiting.append(parts)
        else:
            self._write(parts)

    async def _send_waiting(self) -> None:
        """Send what waits, in order, with large tables in files."""
        try:
            while self._waiting and not self.closed:
                parts = self._waiting.popleft()
                if isinstance(parts, tuple):
                    assert self.outbox is not None
                    parts = await blocking.run(None, _encode_with_files, *parts, self.outbox)
                self._write(parts)
        except Exception:
            logger.exception("connection cut, a message cannot be sent")
            self.abort()
        finally:
            self._sending = None
            self._waiting.clear()

    def _write(self, parts: list[Any]) -> None:
        transport = self._transport
        if transport is None or self.closed:
            return
        if len(parts) > 2:
            transport.writelines(parts)
        else:
            transport.write(b"".join(parts))
        if transport.get_write_buffer_size() > MAX_UNSENT:
            logger.error("connection cut, the peer does not read")
            self.abort()

    async def drained(self) -> None:
        """Wait until the peer has read most of what was sent, or the connection is closed."""
        if self._sending is not None:
            await asyncio.wait([self._sending])
        await self._has_room.wait()

    def listen(self, *, on: bool) -> None:
        """Resume or pause reading from the peer; data already received is still delivered."""
        transport = self._transport
        if transport is not None and not self.closed and not transport.is_closing():
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """Close after pending messages are sent; deliver nothing more."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
