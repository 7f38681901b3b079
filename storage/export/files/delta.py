"""Writes the changes of an interval to a Delta table, in one commit with the frontier.

The frontier is the version of an application transaction of the Delta protocol (`txn`): the sink is
the application. A commit conflicts with every other one of the same application since the table was
read, so an exporter that was thought dead either commits before the next one has read the table, or
not at all.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore import blocking
from foreshore.errors import DatabaseError, DataError, ObjectInUse
from foreshore.sinks.errors import TargetLost
from foreshore.sinks.places import PartitionField
from foreshore.storage.export.files.delta_upkeep import DeltaUpkeep
from foreshore.storage.export.files.latest import latest_rows
from foreshore.storage.export.files.place import DIFF_COLUMN, TIME_COLUMN
from foreshore.storage.export.files.spool import spooled
from foreshore.storage.export.messages import Export
from foreshore.storage.lake import delta
from foreshore.storage.lake.columns import check_years
from foreshore.storage.lake.partitions import buckets_of, with_buckets
from foreshore.storage.lake.places import Location
from foreshore.storage.store_errors import without_answer
from foreshore.update import Timestamp

ROWS_AT_ONCE = 1 << 16
GONE = "__gone"  # the row of a key that is not in the relation at the end of the interval


class DeltaExporter:
    """Writes to one Delta table."""

    def __init__(self, export: Export, location: Callable[[], Location]) -> None:
        self._export = export
        self._location = location
        self._table: Any = None
        self._reached: Timestamp | None = None  # the frontier that the table must have
        self._local: Path | None = None  # its directory, unless it is in a bucket
        self._upkeep = DeltaUpkeep()
        self._buckets: Sequence[PartitionField] = ()

    async def resume(self) -> Timestamp | None:
        """Read the table, and return the frontier."""
        return await blocking.run(None, self._open)

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval and its end in one commit."""
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            file = Path(scratch, "updates.parquet")
            rows = await spooled(self._export, parts, file)
            await blocking.run(None, lambda: self._commit(file, rows, lower, upper))

    async def close(self) -> None:
        """Let go of the table."""
        self._table = None

    def _open(self) -> Timestamp | None:
        location = self._location()
        self._local = None if location.root is None else location.path
        with errors():
            self._table = delta.opened(location)
            self._buckets = buckets_of(self._table.metadata().configuration)
            self._reached = self._frontier()
            return self._reached

    def _frontier(self) -> Timestamp | None:
        found: int | None = self._table.transaction_version(self._export.name)
        return found

    def _commit(self, file: Path, rows: int, lower: Timestamp, upper: Timestamp) -> None:
        with errors():
            self._table.update_incremental()
            before = self._table.version()
            frontier = self._frontier()
            if frontier is None and self._reached is not None:
                raise TargetLost(
                    "the Delta table has lost how far the sink has come",
                    detail="It was made anew.",
                    hint="Drop the sink and create it anew.",
                )
            if frontier != self._reached or frontier not in (None, lower):
                raise ObjectInUse("another exporter writes for this sink")
            deltalake = delta.package()
            transaction = deltalake.Transaction(self._export.name, upper, None)
            properties = deltalake.CommitProperties(app_transactions=[transaction])
            if not rows:
                self._mark(properties)
            elif self._export.spec.envelope == "append":
                self._append(_appended(file), properties)
            else:
                self._upsert(file, properties)
            self._table.update_incremental()
            if self._frontier() == frontier:  # a MERGE that changes no rows commits nothing
                self._mark(properties)
                self._table.update_incremental()
            if self._frontier() != upper:
                raise ObjectInUse("another exporter writes for this sink")
            self._reached = upper
            self._upkeep.after_commit(self._table)
            if self._local is not None:
                delta.sync_versions(self._local, before + 1, self._table.version())

    def _mark(self, properties: Any) -> None:
        """Commit the frontier alone."""
        self._table.create_write_transaction(
            [], "append", self._table.schema(), commit_properties=properties
        )

    def _append(self, rows: pa.RecordBatchReader, properties: Any) -> None:
        with _checked(_bucketed(rows, self._buckets), self._partitions()) as checked:
            delta.package().write_deltalake(
                self._table,
                checked,
                mode="append",
                schema_mode="merge",
                writer_properties=_compressed(),
                commit_properties=properties,
            )

    def _upsert(self, file: Path, properties: Any) -> None:
        """Merge the last row of each key into the table."""
        export = self._export
        with (
            latest_rows(file, export.spec.key, GONE) as last,
            _checked(
                _bucketed(_replacing(last, export.spec.key), self._buckets), self._partitions()
            ) as rows,
        ):
            names = [*export.desc.names, *(field.name for field in self._buckets)]
            values = {quoted(name): f"s.{quoted(name)}" for name in names}
            merge = self._table.merge(
                rows,
                " AND ".join((self._same_key(), *self._same_buckets(file))),
                source_alias="s",
                target_alias="t",
                writer_properties=_compressed(),
                commit_properties=properties,
            )
            merge = merge.when_matched_delete(f"s.{GONE}").when_matched_update(values)
            merge.when_not_matched_insert(values, predicate=f"NOT s.{GONE}").execute()

    def _partitions(self) -> Sequence[str]:
        """Return the columns by which the table has partitions."""
        found: list[str] = self._table.metadata().partition_columns
        return found

    def _same_key(self) -> str:
        """Return when rows of the table, `t`, and of the interval, `s`, have the same key."""
        desc = self._export.desc
        columns = dict(zip(desc.names, desc.columns, strict=True))
        compared = []
        for name in self._export.spec.key:
            equals = "IS NOT DISTINCT FROM" if columns[name].nullable else "="
            compared.append(f"(t.{quoted(name)} {equals} s.{quoted(name)})")
        return " AND ".join(compared)

    def _same_buckets(self, file: Path) -> Iterator[str]:
        """Yield in which buckets the keys of an interval are, so that other files are not read."""
        for field in self._buckets:
            found: set[int | None] = set()
            for batch in pq.ParquetFile(file).iter_batches(ROWS_AT_ONCE, columns=[field.column]):
                found.update(with_buckets(batch, [field]).column(field.name).unique().to_pylist())
            name, numbers = quoted(field.name), sorted(each for each in found if each is not None)
            yield f"(t.{name} IS NOT DISTINCT FROM s.{name})"
            if len(numbers) < field.number:
                known = f"t.{name} IN ({', '.join(map(str, numbers or [-1]))})"
                yield f"({known} OR t.{name} IS NULL)" if None in found else known


def _compressed() -> Any:
    """Return how files are written."""
    return delta.package().WriterProperties(compression="ZSTD")


def _bucketed(
    rows: pa.RecordBatchReader, buckets: Sequence[PartitionField]
) -> pa.RecordBatchReader:
    """Return rows with the columns of their buckets."""
    added = [pa.field(field.name, pa.int32()) for field in buckets]
    schema = pa.schema([*rows.schema, *added])
    return pa.RecordBatchReader.from_batches(schema, (with_buckets(b, buckets) for b in rows))


def _replacing(rows: pa.RecordBatchReader, key: Sequence[str]) -> pa.RecordBatchReader:
    """Return the last rows of keys; those that are gone have NULL in all columns but their key."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            gone = batch.column(GONE)
            arrays = [
                column if name in key or name == GONE else pc.if_else(gone, None, column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def _appended(file: Path) -> pa.RecordBatchReader:
    """Return updates as rows with `mz_timestamp` and `mz_diff`."""
    source = pq.ParquetFile(file)
    names = [*source.schema_arrow.names[:-2], TIME_COLUMN, DIFF_COLUMN]
    types = source.schema_arrow.types
    schema = pa.schema(list(zip(names, types, strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in source.iter_batches(ROWS_AT_ONCE):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@contextmanager
def _checked(
    rows: pa.RecordBatchReader, partitions: Sequence[str]
) -> Iterator[pa.RecordBatchReader]:
    """Yield rows to be written; raises DatetimeFieldOverflow, where the package would panic.

    Raises DataError for an empty value of a partition, which would become NULL.

    What the package makes of an error of its input does not say which one it was.
    """
    wrong: list[DatabaseError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            try:
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    check_years(name, column)
                    if name in partitions:
                        _check_partition(name, column)
            except DatabaseError as error:
                wrong.append(error)
                raise
            yield batch

    try:
        yield pa.RecordBatchReader.from_batches(rows.schema, batches())
    except delta.package().exceptions.DeltaError:
        if wrong:
            raise wrong[0] from None
        raise


def _check_partition(name: str, column: pa.Array) -> None:
    """Raise DataError if a value is empty: logs of Delta tables write NULL so."""
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if is_text and pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
        raise DataError(
            f'column "{name}": an empty value has no partition of the Delta table',
            hint="Write NULL or another value in its place, or partition by another column.",
        )


def quoted(name: str) -> str:
    """Return a name as an identifier of DataFusion."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def errors() -> Iterator[None]:
    """Raise errors of the package as DatabaseError."""
    try:
        yield
    except delta.package().exceptions.DeltaError as error:
        lines = map(without_answer, str(error).splitlines())
        said = ": ".join(filter(None, lines))
        raise DatabaseError(f"the Delta table: {said}", sqlstate="58030") from error
