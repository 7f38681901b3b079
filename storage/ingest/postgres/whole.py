"""All rows of tables at the place of a snapshot, where a slot begins: one batch, in parts.

If there are rows here already, as the slot before was lost, the batch has the difference only. What
is compared waits in temporary files.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.sources.outputs import ERRORS
from foreshore.spill import Spill
from foreshore.storage.consolidate import consolidate
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.connector import Batch, Durable, Part, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.postgres.layout import Misfit, TableLayout
from foreshore.storage.ingest.postgres.slot import LSN, NewSlot
from foreshore.storage.ingest.postgres.snapshot import Snapshot
from foreshore.update import DIFF, TIME_FIELD

T = TypeVar("T")


@dataclass(slots=True)
class SnapshotCounts:
    """How many rows a table has, as its server estimates, and how many were read."""

    known: int | None
    staged: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a snapshot is read: on a thread, until it is to stop, with counts by tables."""

    access: Access
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
        thread, Snapshot, reading.access, new.snapshot, reading.stopping
    )
    try:
        for reference, table in tables.items():
            known = await loop.run_in_executor(thread, snapshot.estimate, table)
            counts = reading.counts[reference] = SnapshotCounts(known)
            rows = _counted(in_turn(thread, snapshot.rows(table)), counts)
            if table.part in before:
                rows = _difference(table, rows, durable, thread)
            try:
                async for each in rows:
                    yield Part({reference: each})
            except Misfit as error:
                stopped.append(Unreadable(table.part, new.lsn, str(error), output=reference))
                yield Part({}, (reference,))
    finally:
        loop.run_in_executor(thread, snapshot.close)
    out = {each.part for each in stopped}
    moved = {LSN: new.lsn}
    for table in tables.values():
        moved[table.part] = -new.lsn if table.part in out else new.lsn
    yield Batch({ERRORS: error_rows(stopped)} if stopped else {}, moved)


async def in_turn(thread: Executor, items: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator has, each from the thread."""
    loop = asyncio.get_running_loop()
    while (item := await loop.run_in_executor(thread, next, items, None)) is not None:
        yield item


def negated(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with `__diff` in the columns of `schema`, with the opposite diffs."""
    diffs = pc.negate(rows[DIFF])
    kept = rows.select(schema.names).cast(schema)
    return kept.append_column(pa.field(DIFF, pa.int64(), nullable=False), diffs)


async def _counted(
    rows: AsyncIterator[pa.Table], counts: SnapshotCounts
) -> AsyncIterator[pa.Table]:
    async for each in rows:
        counts.staged += each.num_rows
        yield each


async def _difference(
    table: TableLayout, now: AsyncIterator[pa.Table], durable: Durable, thread: Executor
) -> AsyncIterator[pa.Table]:
    """Yield the updates from the rows that are here to those that are there now."""
    loop, schema = asyncio.get_running_loop(), table.desc.stored_schema()
    with tempfile.TemporaryDirectory() as scratch:
        spill = Spill(Path(scratch))
        async for each in now:
            await loop.run_in_executor(thread, spill.add, each)
        async for each in durable.contents(table.reference):
            await loop.run_in_executor(thread, spill.add, negated(each, schema))
        await loop.run_in_executor(thread, spill.flush)
        timed = pa.schema([*schema, TIME_FIELD, pa.field(DIFF, pa.int64(), nullable=False)])
        updates = (_timed(batch, timed) for rows in spill.tables for batch in rows.to_batches())
        found = consolidate(updates, timed, 0, Path(scratch))
        async for batch in in_turn(thread, found):
            yield pa.Table.from_batches([batch], timed).drop_columns([TIME_FIELD.name])


def _timed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with `__diff` as updates at one time."""
    times = pa.repeat(pa.scalar(0, pa.int64()), len(batch))
    return pa.RecordBatch.from_arrays(
        [*batch.columns[:-1], times, batch.columns[-1]], schema=schema
    )
