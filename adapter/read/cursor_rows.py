"""The rows of a cursor, which may be fetched forward, backward and by their places.

Places are those of PostgreSQL: 0 is before the first row, 1 is the first, and n + 1 is behind the
last of n rows. Rows come from a source as far as they are needed, and stay, in memory while they
are few and in a scratch file beyond (`compute/result.py`); those of a complete result stay where
they are.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Literal as OneOf

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.statement.result import ALL, BatchSource, RowSource
from foreshore.compute.result import BATCH_ROWS, Result
from foreshore.errors import ObjectNotInPrerequisiteState

Direction = OneOf["forward", "backward", "absolute", "relative"]


class CursorRows:
    """The rows of a source that does not stream, and the place of the cursor; a RowSource.

    If it does not `scroll`, moves to earlier rows are refused.
    """

    streaming = False
    has_ready = True

    def __init__(self, source: RowSource, *, scroll: bool) -> None:
        self.scroll = scroll
        self._place = 0
        self._source: RowSource | None = source  # None: all rows are known
        self._starts = [0]  # of the parts of the rows, in rows; the last one is their number
        self._rows: Result | None = None
        if isinstance(source, BatchSource) and (rows := source.left()) is not None:
            self._rows, self._source = rows, None
            self._note_parts()

    @property
    def _known(self) -> int:
        return self._starts[-1]

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows, at most `limit`; None when there are no more."""
        found = await self.moved("forward", min(limit, BATCH_ROWS))
        batches = [batch async for batch in self.between(*found)]
        return pa.concat_batches(batches) if batches else None

    async def park(self) -> None:
        """Park what is left of the source; other rows are in memory as far as there is some."""
        if self._source is not None:
            await self._source.park()

    def close(self) -> None:
        """Release memory and file."""
        for each in (self._source, self._rows):
            if each is not None:
                each.close()

    # --- moving --------------------------------------------------------------------------------

    async def moved(self, direction: Direction, count: int | None) -> tuple[int, int]:
        """Move by `count` rows (None: all); return the places of the first and last row met.

        The last is before the first if the rows are met backward. (0, 0) is no row. Raises
        ObjectNotInPrerequisiteState.
        """
        place = self._place
        match direction:
            case "forward" | "backward" if count == 0:
                return await self._to(place)
            case "forward":
                last = place + (ALL if count is None else count)
                await self._know(last)
                self._place = min(last, self._known + 1)
                last = min(last, self._known)
                return (place + 1, last) if place < last else (0, 0)
            case "backward":
                last = 1 if count is None else max(place - count, 1)
                if place <= 1:
                    self._place = 0
                    return (0, 0)
                self._check_may_return()
                self._place = 0 if count is None or count >= place else place - count
                return (place - 1, last)
            case "absolute":
                assert count is not None
                if count < 0:
                    await self._know(ALL)
                    count = max(self._known + 1 + count, 0)
                return await self._to(count)
            case "relative":
                assert count is not None
                return await self._to(max(place + count, 0))

    async def _to(self, place: int) -> tuple[int, int]:
        """Move to a place, and return the row there."""
        if place <= self._place and self._place:
            self._check_may_return()
        await self._know(place)
        self._place = min(place, self._known + 1)
        return (place, place) if 0 < place <= self._known else (0, 0)

    def _check_may_return(self) -> None:
        if not self.scroll:
            raise ObjectNotInPrerequisiteState(
                "cursor can only scan forward",
                hint="Declare it with SCROLL option to enable backward scan.",
            )

    async def _know(self, number: int) -> None:
        """Read the first `number` rows from the source, as far as there are any."""
        while self._source is not None and self._known < number:
            batch = await self._source.next(min(number - self._known, BATCH_ROWS))
            if batch is None:
                self._source.close()
                self._source = None
                return
            if self._rows is None:
                self._rows = Result(batch.schema)
            if not self._rows.add_in_memory(batch):
                await blocking.run(None, self._rows.add, batch)
            self._note_parts()

    def _note_parts(self) -> None:
        assert self._rows is not None
        for rows in self._rows.parts(len(self._starts) - 1):
            self._starts.append(self._starts[-1] + rows)

    async def current(self) -> pa.RecordBatch | None:
        """Return the row on which the cursor is, None before the first and behind the last."""
        if not 0 < self._place <= self._known:
            return None
        rows = [batch async for batch in self.between(self._place, self._place)]
        return rows[0]

    # --- reading -------------------------------------------------------------------------------

    async def between(self, first: int, last: int) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows from one place to another, as `moved` has returned them."""
        rows = self._rows
        if not first or rows is None:
            return
        low, high = sorted((first, last))
        parts = range(bisect_right(self._starts, low - 1) - 1, bisect_right(self._starts, high - 1))
        backward = last < first
        for number in reversed(parts) if backward else parts:
            at_hand = rows.is_kept(number)
            part = rows.part(number) if at_hand else await blocking.run(None, rows.part, number)
            start = max(low - 1 - self._starts[number], 0)
            end = min(high - self._starts[number], part.num_rows)
            part = part.slice(start, end - start)
            if backward:
                part = part.take(pa.array(range(part.num_rows - 1, -1, -1)))
            yield part
