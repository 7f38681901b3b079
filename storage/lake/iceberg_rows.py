"""The rows of data files of Iceberg tables, without those that are deleted.

pyiceberg reads a file, and deletes by position; deletes by value are joined here.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, count
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from foreshore.errors import BadCopyFileFormat
from foreshore.storage.lake.iceberg_filter import RowFilter
from foreshore.storage.lake.iceberg_plan import Planned
from foreshore.storage.lake.keys import KeySet, insert_keys, key_database

_KeySets: TypeAlias = Sequence[tuple[tuple[int, ...], KeySet]]  # by the ids of their columns
_MOST_LOADED = 2  # combinations of files, as a file is read with the deletes before and after


class IcebergRows:
    """Reads the rows of a table's files. To be closed; keeps the deletes by value that it read."""

    def __init__(self, table: Any, row_filter: RowFilter | None = None) -> None:
        self._table = table
        self._filter = row_filter  # other rows are taken for deleted
        self._stack = ExitStack()
        self._numbers = count()
        self._keys: Any = None  # a DuckDB, from the first delete by value on
        self._loaded: dict[tuple[Any, ...], _KeySets] = {}  # by the files that the keys are from

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the keys."""
        self._stack.close()

    def rows(self, planned: Planned, schema: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in the columns of a schema."""
        for batch, live, _ in self.numbered(planned, schema):
            yield batch if live.all() else batch.filter(pa.array(live))

    def fewer(self, before: Planned, now: Planned, schema: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are there before, and not with the deletes of now."""
        if now.deletes == before.deletes:
            return
        columns = self._with_keys(schema, (before, now))
        positions = self.positions(before), self.positions(now)
        if not before.values and not now.values and _has_all(*positions):
            return
        first = 0
        for batch in self._all(planned=before, schema=columns):
            was, is_there = (
                self._live(batch, columns, first, each, at)
                for each, at in zip((before, now), positions, strict=True)
            )
            first += batch.num_rows
            gone = was & ~is_there
            if gone.any():
                yield _only(batch.filter(pa.array(gone)), schema)

    def numbered(
        self, planned: Planned, schema: Any
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray, int]]:
        """Yield all rows of a file, which of them are not deleted, and the first one's number."""
        columns, at = self._with_keys(schema, (planned,)), self.positions(planned)
        first = 0
        for batch in self._all(planned, columns):
            yield _only(batch, schema), self._live(batch, columns, first, planned, at), first
            first += batch.num_rows

    def _live(
        self, batch: pa.RecordBatch, columns: Any, first: int, planned: Planned, at: np.ndarray
    ) -> np.ndarray:
        """Return which rows of a batch are not deleted."""
        live = np.ones(batch.num_rows, bool)
        low, high = np.searchsorted(at, (first, first + batch.num_rows))
        live[at[low:high] - first] = False
        for ids, keys in self._key_sets(planned.values):
            live &= ~keys.mask([batch.column(columns.find_column_name(id)) for id in ids])
        if self._filter is not None and live.any():
            live &= self._filter.mask(batch, columns)
        return live

    def _all(self, planned: Planned, schema: Any) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file, as they are read, in order."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
        task = FileScanTask(planned.file)
        yield from scan._record_batches_from_scan_tasks_and_deletes([task], {})

    def positions(self, planned: Planned) -> np.ndarray:
        """Return the numbers of the rows that are deleted by position, in order."""
        io = self._table.io
        found = [positions_in(io, each, planned.path) for each in planned.positions]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _with_keys(self, schema: Any, all: Sequence[Planned]) -> Any:
        """Return a schema with the columns of the filter and of deletes by value, after its own."""
        own = {field.field_id for field in schema.fields}
        filtered = () if self._filter is None else self._filter.fields
        first = (*schema.fields, *(each for each in filtered if each.field_id not in own))
        ids = {id for planned in all for each in planned.values for id in each.equality_ids or ()}
        missing = sorted(ids - {field.field_id for field in first})
        return _schema((*first, *map(self._field, missing)))

    def _field(self, id: int) -> Any:
        """Return a column by its id, also one that was dropped."""
        schemas = (self._table.schema(), *reversed(self._table.metadata.schemas))
        for schema in schemas:
            for field in schema.fields:
                if field.field_id == id:
                    return field.model_copy(update={"name": f"__key_{id}", "required": False})
        raise BadCopyFileFormat(f"the Iceberg table deletes by a column with the unknown id {id}")

    def _key_sets(self, files: tuple[Any, ...]) -> _KeySets:
        """Return the keys of deletes by value, for each combination of columns."""
        if not files:
            return ()
        if (known := self._loaded.get(files)) is not None:
            return known
        if self._keys is None:
            scratch = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._keys = self._stack.enter_context(key_database(scratch))
        while len(self._loaded) >= _MOST_LOADED:
            for _, old in self._loaded.pop(next(iter(self._loaded))):
                old.drop()
        by_ids: dict[tuple[int, ...], list[Any]] = {}
        for file in files:
            by_ids.setdefault(tuple(file.equality_ids), []).append(file)
        found = [(ids, self._key_set(ids, of)) for ids, of in by_ids.items()]
        self._loaded[files] = found
        return found

    def _key_set(self, ids: tuple[int, ...], files: Sequence[Any]) -> KeySet:
        """Return the keys in files of deletes with the same columns."""
        schema = _schema(tuple(map(self._field, ids)))
        none = pa.RecordBatch.from_pylist([], schema.as_arrow())
        read = (self._all(Planned(file, (), ()), schema) for file in files)
        name = f"keys{next(self._numbers)}"
        return insert_keys(self._keys, name, chain([none], chain.from_iterable(read)))


def positions_in(io: Any, file: Any, path: str) -> np.ndarray:
    """Return the rows of a data file that a file of deletes names, in any order."""
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.manifest import FileFormat

    if file.file_format == FileFormat.PARQUET:
        with io.new_input(file.file_path).open() as stream:
            fragment = ds.ParquetFileFormat().make_fragment(stream)
            wanted = ds.field("file_path") == path
            column = fragment.to_table(columns=["pos"], filter=wanted).column("pos")
    else:
        column = _read_deletes(io, file).get(path, pa.chunked_array([], pa.int64()))
    rows: np.ndarray = column.cast(pa.int64()).to_numpy()
    return rows


def _has_all(before: np.ndarray, now: np.ndarray) -> bool:
    """Whether all rows that are deleted now were deleted before."""
    return bool(np.isin(now, before, assume_unique=True).all())


def _schema(fields: tuple[Any, ...]) -> Any:
    from pyiceberg.schema import Schema

    return Schema(*fields)


def _only(batch: pa.RecordBatch, schema: Any) -> pa.RecordBatch:
    """Return the columns of a schema, which are the first ones."""
    return batch.select(range(len(schema.fields)))
