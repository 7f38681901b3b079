"""Streams: the changes of a collection in micro-batches, whose offsets are frontiers.

    {"frontier": 0}    nothing has been read
    {"frontier": t}    all changes before t have been

The first batch holds the rows as of its end, as insertions at that time, unless option `snapshot`
is false. Each later one holds the updates from its start on and before its end. A batch that is
repeated after a failure is the same, or fails: history that is gone cannot be read. The end of a
batch is that of an opened collection, which the batch reads: however long Spark takes between the
two, the times of the batch can be read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from foreshore.spark.lease import Lease
from foreshore.spark.opened import Collection, open_collection
from foreshore.spark.options import Options
from foreshore.spark.parts import Changes
from foreshore.spark.source import Opened, batches, columns_of, planned, told

FRONTIER = "frontier"


class StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reads the changes between two frontiers."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.leases: list[tuple[int, Lease]] = []  # with the ends of the batches that they are for
        self._latest: tuple[Collection, Lease | None] | None = None  # not read yet

    def initialOffset(self) -> dict[str, int]:
        """Return where a new query begins."""
        if self.options.snapshot and self.options.start is None:
            return {FRONTIER: 0}
        if self.options.start is not None:
            return {FRONTIER: self.options.start + 1}
        return {FRONTIER: self._upper()}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return how far the collection is known."""
        self._forget()
        collection, lease = self._open()
        if collection.upper <= start[FRONTIER]:
            if lease is not None:
                lease.end()
            return start
        self._latest = collection, lease
        return {FRONTIER: collection.upper}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the parts of a batch."""
        lower, upper = start[FRONTIER], end[FRONTIER]
        if lower >= upper:
            return []
        collection, lease = self._opened(upper)
        if lease is not None:
            self.leases.append((upper, lease))
        with told():
            collection.check(max(lower - 1, 0) if lower else upper - 1, upper - 1)
        columns = columns_of(collection, self.options)
        # From 0 on, all that is known adds up to the rows as of the last time of the batch.
        return planned(Opened(collection, Changes(lower, upper)), self.options, columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a part."""
        yield from batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Let go of the files of what has been processed."""
        for upper, lease in self.leases:
            if upper <= end[FRONTIER]:
                lease.end()
        self.leases = [each for each in self.leases if each[0] > end[FRONTIER]]

    def stop(self) -> None:
        """Let go of all files."""
        self._forget()
        for _, lease in self.leases:
            lease.end()

    def _upper(self) -> int:
        found, lease = self._open()
        if lease is not None:
            lease.end()
        return found.upper

    def _opened(self, upper: int) -> tuple[Collection, Lease | None]:
        """Return the collection as it was opened for a batch's end, else as it is."""
        latest, self._latest = self._latest, None
        if latest is not None:
            if latest[0].upper == upper:
                return latest
            if latest[1] is not None:
                latest[1].end()
        return self._open()

    def _forget(self) -> None:
        """Let go of what was opened for a batch that is not read."""
        if self._latest is not None and self._latest[1] is not None:
            self._latest[1].end()
        self._latest = None

    def _open(self) -> tuple[Collection, Lease | None]:
        options = self.options
        with told():
            return open_collection(options.place, options.collection, options.lease_ms)
