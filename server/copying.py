"""COPY on the wire: the sub-protocol that transfers rows as CopyData messages.

Threads parse and format the data in pieces, so that a large load does not block the event loop.
The number of pieces in progress is bounded, and so is the data read ahead of them.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.errors import OutOfMemory, QueryCanceled, Unavailable
from foreshore.output_style import OutputStyle
from foreshore.server import message
from foreshore.server.arrow_copy import MAX_MESSAGE, ArrowCopyParser, ArrowFormatter
from foreshore.server.binary_copy import BinaryCopyParser
from foreshore.server.client_encoding import ClientEncoding, LinesDecoder, client_encoding
from foreshore.server.codec import CHUNK
from foreshore.server.copy_in import PIECE, Bulk, CopyParser
from foreshore.server.copy_out import CopyFormatter
from foreshore.server.encodings import ENCODINGS
from foreshore.server.long_rows import in_slices, is_long
from foreshore.server.protocol import AGAIN, GATHERED
from foreshore.server.shared_bytes import KeptBytes
from foreshore.server.wire import Wire
from foreshore.types import REG_NAMES

LONGEST_ROW = MAX_MESSAGE  # bytes that one row may have as it is sent
PIECES_AT_ONCE = max(2, min(4, os.cpu_count() or 1))  # of one COPY, parsed concurrently


def shows_names(copy: CopyOut) -> bool:
    """Whether a column shows names in place of oids."""
    return any((each.type.element or each.type).name in REG_NAMES for each in copy.desc.columns)


async def copy_out(wire: Wire, copy: CopyOut, style: OutputStyle) -> str:
    """Send the rows of `copy`; return its tag."""
    formatter: CopyFormatter | ArrowFormatter
    if copy.options.format == "arrow":
        formatter = ArrowFormatter(copy.desc, exact_numeric=copy.options.exact_numeric)
    else:
        formatter = CopyFormatter(copy.desc, copy.options, style)
    encoding = _encoding_of(wire, copy)
    if encoding is not None and isinstance(formatter, CopyFormatter):
        return await _copy_out_converted(wire, copy, formatter, encoding)
    wire.put(message.copy_response(b"H", int(formatter.binary), len(copy.desc.columns)))
    # Texts of Arrow are UTF8, whatever the client's encoding is.
    put = wire.put_rows if isinstance(formatter, ArrowFormatter) else wire.put
    if start := formatter.start():
        put(start)
    if copy.streaming:
        wire.flush()
    count = 0
    async for batch in copy.batches:
        count += batch.num_rows
        if copy.streaming and batch.num_rows <= CHUNK and formatter.is_plain:
            put(await ENCODINGS.of(batch, formatter.form, formatter.shared))
            wire.flush()
            await wire.relieve()
            continue
        rows, is_plain = formatter.chunk_rows, formatter.is_plain
        pieces = encoded(batch, formatter.rows, rows=rows, is_plain=is_plain)
        del batch
        async for piece in pieces:
            put(piece)
            await wire.relieve()
        if copy.streaming:
            wire.flush()
    if end := formatter.end():
        put(end)
    wire.put(message.COPY_DONE_OUT)
    return copy.tag(count)


def _encoding_of(wire: Wire, copy: CopyIn | CopyOut) -> ClientEncoding | None:
    """Return the encoding of the data; None: UTF8."""
    name = copy.options.encoding
    return client_encoding(name) if name else wire.encoding


async def _copy_out_converted(
    wire: Wire, copy: CopyOut, formatter: CopyFormatter, encoding: ClientEncoding
) -> str:
    """Send the rows of `copy` to a client whose encoding is not UTF8; return its tag."""
    if formatter.binary:
        encoding.check_binary([each.type for each in copy.desc.columns])
    convert = bytes if formatter.binary else encoding.lines
    wire.put(message.copy_response(b"H", int(formatter.binary), len(copy.desc.columns)))
    wire.put_rows(convert(formatter.start()))
    count = 0
    async for batch in copy.batches:
        count += batch.num_rows
        rows = encoded(
            batch, lambda part: convert(formatter.rows(part)), is_plain=formatter.is_plain
        )
        del batch
        async for piece in rows:
            wire.put_rows(piece)
            await wire.relieve()
        if copy.streaming:
            wire.flush()
    wire.put(formatter.end() + message.COPY_DONE_OUT)
    return copy.tag(count)


async def encoded(
    batch: pa.RecordBatch,
    encode: Callable[[pa.RecordBatch], message.Bytes],
    *,
    rows: int = CHUNK,
    is_plain: bool = True,
) -> AsyncIterator[message.Bytes]:
    """Yield the parts of a batch, of so many rows, encoded on threads.

    If a part depends on its rows alone (`is_plain`), the next is encoded while one is sent. A long
    batch is let go of once it is encoded, if the caller does not hold it.
    """
    if is_long(batch):
        held = [batch]
        del batch
        async for piece in in_slices(held, encode):
            yield piece
        return
    parts = [batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows)]
    following: asyncio.Future[message.Bytes] | None = None
    try:
        for number, part in enumerate(parts):
            current = following or asyncio.ensure_future(blocking.run(None, encode, part))
            following = None
            if is_plain and number + 1 < len(parts):
                following = asyncio.ensure_future(blocking.run(None, encode, parts[number + 1]))
            yield await current
    finally:
        if following is not None:
            following.cancel()


async def copy_in(wire: Wire, copy: CopyIn, zone: str, *, simple: bool) -> str:
    """Receive the rows of `copy`; return its tag.

    On any error, CopyFail and a lost connection included, the target discards the rows. The
    conversation then ignores the rest of the client's data.
    """
    intake: _Intake | None = None
    gathered = KeptBytes(GATHERED)
    try:
        intake, format = _intake_of(wire, copy, zone)
        wire.put(message.copy_response(b"G", format, len(copy.desc.columns)))
        wire.flush()
        while True:
            received = await wire.next()
            match received:
                case message.CopyData(data):
                    await intake.take(data)
                    _check_row(intake.unparsed_bytes, gathered)
                case message.CopyDone():
                    await intake.finish()
                    last = simple or await wire.upcoming() == message.SYNC_TYPE
                    return await copy.target.finish(last=last)
                case message.CopyFail(reason):
                    raise QueryCanceled(f"COPY from stdin failed: {reason}")
                case message.Unreadable(error=error):
                    raise error
                case message.Flush() | message.Sync():
                    pass
                case _:
                    kind = type(received).__name__
                    raise message.FramingError(f"unexpected message {kind} during COPY from stdin")
    except BaseException:
        if intake is not None:
            intake.close()
        copy.target.abort()
        raise
    finally:
        gathered.clear()


def _check_row(size: int, gathered: KeptBytes) -> None:
    """Raise an error if a row that has not arrived in full, of `size` bytes so far, is too long.

    The rows of all connections have a bound, too, above what a COPY without long rows has.
    """
    if size > LONGEST_ROW:
        raise Unavailable(
            "out of memory",
            detail=f"A row of COPY has more than {LONGEST_ROW} bytes.",
            sqlstate="54000",
        )
    if not gathered.change(max(size - PIECE, 0)):
        raise OutOfMemory("Rows of COPY that have not arrived in full hold too many bytes.", AGAIN)


def _intake_of(wire: Wire, copy: CopyIn, zone: str) -> tuple["_Intake", int]:
    """Return what takes the data of `copy` in, and the code of its format: 0 text, 1 binary."""
    encoding = _encoding_of(wire, copy)
    match copy.options.format:
        case "arrow":
            return _ArrowIntake(copy), 1
        case "binary":
            if encoding is not None:
                encoding.check_binary([each.type for each in copy.desc.columns])
            return _BinaryIntake(copy), 1
        case _:
            return _TextIntake(copy, zone, encoding), 0


class _Intake(Protocol):
    """Parses the data of one COPY and writes the rows to its target, in order."""

    @property
    def unparsed_bytes(self) -> int:
        """The bytes that have been taken and are in no piece yet."""

    async def take(self, data: bytes) -> None:
        """Add the next bytes; waits while many pieces are in progress."""

    async def finish(self) -> None:
        """Write the remaining rows to the target, after the last of the data."""

    def close(self) -> None:
        """Cancel the pieces in progress."""


class _BinaryIntake:
    """The intake of the binary format: one piece after the other."""

    def __init__(self, copy: CopyIn) -> None:
        self._copy = copy
        self._parser = BinaryCopyParser(copy)

    @property
    def unparsed_bytes(self) -> int:
        return self._parser.unparsed_bytes

    async def take(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._parser.full:
            await self._write(final=False)

    async def finish(self) -> None:
        await self._write(final=True)

    async def _write(self, *, final: bool) -> None:
        batch = await blocking.run(None, self._parser.take, final=final)
        if batch is not None and batch.num_rows:
            await self._copy.target.write(batch)

    def close(self) -> None:
        pass


class _ArrowIntake:
    """The intake of Arrow streams: one piece after the other."""

    def __init__(self, copy: CopyIn) -> None:
        self._copy = copy
        self._parser = ArrowCopyParser(copy)

    @property
    def unparsed_bytes(self) -> int:
        return self._parser.unparsed_bytes

    async def take(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._parser.full:
            await self._write(final=False)

    async def finish(self) -> None:
        await self._write(final=True)

    async def _write(self, *, final: bool) -> None:
        for batch in await blocking.run(None, self._parser.take, final=final):
            if batch.num_rows:
                await self._copy.target.write(batch)

    def close(self) -> None:
        pass


class _TextIntake:
    """The intake of text and csv: pieces are parsed concurrently and completed in their order."""

    def __init__(self, copy: CopyIn, zone: str, encoding: ClientEncoding | None) -> None:
        self._copy = copy
        self._decoder = None if encoding is None else LinesDecoder(encoding)
        self._parser = CopyParser(copy, zone)
        self._reading: deque[tuple[bytes, asyncio.Task[Bulk | None]]] = deque()

    @property
    def unparsed_bytes(self) -> int:
        return self._parser.unparsed_bytes

    async def take(self, data: bytes) -> None:
        self._parser.feed(data if self._decoder is None else self._decoder.decoded(data))
        if self._parser.full:
            await self._begin(final=False)
            while len(self._reading) >= PIECES_AT_ONCE:
                await self._complete()

    async def finish(self) -> None:
        if self._decoder is not None:
            self._parser.feed(self._decoder.decoded(b"", final=True))
        await self._begin(final=True)
        while self._reading:
            await self._complete()

    async def _begin(self, *, final: bool) -> None:
        piece = await blocking.run(None, self._parser.cut, final=final)
        if piece:
            reading = asyncio.create_task(blocking.run(None, self._parser.read_in_bulk, piece))
            self._reading.append((piece, reading))

    async def _complete(self) -> None:
        piece, reading = self._reading[0]
        bulk = await reading
        self._reading.popleft()
        batch = await blocking.run(None, self._parser.complete, piece, bulk)
        if batch is not None and batch.num_rows:
            await self._copy.target.write(batch)

    def close(self) -> None:
        for _, reading in self._reading:
            reading.cancel()
