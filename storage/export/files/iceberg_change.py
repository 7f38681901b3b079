"""The files that an interval changes of an Iceberg table, in one commit.

The rows of an interval are new files. Of files with old rows of its keys, small ones are rewritten
without them; of large ones the rows are deleted by position, in one file of deletes for each data
file, until a quarter of it is deleted: then it is rewritten, too. Where small files are many, they
are merged. So a commit writes little, and what all commits write is bounded by what has changed.

An interval that is appended only adds files, as programs follow such a table by what its snapshots
add. There small files are merged by a commit of its own, whose snapshot says that no row changes.

The property `write.merge.mode = copy-on-write` of a table has all files rewritten, for readers that
know no deletes.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataError, FeatureNotSupported
from foreshore.storage.export.files.iceberg_rows import (
    Keys,
    added_rows,
    appended_rows,
    changed_keys,
    in_table,
)
from foreshore.storage.export.files.latest import latest_rows
from foreshore.storage.export.messages import Export
from foreshore.storage.external.iceberg import check_properties
from foreshore.storage.lake.iceberg_plan import Planned, only_path, planned_files
from foreshore.storage.lake.iceberg_rows import IcebergRows, positions_in

FILE_BYTES = 64 << 20  # of rows, after which another file begins
SMALL_BYTES = 1 << 20  # of a file that is rewritten rather than having rows deleted
MOST_SMALL = 16  # files of a partition
CROWDED = MOST_SMALL // 2  # small files of a partition that are merged
MOST_PARTITIONS = 64  # whose files are merged by one commit
MOST_DELETED = 0.25  # of the rows of a file, before it is rewritten
MODE, REWRITES = "write.merge.mode", "copy-on-write"
GONE = "__gone"  # the row of a key that is not in the relation at the end of the interval


class IcebergChange:
    """Files that come and go with one commit, which is made on one version of the table."""

    def __init__(self, table: Any, export: Export) -> None:
        self._table = table
        self._export = export
        self._added: list[Any] = []
        self._deletes: list[Any] = []
        self._removed: list[Any] = []

    def prepare_merge(self) -> bool:
        """Write the rows of many small files into few; return whether there is anything to do."""
        with IcebergRows(self._table) as reader:
            found = planned_files(self._table, self._table.current_snapshot())
            small = [each for each in found if each.file.file_size_in_bytes < SMALL_BYTES]
            merged = list(chain.from_iterable(_crowded(small, CROWDED)[:MOST_PARTITIONS]))
            for each in merged:
                self._removed += [each.file, *_own_deletes(each)]
            schema = self._table.schema()
            self._write(chain.from_iterable(reader.rows(each, schema) for each in merged))
        return bool(merged)

    def prepare(self, file: Path | None) -> None:
        """Write the files that the updates of a file need."""
        if file is None:
            return
        if self._export.spec.envelope == "append":
            self._write(appended_rows(file))
            return
        key = self._export.spec.key
        with (
            latest_rows(file, key, GONE) as rows,
            changed_keys(file, key) as keys,
            IcebergRows(self._table) as reader,
        ):
            found = list(planned_files(self._table, self._table.current_snapshot()))
            rewritten = self._rewritten(reader, found, keys)
            for each in rewritten:
                self._removed += [each.file, *_own_deletes(each)]
            kept = (self._kept(reader, each, keys) for each in rewritten)
            self._write(chain(added_rows(rows, GONE), chain.from_iterable(kept)))

    def commit(
        self, said: Mapping[str, str], is_made: Callable[[], bool], *, merges: bool = False
    ) -> None:
        """Commit the files, and properties of the snapshot; raises CommitFailedException.

        Where the package says that it conflicts, `is_made` says whether the commit was made after
        all. The properties become those of the table, too, unless it only `merges` files.
        """
        from pyiceberg.exceptions import CommitFailedException

        from foreshore.storage.lake.iceberg_snapshot import FileChanges, add_snapshot

        ask = self._table._do_commit

        def asked(updates: Any, requirements: Any) -> None:
            try:
                ask(updates=updates, requirements=requirements)
            except CommitFailedException:
                if not is_made():
                    raise

        self._table._do_commit = asked
        transaction = self._table.transaction()
        if not merges:
            transaction.set_properties(dict(said))
        changes = FileChanges(self._added, self._deletes, self._removed, merges)
        add_snapshot(transaction, changes, said)
        transaction.commit_transaction()

    def abandon(self) -> None:
        """Remove the files that were written."""
        for each in (*self._added, *self._deletes):
            with suppress(OSError):  # they take room, and nothing names them
                self._table.io.delete(each.file_path)

    def _rewritten(
        self, reader: IcebergRows, found: Sequence[Planned], keys: Keys
    ) -> list[Planned]:
        """Return the files that are rewritten; delete the rows of these keys in all others."""
        from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator

        may_have = _InclusiveMetricsEvaluator(self._table.schema(), keys.filter()).eval
        rewritten, small = [], []
        for each in found:
            at = self._places(reader, each, keys) if may_have(each.file) else np.empty(0)
            if len(at) and self._is_dear(reader, each, len(at)):
                self._delete(each, at)
            elif len(at):
                rewritten.append(each)
            elif each.file.file_size_in_bytes < SMALL_BYTES:
                small.append(each)
        return [*rewritten, *chain.from_iterable(_crowded(small, MOST_SMALL))]

    def _places(self, reader: IcebergRows, planned: Planned, keys: Keys) -> np.ndarray:
        """Return the numbers of a file's rows that have one of the keys."""
        schema = self._table.schema().select(*self._export.spec.key)
        found = [np.empty(0, np.int64)]
        for batch, live, first in reader.numbered(planned, schema):
            found.append(np.flatnonzero(live & keys.mask(batch)) + first)
        return np.concatenate(found)

    def _is_dear(self, reader: IcebergRows, planned: Planned, changed: int) -> bool:
        """Whether deletes of some rows by position are better than a file's rewrite."""
        if self._table.metadata.properties.get(MODE) == REWRITES:
            return False
        if planned.file.file_size_in_bytes < SMALL_BYTES:
            return False
        deleted = len(reader.positions(planned)) + changed
        return bool(deleted <= MOST_DELETED * planned.file.record_count)

    def _delete(self, planned: Planned, at: np.ndarray) -> None:
        """Delete rows of a file, by a file of deletes that has those of earlier ones of ours."""
        from foreshore.storage.lake.iceberg_snapshot import written_positions

        own = _own_deletes(planned)
        earlier = (positions_in(self._table.io, each, planned.path) for each in own)
        positions = np.unique(np.concatenate([at, *earlier]))
        self._deletes.append(written_positions(self._table, planned.file, positions))
        self._removed += own

    def _kept(self, reader: IcebergRows, planned: Planned, keys: Keys) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that have none of these keys."""
        for batch in reader.rows(planned, self._table.schema()):
            yield batch.filter(pa.array(~keys.mask(batch)))

    def _write(self, rows: Iterator[pa.RecordBatch]) -> None:
        """Write rows to files, each when its rows have come.

        The package would have all rows in memory, also those of a reader.
        """
        schema = self._table.schema().as_arrow()
        gathered: list[pa.RecordBatch] = []
        size = 0
        for each in rows:
            gathered.append(in_table(each, schema))
            size += gathered[-1].nbytes
            if size >= FILE_BYTES:
                self._write_file(pa.Table.from_batches(gathered, schema))
                gathered, size = [], 0
        self._write_file(pa.Table.from_batches(gathered, schema))

    def _write_file(self, rows: pa.Table) -> None:
        """Write rows to a file for each partition."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if not rows.num_rows:
            return
        metadata = self._table.metadata
        for field in metadata.spec().fields:  # the package finds no partition for NaN
            column = rows[self._table.schema().find_column_name(field.source_id)]
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise DataError(
                    f'"{field.name}": NaN has no partition of the Iceberg table',
                    hint="Have the table partitioned by another column.",
                )
        written = _dataframe_to_data_files(metadata, rows, self._table.io, write_uuid=uuid.uuid4())
        for each in written:
            each.spec_id = metadata.default_spec_id
            self._added.append(each)


def check_writable(table: Any) -> None:
    """Raise FeatureNotSupported if a sink cannot write to a table."""
    check_properties(table)
    if table.metadata.format_version != 2:
        raise FeatureNotSupported(
            f"sinks to Iceberg tables of format version {table.metadata.format_version}",
            hint="Make a table of version 2, or upgrade one of version 1 to it.",
        )
    for field in table.spec().fields:
        source = table.schema().find_type(field.source_id)
        try:
            field.transform.pyarrow_transform(source)
        except NotImplementedError:
            raise FeatureNotSupported(
                f"sinks to Iceberg tables with partitions by {field.transform}"
            ) from None


def _crowded(small: Iterable[Planned], least: int) -> list[list[Planned]]:
    """Return the small files of those partitions that have many, the fullest partition first."""
    found = defaultdict(list)
    for each in small:
        found[each.file.spec_id, each.file.partition].append(each)
    return sorted((files for files in found.values() if len(files) >= least), key=len, reverse=True)


def _own_deletes(planned: Planned) -> list[Any]:
    """Return the files that delete rows of this data file alone."""
    return [each for each in planned.positions if only_path(each) == planned.path]
