"""COPY on the wire: the sub-protocol in which rows travel as CopyData.

The data is parsed and formatted on threads, by pieces, so that a large load holds up neither the
loop nor memory: while so many pieces are worked on, no more than so much is read ahead.
"""

import asyncio
import os
from collections import deque
from typing import Protocol

from foreshore import blocking
from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.errors import QueryCanceled
from foreshore.server import message
from foreshore.server.binary_copy import BinaryCopyParser
from foreshore.server.codec import CHUNK
from foreshore.server.copy_in import Bulk, CopyParser
from foreshore.server.copy_out import CopyFormatter
from foreshore.server.encodings import ENCODINGS
from foreshore.server.wire import Wire

PIECES_AT_ONCE = max(2, min(4, os.cpu_count() or 1))  # that are read, of one COPY


async def copy_out(wire: Wire, copy: CopyOut, zone: str) -> str:
    """Send the rows of `copy`; return its tag."""
    formatter = CopyFormatter(copy.desc, copy.options, zone)
    wire.put(message.copy_response(b"H", int(formatter.binary), len(copy.desc.columns)))
    if start := formatter.start():
        wire.put(start)
    if copy.streaming:
        wire.flush()
    count = 0
    async for batch in copy.batches:
        count += batch.num_rows
        if copy.streaming and batch.num_rows <= CHUNK and formatter.is_plain:
            wire.put(await ENCODINGS.of(batch, formatter.form, formatter.rows))
            wire.flush()
            await wire.relieve()
            continue
        for begin in range(0, batch.num_rows, CHUNK):
            part = batch.slice(begin, CHUNK)
            wire.put(await blocking.run(None, formatter.rows, part))
            await wire.relieve()
        if copy.streaming:
            wire.flush()
    if end := formatter.end():
        wire.put(end)
    wire.put(message.COPY_DONE_OUT)
    return copy.tag(count)


async def copy_in(wire: Wire, copy: CopyIn, zone: str, *, simple: bool) -> str:
    """Receive the rows of `copy`; return its tag.

    Whatever goes wrong, the client's failing or leaving included, the target is told to forget the
    rows. What the client then still sends of its data is ignored by the conversation.
    """
    intake: _Intake | None = None
    try:
        binary = copy.options.format == "binary"
        intake = _Tuples(copy) if binary else _Pieces(copy, zone)
        wire.put(message.copy_response(b"G", int(binary), len(copy.desc.columns)))
        wire.flush()
        while True:
            while (received := wire.reader.next()) is None:
                await wire.more()
            match received:
                case message.CopyData(data):
                    await intake.take(data)
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


class _Intake(Protocol):
    """What takes the data of one COPY and gives its target the rows, in order."""

    async def take(self, data: bytes) -> None:
        """Take the next bytes; waits while there is much to do."""

    async def finish(self) -> None:
        """Give the target all there is: this was the last of the data."""

    def close(self) -> None:
        """Let go of what is under way."""


class _Tuples:
    """The intake of the binary format: one piece after the other."""

    def __init__(self, copy: CopyIn) -> None:
        self._copy = copy
        self._parser = BinaryCopyParser(copy)

    async def take(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._parser.full:
            await self._give(final=False)

    async def finish(self) -> None:
        await self._give(final=True)

    async def _give(self, *, final: bool) -> None:
        batch = await blocking.run(None, self._parser.take, final=final)
        if batch is not None and batch.num_rows:
            await self._copy.target.write(batch)

    def close(self) -> None:
        pass


class _Pieces:
    """The intake of text and csv: some pieces are read at once, and settled one after the other."""

    def __init__(self, copy: CopyIn, zone: str) -> None:
        self._copy = copy
        self._parser = CopyParser(copy, zone)
        self._reading: deque[tuple[bytes, asyncio.Task[Bulk | None]]] = deque()

    async def take(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._parser.full:
            await self._begin(final=False)
            while len(self._reading) >= PIECES_AT_ONCE:
                await self._settle()

    async def finish(self) -> None:
        await self._begin(final=True)
        while self._reading:
            await self._settle()

    async def _begin(self, *, final: bool) -> None:
        piece = await blocking.run(None, self._parser.cut, final=final)
        if piece:
            reading = asyncio.create_task(blocking.run(None, self._parser.in_bulk, piece))
            self._reading.append((piece, reading))

    async def _settle(self) -> None:
        piece, reading = self._reading[0]
        bulk = await reading
        self._reading.popleft()
        batch = await blocking.run(None, self._parser.settled, piece, bulk)
        if batch is not None and batch.num_rows:
            await self._copy.target.write(batch)

    def close(self) -> None:
        for _, reading in self._reading:
            reading.cancel()
