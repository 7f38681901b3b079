"""Snapshots: a shard's contents as of a time, as batch files and in-memory tables.

A snapshot names batches, which engines read themselves, and tables of updates that are not in a
batch yet. Every update before `upper` is in exactly one of them, at its exact time if that is at or
beyond `since`. The contents as of a time `t` with `since <= t < upper` are the sum of the updates
with `__time <= t`.

The files are kept until the snapshot is released.
"""

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore import blocking
from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.storage.consolidate import consolidate
from foreshore.storage.local_files import LocalFiles
from foreshore.update import DIFF_FIELD, Timestamp, update_schema


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A batch as engines read it: a Parquet file of updates, with columns by position."""

    key: str  # in the blob store
    bytes: int
    checksum: int  # CRC-32 of the file
    lower: Timestamp
    upper: Timestamp
    since: Timestamp
    rows: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything up to `upper`. Holds a lease on the files until `release`."""

    id: GlobalId
    schema: pa.Schema  # of the rows
    as_of: Timestamp
    upper: Timestamp
    since: Timestamp
    files: tuple[BatchFile, ...]
    tail: tuple[pa.Table, ...]
    _local: LocalFiles = field(compare=False, repr=False)
    _read: Callable[[], Iterator[pa.RecordBatch]] = field(compare=False, repr=False)
    _noticing: Callable[[], AbstractContextManager[None]] = field(compare=False, repr=False)
    _release: Callable[[], None] = field(compare=False, repr=False)

    def release(self) -> None:
        """Allow the files to be collected. Repeated calls have no effect."""
        self._release()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextmanager
    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the paths of the files, fetched and checked; for use on a thread.

        Raises CollectionCorrupted if a file is missing or corrupt, as every read does.
        """
        with self._noticing(), self._local.of(self.files) as paths:
            yield tuple(map(str, paths))

    async def rows(self) -> pa.Table:
        """Return the contents as of the snapshot's time: distinct rows, sorted, with `__diff`.

        This is for callers that want rows in memory; engines read the files themselves. Raises
        InternalError if a row has a negative multiplicity.
        """
        with self._noticing():
            return await blocking.run(None, self._rows)

    async def contents(self) -> pa.Table:
        """Return the same contents as `rows`, unordered and with possibly repeated rows.

        This is cheaper in bulk: rows are consolidated only where some were retracted.
        """
        with self._noticing():
            return await blocking.run(None, self._contents)

    async def parts(self) -> AsyncGenerator[pa.Table, None]:
        """Yield the same contents as `contents`, in parts of a few megabytes."""
        with self._noticing():
            if await blocking.run(None, self._may_have_retractions):
                pieces = self._consolidated_pieces(self.updates())
            else:
                pieces = self.updates()
            async for piece in blocking.each(pieces):
                columns = [*piece.columns[: len(self.schema)], piece.columns[-1]]
                yield pa.Table.from_arrays(columns, schema=pa.schema([*self.schema, DIFF_FIELD]))

    async def column_parts(self, column: int) -> AsyncGenerator[pa.Table, None]:
        """Yield one column of all updates up to the snapshot's time, in parts.

        Of a collection that never loses rows these are the values of its rows. Nothing else is read
        of the files.
        """
        with self._noticing():
            async for piece in blocking.each(self._of_column(column)):
                yield pa.Table.from_batches([piece])

    def _of_column(self, column: int) -> Iterator[pa.RecordBatch]:
        width = len(self.schema)
        with self.paths() as paths:
            for path in paths:
                file = pq.ParquetFile(path)
                names = [file.schema_arrow.names[place] for place in (column, width)]
                for batch in file.iter_batches(columns=names):
                    yield batch.filter(pc.less_equal(batch.column(1), self.as_of)).select([0])
        for batch in (batch for table in self.tail for batch in table.to_batches()):
            visible = pc.less_equal(batch.column(width), self.as_of)
            yield batch.select([column]).filter(visible)

    def _may_have_retractions(self) -> bool:
        """Return False if no update of the snapshot removes a row, by statistics of its files."""
        for table in self.tail:
            if table.num_rows and pc.min(table.column(len(self.schema) + 1)).as_py() < 0:
                return True
        with self.paths() as paths:
            for path in paths:
                file = pq.ParquetFile(path).metadata
                for group in range(file.num_row_groups):
                    found = file.row_group(group).column(file.num_columns - 1).statistics
                    if found is None or not found.has_min_max or found.min < 0:
                        return True
        return False

    def _consolidated_pieces(self, updates: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory() as scratch:
            schema = update_schema(self.schema)
            yield from consolidate(updates, schema, self.as_of, Path(scratch))

    def _contents(self) -> pa.Table:
        schema = update_schema(self.schema)
        table = pa.Table.from_batches(self.updates(), schema)
        if table.num_rows and pc.min(table.column(len(schema) - 1)).as_py() < 0:
            return self._consolidated(table.to_batches())
        return table.drop_columns([schema.names[len(schema) - 2]])

    def _rows(self) -> pa.Table:
        return self._consolidated(self.updates())

    def _consolidated(self, updates: Iterable[pa.RecordBatch]) -> pa.Table:
        schema = update_schema(self.schema)
        table = pa.Table.from_batches(self._consolidated_pieces(updates), schema)
        diffs = table.column(len(schema) - 1)
        if table.num_rows and pc.min(diffs).as_py() < 0:
            raise InternalError(
                f"{self.id} as of {self.as_of} has a row a negative number of times"
            )
        rows = pa.schema([*self.schema, DIFF_FIELD])
        return pa.Table.from_arrays([*table.columns[: len(self.schema)], diffs], schema=rows)

    def watched(self) -> AbstractContextManager[None]:
        """Return what records damage that is found while it is read by `updates`."""
        return self._noticing()

    def updates(self) -> Iterator[pa.RecordBatch]:
        """Yield all updates whose sum is the contents, in any order; for use on a thread."""
        for piece in self._read():
            visible = piece.filter(pc.less_equal(piece.column(len(self.schema)), self.as_of))
            if visible.num_rows:
                yield visible
        for batch in (batch for table in self.tail for batch in table.to_batches()):
            visible = batch.filter(pc.less_equal(batch.column(len(self.schema)), self.as_of))
            if visible.num_rows:
                yield visible
