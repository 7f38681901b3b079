"""All rows of tables at the place of a snapshot, where a slot begins: one batch, in parts.

If there are rows here already, as the slot before was lost, the batch has the difference only.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa

from foreshore.sources.outputs import ERRORS
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.connector import Batch, Durable, Part, Position
from foreshore.storage.ingest.difference import difference, in_turn
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.postgres.layout import Misfit, TableLayout
from foreshore.storage.ingest.postgres.slot import LSN, NewSlot
from foreshore.storage.ingest.postgres.snapshot import Snapshot


@dataclass(slots=True)
class SnapshotCounts:
    """How many rows a table has, as its server estimates, and how many were read."""

    known: int | None
    staged: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a snapshot is read: on a thread, until it is to stop, with counts by tables."""

    access: Access
    publication: str
    thread: Executor
    stopping: threading.Event
    counts: dict[str, SnapshotCounts]


async def all_rows(
    new: NewSlot,
    tables: Mapping[str, TableLayout],
    before: Position,
    durable: Durable,
    reading: Reading,
) -> AsyncGenerator[Batch | Part, None]:
    """Yield what leads from the rows that are here at `before` to those of a new slot's snapshot.

    The batch moves the position to there. Tables that do not fit are left as they are. Raises
    DatabaseError or OSError.
    """
    loop, thread = asyncio.get_running_loop(), reading.thread
    stopped: list[Unreadable] = []
    snapshot = await loop.run_in_executor(
        thread, Snapshot, reading.access, reading.publication, new.snapshot, reading.stopping
    )
    try:
        for reference, table in tables.items():
            known = await loop.run_in_executor(thread, snapshot.estimate, table)
            counts = reading.counts[reference] = SnapshotCounts(known)
            rows = _counted(in_turn(thread, snapshot.rows(table)), counts)
            if table.part in before or table.details.number:
                rows = difference(rows, reference, table.desc.stored_schema(), durable, thread)
            try:
                async for each in rows:
                    yield Part({reference: each})
            except Misfit as error:
                stopped.append(Unreadable(table.part, new.lsn, str(error), output=reference))
                yield Part({}, (reference,))
    finally:
        loop.run_in_executor(thread, snapshot.close)
    out = {each.part for each in stopped}
    moved = {LSN: new.lsn, **snapshot.published}
    for table in tables.values():
        moved[table.part] = -new.lsn if table.part in out else new.lsn
    yield Batch({ERRORS: error_rows(stopped)} if stopped else {}, moved)


async def _counted(
    rows: AsyncIterator[pa.Table], counts: SnapshotCounts
) -> AsyncIterator[pa.Table]:
    async for each in rows:
        counts.staged += each.num_rows
        yield each
