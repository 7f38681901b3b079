"""The contents of a trace on Spark: Parquet files, some in buckets, and a tail on the driver."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.checkpoint.kept_file import KeptFile
from foreshore.compute.delta.tables import Layout
from foreshore.compute.spark.buckets import bucket_select, is_hashable
from foreshore.types import ColumnType

BUCKET = "b"  # the column by which files are written apart
LEAST_BYTES = 64 << 20  # of the inputs, below which reading all is quicker than a shuffle
BUCKET_BYTES = 4 << 20  # of the inputs, for each bucket
MOST_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Clustering:
    """The key by which contents are in `count` buckets: columns by their positions and types."""

    key: tuple[int, ...]
    types: tuple[ColumnType, ...]
    count: int

    @property
    def select(self) -> str:
        """Return the expression of a row's bucket."""
        names = [f"c{i}" for i in self.key]
        return bucket_select(list(zip(names, self.types, strict=True)), self.count)


def clustering_of(
    key: tuple[int, ...], columns: tuple[ColumnType, ...], input_bytes: int
) -> Clustering | None:
    """Return how to keep contents that come from inputs of a size, None for without buckets."""
    if input_bytes < LEAST_BYTES:
        return None
    count = 1
    while count < MOST_BUCKETS and count * BUCKET_BYTES < input_bytes:
        count *= 2
    if count == 1 or not key:
        return None
    types = tuple(columns[i] for i in key)
    assert all(map(is_hashable, types)), types
    return Clustering(key, types, count)


@dataclass(frozen=True, slots=True)
class StateFile:
    """A Parquet file of entries; `bucket` is None if it has those of all buckets."""

    kept: KeptFile
    bucket: int | None
    rows: int

    @property
    def path(self) -> str:
        """Return where it is."""
        return str(self.kept.path)


def written_files(directory: Path) -> list[StateFile]:
    """Return the files that a job has written below a directory, each with its bucket."""
    found = []
    for path in sorted(directory.rglob("part-*.parquet")):
        name, _, value = path.parent.name.partition("=")
        bucket = int(value) if name == BUCKET and value.isdigit() else None
        found.append(StateFile(KeptFile(path), bucket, pq.read_metadata(path).num_rows))
    return found


@dataclass(slots=True)
class Contents:
    """The contents of a trace.

    `files` were written by a job, `added` by ticks. `shown` is what the view of this name shows:
    the paths and the number of tables in the tail.
    """

    layout: Layout
    clustering: Clustering | None = None
    files: list[StateFile] = field(default_factory=list)
    added: list[StateFile] = field(default_factory=list)
    tail: list[pa.Table] = field(default_factory=list)
    shown: object = None

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return all columns with their types."""
        return [*self.layout.rows, *self.layout.sums]

    @property
    def tail_rows(self) -> int:
        """Return the number of entries in the tail."""
        return sum(table.num_rows for table in self.tail)

    @property
    def rows(self) -> int:
        """Return the number of entries."""
        return sum(file.rows for file in (*self.files, *self.added)) + self.tail_rows

    def bytes(self, buckets: frozenset[int] | None) -> int:
        """Return the size of the files that have entries of some buckets, or of all."""
        return sum(os.path.getsize(path) for path in self.paths(buckets))

    def paths(self, buckets: frozenset[int] | None) -> tuple[str, ...]:
        """Return the files that have entries of some buckets, or of all."""
        every: Iterable[StateFile] = (*self.files, *self.added)
        if buckets is None:
            return tuple(file.path for file in every)
        return tuple(file.path for file in every if file.bucket is None or file.bucket in buckets)

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of entries, files and bytes."""
        every = (*self.files, *self.added)
        size = sum(file.kept.path.stat().st_size for file in every)
        size += sum(table.nbytes for table in self.tail)
        return self.rows, len(every), size
