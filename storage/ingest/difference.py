"""The difference between the rows that a source has here, and those of its external system.

What is compared waits in temporary files, so neither has to fit into memory.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.spill import Spill
from foreshore.storage.consolidate import consolidate
from foreshore.storage.ingest.connector import Durable
from foreshore.update import DIFF, TIME_FIELD

T = TypeVar("T")


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


async def difference(
    now: AsyncIterator[pa.Table],
    reference: str,
    schema: pa.Schema,
    durable: Durable,
    thread: Executor,
) -> AsyncIterator[pa.Table]:
    """Yield the updates from the rows of an output that are here to those that are there now."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as scratch:
        spill = Spill(Path(scratch))
        async for each in now:
            await loop.run_in_executor(thread, spill.add, each)
        async for each in durable.contents(reference):
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
