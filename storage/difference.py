"""The difference of two snapshots, as updates that lead from the one to the other."""

import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.storage.consolidate import consolidate
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp, update_schema


async def difference(
    before: Snapshot, after: Snapshot, time: Timestamp
) -> AsyncGenerator[pa.Table, None]:
    """Yield the updates at `time` that turn the contents of one collection into those of another.

    They have columns of the same types, and those of `after` by name. Rows that are in both are not
    among the updates; many are sorted on disk.
    """
    schema = update_schema(after.schema)

    def found() -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory() as scratch:
            yield from consolidate(updates(), schema, time, Path(scratch))

    def updates() -> Iterator[pa.RecordBatch]:
        for piece in before.updates():
            *rows, times, diffs = piece.columns
            yield pa.RecordBatch.from_arrays([*rows, times, pc.negate(diffs)], schema=schema)
        yield from after.updates()

    with before.watched(), after.watched():
        async for piece in blocking.each(found()):
            yield pa.Table.from_batches([piece], schema)
