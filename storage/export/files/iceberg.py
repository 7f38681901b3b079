"""Writes the changes of an interval to an Iceberg table, in one commit with the frontier.

The frontier is a property of the commit's snapshot, `foreshore.frontier.<sink>`, and of the table,
where it outlives snapshots that expire. A table that was replaced or rolled back keeps the property
without the rows: so it does not count while its snapshot is there, and the newest does not follow.

A commit needs the snapshot that it was made on to be the newest one still. So of two exporters that
write from one frontier one fails; and so does a commit that was thought lost, and arrives after the
next one.

    conflict        nothing was committed, unless a client has repeated a commit whose answer got
                    lost: look for the frontier, before the package removes the commit's files
    no answer       it may have been committed, or may be yet: look for the frontier
"""

import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
)
from foreshore.sinks.places import IcebergTarget
from foreshore.storage.export.files.iceberg_rows import (
    Keys,
    added_rows,
    appended_rows,
    changed_keys,
    in_table,
)
from foreshore.storage.export.files.latest import latest_rows
from foreshore.storage.export.files.spool import spooled
from foreshore.storage.export.messages import Export
from foreshore.storage.external.iceberg import catalog_of, check_properties, errors
from foreshore.storage.lake.iceberg_plan import Planned, planned_files
from foreshore.storage.lake.iceberg_rows import IcebergRows
from foreshore.update import Timestamp

ATTEMPTS = 5  # of a commit that conflicts with those of other writers
FILE_BYTES = 64 << 20  # of rows, after which another file begins
GONE = "__gone"  # the row of a key that is not in the relation at the end of the interval


class IcebergExporter:
    """Writes to one table of a catalog."""

    def __init__(self, export: Export) -> None:
        assert isinstance(export.spec.target, IcebergTarget), export
        self._export = export
        self._of = export.spec.target.of
        self._catalog: Any = None
        self._property = f"foreshore.frontier.{export.name}"
        self._reached: Timestamp | None = None  # the frontier that the table must have

    async def resume(self) -> Timestamp | None:
        """Reach the catalog, and return the frontier."""
        return await blocking.run(None, self._resume)

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval and its end in one commit."""
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            file = Path(scratch, "updates.parquet")
            rows = await spooled(self._export, parts, file)
            await blocking.run(None, lambda: self._commit(file if rows else None, lower, upper))

    async def close(self) -> None:
        """Let go of the catalog."""
        self._catalog = None

    # --- on threads ----------------------------------------------------------------------------

    def _resume(self) -> Timestamp | None:
        self._catalog = catalog_of(self._of, self._export.accesses)
        self._reached = self._frontier(self._table())
        return self._reached

    def _table(self) -> Any:
        """Return the newest version of the table."""
        with errors():
            table = self._catalog.load_table(self._of.identifier)
        check_writable(table)
        # Ours only: each attempt has to look at the frontier, so the package must not repeat any.
        ours = {"commit.retry.num-retries": "0", "write.target-file-size-bytes": str(FILE_BYTES)}
        properties = {**table.metadata.properties, **ours}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

    def _frontier(self, table: Any) -> Timestamp | None:
        """Return the frontier of the newest snapshot, or of the one before it that has one.

        If that has expired, it is the one of the table.
        """
        snapshot = table.current_snapshot()
        if snapshot is None:
            return None
        while snapshot is not None:
            if (said := self._said(snapshot)) is not None:
                return said
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        last = table.metadata.properties.get(self._property)
        if last is None or int(last) in map(self._said, table.snapshots()):
            return None
        return int(last)

    def _said(self, snapshot: Any) -> Timestamp | None:
        """Return the frontier that a snapshot has."""
        if snapshot.summary is None:
            return None
        said = snapshot.summary.additional_properties.get(self._property)
        return None if said is None else int(said)

    def _commit(self, file: Path | None, lower: Timestamp, upper: Timestamp) -> None:
        """Commit an interval, whose updates are in a file; raises if it is not certain."""
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(ATTEMPTS):
            table = self._table()
            self._check_frontier(table, lower)
            with errors():
                change = _Change(table, self._export)
                try:
                    change.prepare(file)
                except BaseException:
                    change.abandon()
                    raise
                try:
                    change.commit(self._property, upper, lambda: self._has_come_to(upper))
                except CommitFailedException:
                    change.abandon()  # a conflict: nothing was committed
                    continue
                except Exception:
                    if not self._has_come_to(upper):
                        raise
                self._reached = upper
                return
        raise DatabaseError(
            f"other writers changed the Iceberg table during {ATTEMPTS} attempts to commit",
            sqlstate="40001",
        )

    def _has_come_to(self, upper: Timestamp) -> bool:
        return self._frontier(self._table()) == upper

    def _check_frontier(self, table: Any, lower: Timestamp) -> None:
        """Raise unless a table is as it was left here, but for the rows of other programs."""
        frontier = self._frontier(table)
        if frontier is None and self._reached is not None:
            raise ObjectNotInPrerequisiteState(
                "the Iceberg table has lost how far the sink has come",
                detail="It was made anew, or rolled back to before the sink began.",
            )
        if frontier != self._reached or frontier not in (None, lower):
            raise ObjectNotInPrerequisiteState("another exporter writes for this sink")


class _Change:
    """Files that come and go with one commit, which is made on one version of the table."""

    def __init__(self, table: Any, export: Export) -> None:
        self._table = table
        self._export = export
        self._added: list[Any] = []
        self._removed: list[Any] = []

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
            found = planned_files(self._table, self._table.current_snapshot(), keys.filter())
            touched = [each for each in found if self._has(reader, each, keys)]
            self._removed += [each.file for each in touched]
            kept = (self._kept(reader, each, keys) for each in touched)
            self._write(chain(added_rows(rows, GONE), chain.from_iterable(kept)))

    def commit(self, property: str, upper: Timestamp, is_made: Callable[[], bool]) -> None:
        """Commit the files with the frontier; raises CommitFailedException if it conflicts.

        Where the package says so, `is_made` says whether the commit was made after all.
        """
        from pyiceberg.exceptions import CommitFailedException

        ask = self._table._do_commit

        def asked(updates: Any, requirements: Any) -> None:
            try:
                ask(updates=updates, requirements=requirements)
            except CommitFailedException:
                if not is_made():
                    raise

        self._table._do_commit = asked
        transaction = self._table.transaction()
        said = {property: str(upper)}
        transaction.set_properties(said)
        update = transaction.update_snapshot(snapshot_properties=said)
        with update.overwrite() if self._removed else update.fast_append() as snapshot:
            for each in self._added:
                snapshot.append_data_file(each)
            for each in self._removed:
                snapshot.delete_data_file(each)
        transaction.commit_transaction()

    def abandon(self) -> None:
        """Remove the files that were written."""
        for each in self._added:
            with suppress(OSError):  # they take room, and nothing names them
                self._table.io.delete(each.file_path)

    def _has(self, reader: IcebergRows, planned: Planned, keys: Keys) -> bool:
        """Whether a file has rows of these keys."""
        schema = self._table.schema().select(*self._export.spec.key)
        return any(keys.mask(each).any() for each in reader.rows(planned, schema))

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
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if rows.num_rows:
            self._added += _dataframe_to_data_files(
                self._table.metadata, rows, self._table.io, write_uuid=uuid.uuid4()
            )


def check_writable(table: Any) -> None:
    """Raise FeatureNotSupported if a sink cannot write to a table."""
    check_properties(table)
    if not table.spec().is_unpartitioned():
        raise FeatureNotSupported("sinks to partitioned Iceberg tables")
    if table.metadata.format_version < 2:
        raise FeatureNotSupported(
            "sinks to Iceberg tables of format version 1", hint="Upgrade the table to version 2."
        )
