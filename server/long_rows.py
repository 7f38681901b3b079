"""Rows of many megabytes on their way to a client.

Encoding a long row takes memory for some copies of it. So in the process one at a time is encoded,
into a scratch file, from which its client gets it as fast as it reads. Nobody waits for a client
meanwhile, and a client that does not read costs disk space.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from weakref import WeakKeyDictionary

import pyarrow as pa

from foreshore import blocking
from foreshore.scratch_file import ScratchFile
from foreshore.server.message import Bytes

LONG = 4 << 20  # bytes of a batch: a usual one has 1 MB
SLICE = 1 << 18  # bytes that are sent at once

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def is_long(batch: pa.RecordBatch) -> bool:
    """Whether a batch should not be encoded in memory."""
    return bool(batch.get_total_buffer_size() > LONG and batch.nbytes > LONG)


async def in_slices(
    rows: list[pa.RecordBatch], encode: Callable[[pa.RecordBatch], Bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield the encoded form of a long batch, which is taken out of the list and let go of."""
    turn = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with turn:
        file, size = await blocking.run(None, _spooled, rows, encode)
    with closing(file):
        for start in range(0, size, SLICE):
            yield bytes(await blocking.run(None, file.read, start, min(SLICE, size - start)))


def _spooled(
    rows: list[pa.RecordBatch], encode: Callable[[pa.RecordBatch], Bytes]
) -> tuple[ScratchFile, int]:
    """Return a file that has the encoded rows, and its size."""
    file = ScratchFile()
    try:
        data = memoryview(encode(rows.pop())).cast("B")
        place = file.add(data)
        assert place == 0, place
        return file, len(data)
    except BaseException:
        file.close()
        raise
