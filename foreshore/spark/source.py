"""The data source itself: batch reads as of a time or of changes; `stream.py` has streams.

What `load()` opens is part of the DataFrame: all its actions read the same files as of the same
time, for as long as the lease on them lives. Tasks renew it; without any it ends after an hour. A
file that is gone nevertheless makes the task fail, never leaves rows out. A reader takes no filters
of a plan, because plans share it (`where.py`).
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.spark.columns import for_spark, spark_schema
from foreshore.spark.opened import Collection, open_collection
from foreshore.spark.options import Options, parse
from foreshore.spark.parts import Changes, Contents, Part, Wanted, parts, read
from foreshore.spark.where import parse_where


class PartPartition(InputPartition):  # type: ignore[misc]
    """A part as Spark passes it on to a task."""

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part


@dataclass(frozen=True, slots=True)
class Opened:
    """What a DataFrame reads."""

    collection: Collection
    wanted: Wanted


class ForeshoreDataSource(DataSource):  # type: ignore[misc]
    """`format("foreshore")`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        with told():
            self.parsed = parse(dict(options))
        self.opened: Opened | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "foreshore"

    def schema(self) -> Any:
        """Return the columns, and open what they are of."""
        with told():
            self.opened = opened(self.parsed)
            places = columns_of(self.opened.collection, self.parsed)
            parse_where(
                self.parsed.where, self.opened.collection.schema
            )  # raises before a plan does
            return spark_schema(schema_of(self.opened.collection, places, self.parsed))

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of the rows or changes."""
        with told():
            found = self.opened or opened(self.parsed)
            places = columns_of(found.collection, self.parsed)
            expected = spark_schema(schema_of(found.collection, places, self.parsed))
            if [field.name for field in expected] != [field.name for field in schema]:
                raise InvalidParameterValue(
                    "a schema of one's own is not supported", hint='Use option("columns", "a, b").'
                )
        return Reader(found, self.parsed, places)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader of a stream of changes."""
        from foreshore.spark.stream import StreamReader

        with told():
            if not self.parsed.changes:
                raise InvalidParameterValue(
                    "a stream has changes, not rows", hint='Add option("changes", "true").'
                )
        return StreamReader(self.parsed)


class Reader(DataSourceReader):  # type: ignore[misc]
    """Reads what was opened, in parts."""

    def __init__(self, opened: Opened, options: Options, columns: tuple[int, ...]) -> None:
        self.opened = opened
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts."""
        return planned(self.opened, self.options, self.columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        yield from batches(partition)


def opened(options: Options) -> Opened:
    """Return the collection with what of it is wanted, which is readable."""
    collection, _ = open_collection(options.place, options.collection, options.lease_ms)
    if not options.changes:
        as_of = collection.latest if options.as_of is None else options.as_of
        collection.check(as_of, as_of)
        return Opened(collection, Contents(as_of))
    start = collection.since if options.start is None else options.start
    end = collection.latest if options.end is None else options.end
    if end < start:
        raise InvalidParameterValue(f"there are no times later than {start} and up to {end}")
    collection.check(start, end)
    return Opened(collection, Changes(start + 1, end + 1))


def columns_of(collection: Collection, options: Options) -> tuple[int, ...]:
    """Return the places of the wanted columns."""
    names = collection.schema.names[:-2]
    if options.columns is None:
        return tuple(range(len(names)))
    for name in options.columns:
        if name not in names:
            raise InvalidParameterValue(f'{collection.name} has no column "{name}"')
    return tuple(names.index(name) for name in options.columns)


def schema_of(collection: Collection, places: tuple[int, ...], options: Options) -> pa.Schema:
    """Return the fields of what is read: of changes also time and diff.

    All may be NULL, as Spark compares this with the batches' schemas.
    """
    schema = collection.schema
    ends = list(schema)[-2:] if options.changes else []
    fields = [*(schema.field(i) for i in places), *ends]
    return pa.schema([field.with_nullable(True) for field in fields])


def planned(opened: Opened, options: Options, columns: tuple[int, ...]) -> list[InputPartition]:
    """Return the partitions of what was opened."""
    with told(), cache_of(options) as cache:
        conditions = parse_where(options.where, opened.collection.schema)
        found = parts(
            opened.collection, opened.wanted, columns, conditions, options.partitions, cache
        )
    return [PartPartition(part) for part in found]


def batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as Spark takes them."""
    assert isinstance(partition, PartPartition), partition
    with told():
        for batch in read(partition.part):
            if batch.num_rows:
                names = batch.schema.names
                arrays = list(map(for_spark, names, batch.columns))
                yield pa.RecordBatch.from_arrays(arrays, names)


@contextmanager
def cache_of(options: Options) -> Iterator[Path]:
    """Yield the directory for files of a remote store, by default one that is then removed."""
    if options.cache:
        yield Path(options.cache)
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


@contextmanager
def told() -> Iterator[None]:
    """Show the hint of an error, too: Spark shows the text of an exception only."""
    try:
        yield
    except DatabaseError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise RuntimeError(f"{error.message}{hint}") from error
