"""COPY on the wire: the sub-protocol in which rows travel as CopyData.

The data is parsed and formatted on a thread, a piece at a time, so that a large load holds up
neither the loop nor memory: while a piece is worked on, no more than so much is read ahead.
"""

import asyncio

from foreshore import blocking
from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.errors import QueryCanceled
from foreshore.server import message
from foreshore.server.binary_copy import BinaryCopyParser
from foreshore.server.codec import CHUNK
from foreshore.server.copy_in import CopyParser
from foreshore.server.copy_out import CopyFormatter
from foreshore.server.encodings import ENCODINGS
from foreshore.server.wire import Wire


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


async def copy_in(wire: Wire, copy: CopyIn, zone: str) -> str:
    """Receive the rows of `copy`; return its tag.

    Whatever goes wrong, the client's failing or leaving included, the target is told to forget the
    rows. What the client then still sends of its data is ignored by the conversation.
    """
    try:
        parser: CopyParser | BinaryCopyParser
        if copy.options.format == "binary":
            parser = BinaryCopyParser(copy)
        else:
            parser = CopyParser(copy, zone)
        binary = copy.options.format == "binary"
        wire.put(message.copy_response(b"G", int(binary), len(copy.desc.columns)))
        wire.flush()
        while True:
            while (received := wire.reader.next()) is None:
                await wire.more()
            match received:
                case message.CopyData(data):
                    parser.feed(data)
                    if parser.full:
                        await _write(parser, copy, final=False)
                case message.CopyDone():
                    await _write(parser, copy, final=True)
                    return await copy.target.finish()
                case message.CopyFail(reason):
                    raise QueryCanceled(f"COPY from stdin failed: {reason}")
                case message.Unreadable(error=error):
                    raise error
                case message.Flush() | message.Sync():
                    pass
                case _:
                    kind = type(received).__name__
                    raise message.FramingError(f"unexpected message {kind} during COPY from stdin")
    except BaseException as error:
        reason = str(error) or type(error).__name__
        await asyncio.shield(asyncio.ensure_future(copy.target.abort(reason)))
        raise


async def _write(parser: CopyParser | BinaryCopyParser, copy: CopyIn, *, final: bool) -> None:
    batch = await blocking.run(None, parser.take, final=final)
    if batch is not None and batch.num_rows:
        await copy.target.write(batch)
