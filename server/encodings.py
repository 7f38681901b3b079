"""Encodings: encode rows once that are sent to many clients.

Subscriptions with the same query share their batches of rows. This cache keeps the encoded form of
each batch, by format, for as long as the batch lives.
"""

import asyncio
import weakref
from collections.abc import Callable, Hashable

import pyarrow as pa

from foreshore import blocking

INLINE = 256  # batches of up to so many rows are encoded on the event loop

Encode = Callable[[pa.RecordBatch], bytes]
Made = dict[Hashable, "bytes | asyncio.Future[bytes]"]


class Encodings:
    """The encodings of the batches that are alive."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[pa.RecordBatch], Made]] = {}

    async def of(self, batch: pa.RecordBatch, form: Hashable, encode: Encode) -> bytes:
        """Return `encode(batch)`, computed once for each `form`."""
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
