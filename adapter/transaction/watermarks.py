"""The watermarks of relations, and which rows come too late.

The watermark of a relation is its greatest finite time less a delay, as of the last commit. So it
is a function of what the relation has at that time, and is known again after a restart from its
rows alone. A row whose time is less is *late*. All rows of one commit are compared with the
watermark before it. INSERT and COPY refuse late rows; those of a source go to `NAME_late`.

A relation's rows are read when it is written for the first time after a start; after that the
greatest time follows the commits.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.calendar import TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY
from foreshore.catalog.planned import Planned
from foreshore.errors import DatabaseError, InternalError
from foreshore.ids import GlobalId
from foreshore.table_rows import Row, TableRows
from foreshore.types import Watermark

logger = logging.getLogger(__name__)

_INFINITE = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)

Parts = Sequence[pa.Table | TableRows]


@dataclass(frozen=True, slots=True)
class LateRow:
    """A row that is below the watermark of its table; both times are in microseconds since 1970."""

    table: GlobalId
    column: int
    time: int
    watermark: int


class Watermarks:
    """The greatest times of relations with watermarks; owned by the event loop.

    `planned` has the relations, `rows` yields one column of all committed rows of one.
    """

    def __init__(
        self,
        planned: Callable[[], Mapping[GlobalId, Planned]],
        rows: Callable[[GlobalId, int], AsyncGenerator[pa.Table]],
    ) -> None:
        self._planned = planned
        self._rows = rows
        self._greatest: dict[GlobalId, int | None] = {}  # in microseconds since 1970
        self._begun: dict[GlobalId, Watermark] = {}  # of relations that are being created
        self._writes: dict[GlobalId, int] = {}  # how many commits have written a relation
        self._missed: dict[GlobalId, int | None] = {}  # written while others are read
        self.with_timeout: set[GlobalId] = set()  # relations that the clock may move
        self._reading: dict[GlobalId, asyncio.Task[None]] = {}

    def of(self, id: GlobalId) -> Watermark | None:
        """Return the watermark that a relation is defined with."""
        planned = self._planned().get(id)
        return self._begun.get(id) if planned is None else planned.desc.watermark

    async def ready(self, id: GlobalId) -> None:
        """Wait until the greatest time of a relation that has a shard is known."""
        if id in self._greatest or self.of(id) is None:
            return
        reading = self._reading.get(id)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(id))
            self._reading[id] = reading
            reading.add_done_callback(lambda _: self._reading.pop(id, None))
        await asyncio.shield(reading)

    async def read_all(self, ids: Iterable[GlobalId]) -> None:
        """Read the greatest times of relations; those that cannot be read are left out."""
        try:
            for id in ids:
                try:
                    await self.ready(id)
                except DatabaseError as error:
                    logger.warning(
                        "a watermark was not read: %s", error.message, extra={"table": id}
                    )
        except asyncio.CancelledError:  # the environment closes
            for reading in self._reading.values():
                reading.cancel()
            raise

    async def _read(self, id: GlobalId) -> None:
        watermark = self.of(id)
        assert watermark is not None, id
        self._note_timeout(id, watermark)
        found: int | None = None
        self._missed[id] = None
        try:
            async with aclosing(self._rows(id, watermark.column)) as parts:
                async for part in parts:
                    found = _later(found, greatest_time([part], 0))
            if watermark.marks is not None:
                async with aclosing(self._rows(watermark.marks, 0)) as parts:
                    async for part in parts:
                        found = _later(found, greatest_time([part], 0))
            self._greatest[id] = _later(found, self._missed[id])
        finally:
            del self._missed[id]

    def begin(self, id: GlobalId, watermark: Watermark | None, rows: pa.Table | None) -> None:
        """Note a new relation and the rows with which it begins."""
        if watermark is not None:
            found = None if rows is None else greatest_time([rows], watermark.column)
            self._greatest[id], self._begun[id] = found, watermark
            self._note_timeout(id, watermark)

    def go_on(self, old: GlobalId, new: GlobalId) -> None:
        """Let a relation that was altered, and has a new id, be at least as far as it was."""
        if new in self._greatest:
            self._follow(new, self._greatest.get(old))

    def forget(self, id: GlobalId) -> None:
        """Forget a relation that was dropped."""
        self._greatest.pop(id, None)
        self._begun.pop(id, None)
        self._writes.pop(id, None)
        self.with_timeout.discard(id)

    def _note_timeout(self, id: GlobalId, watermark: Watermark) -> None:
        if watermark.idle is not None:
            self.with_timeout.add(id)

    def now(self, id: GlobalId) -> int | None:
        """Return the watermark of a relation, in microseconds; None before its first time."""
        watermark, greatest = self.of(id), self._greatest.get(id)
        return None if watermark is None or greatest is None else greatest - watermark.delay

    def greatest(self, id: GlobalId) -> int | None:
        """Return the greatest time of a relation, or to which the clock has moved it."""
        return self._greatest.get(id)

    def writes(self, id: GlobalId) -> int:
        """Return how many commits have written a relation since the start."""
        return self._writes.get(id, 0)

    def move(self, id: GlobalId, mark: int) -> None:
        """Note a mark of the clock, which has just become visible."""
        self._follow(id, mark)

    def all(self) -> Iterator[tuple[GlobalId, int]]:
        """Yield the relations whose watermarks are known, with these in microseconds."""
        for id in self._greatest:
            now = self.now(id)
            if now is not None:
                yield id, now

    # --- group commit

    def late_row(self, rows: Mapping[GlobalId, Parts]) -> LateRow | InternalError | None:
        """Return a late row of what is to be written, None if there are none.

        It is an error if a watermark is not known: so a single write fails, and not the group.
        """
        for id, parts in rows.items():
            watermark = self.of(id)
            if watermark is None or not parts:
                continue
            if id not in self._greatest:
                return InternalError(f"the watermark of {id} is not known")
            now = self.now(id)
            least = None if now is None else _least(parts, watermark.column)
            if now is not None and least is not None and least < now:
                return LateRow(id, watermark.column, least, now)
        return None

    def apply(self, rows: Mapping[GlobalId, Parts]) -> None:
        """Follow the rows that a commit has written."""
        for id, parts in rows.items():
            watermark = self.of(id)
            if watermark is None or not any(map(_has_rows, parts)):
                continue
            self._writes[id] = self._writes.get(id, 0) + 1
            self._follow(id, greatest_time(parts, watermark.column))

    def _follow(self, id: GlobalId, found: int | None) -> None:
        if id in self._greatest:
            self._greatest[id] = _later(self._greatest[id], found)
        elif id in self._missed:
            self._missed[id] = _later(self._missed[id], found)

    def split(self, id: GlobalId, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows that are not late, and those that are; None if there are none."""
        watermark, now = self.of(id), self.now(id)
        if watermark is None or now is None:
            return rows, None
        times = _micros(rows.column(watermark.column))
        late = pc.fill_null(pc.less(times, pa.scalar(now, pa.int64())), False)
        if not pc.any(late).as_py():
            return rows, None
        return rows.filter(pc.invert(late)), rows.filter(late)


def greatest_time(parts: Parts, column: int) -> int | None:
    """Return the greatest finite time of new rows, in microseconds; None if there is none."""
    found: int | None = None
    for part in parts:
        if isinstance(part, TableRows) and part.are_tuples:
            times = _times(part.tuples, column)
            known = [time for time in times if time not in _INFINITE]
            found = _later(found, max(known, default=None))
            continue
        micros = _micros((part.table if isinstance(part, TableRows) else part).column(column))
        greatest = pc.max(micros).as_py()
        if greatest in _INFINITE:
            infinite = pc.is_in(micros, pa.array(_INFINITE, pa.int64()))
            greatest = pc.max(pc.if_else(infinite, None, micros)).as_py()
        found = _later(found, greatest)
    return found


def _least(parts: Parts, column: int) -> int | None:
    """Return the least time of new rows, in microseconds; None if all are NULL."""
    found: list[int] = []
    for part in parts:
        if isinstance(part, TableRows) and part.are_tuples:
            found += _times(part.tuples, column)
            continue
        table = part.table if isinstance(part, TableRows) else part
        least = pc.min(_micros(table.column(column))).as_py()
        found += [] if least is None else [least]
    return min(found, default=None)


def _has_rows(part: pa.Table | TableRows) -> bool:
    if isinstance(part, TableRows):
        return bool(part.tuples) if part.are_tuples else bool(part.table.num_rows)
    return bool(part.num_rows)


def _times(rows: Sequence[Row], column: int) -> list[int]:
    """Return the times of rows that are not NULL, in microseconds."""
    return [row[column] for row in rows if row[column] is not None]  # type: ignore[misc]


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.int64())


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
