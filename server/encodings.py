"""Encodings: what rows that many clients are sent are on the wire, made once for all of them.

A subscription's rows are one object for all whose statements are alike. What they became is kept
here, by format, for as long as that object lives.
"""

import asyncio
import weakref
from collections.abc import Callable, Hashable

import pyarrow as pa

from foreshore import blocking

INLINE = 256  # rows, up to which they are encoded on the event loop

Encode = Callable[[pa.RecordBatch], bytes]
Made = dict[Hashable, "bytes | asyncio.Future[bytes]"]


class Encodings:
    """The encodings of batches that are alive."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[pa.RecordBatch], Made]] = {}

    async def of(self, batch: pa.RecordBatch, form: Hashable, encode: Encode) -> bytes:
        """Return what `encode` makes of the batch, made once for each `form`."""
        made = self._of(batch)
        found = made.get(form)
        if isinstance(found, bytes):
            return found
        if found is None:
            if batch.num_rows <= INLINE:
                data = made[form] = encode(batch)
                return data
            found = asyncio.ensure_future(blocking.run(None, encode, batch))
            made[form] = found
        return await asyncio.shield(found)

    def _of(self, batch: pa.RecordBatch) -> Made:
        key = id(batch)
        found = self._made.get(key)
        if found is None:
            gone = weakref.ref(batch, lambda _: self._made.pop(key, None))
            found = self._made[key] = gone, {}
        return found[1]


ENCODINGS = Encodings()
