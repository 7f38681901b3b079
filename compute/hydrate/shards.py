"""Merges of large batches by Spark's tasks, for the compacter.

Each task merges a range of rows as the compacter does it (storage/key_ranges.py) and writes a file;
the compacter reads the files in the order of the ranges and writes the batch. So the batch is the
same to the byte, and it exists when the shard's state names it, as every other.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa

from foreshore.compute.bulk.spark_files import TaskFile, rows_of_files, scratch_of, write_rows
from foreshore.compute.hydrate.lend import SparkLender
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.errors import Unavailable
from foreshore.processes.scratch import Scratch
from foreshore.storage.key_ranges import KeyRange, merge_range, ranges_of
from foreshore.storage.trace import Batch
from foreshore.update import Timestamp

RANGE_BYTES = 128 << 20  # of files, that a task merges


class Runner(Protocol):
    """Runs tasks, whose files the caller reads."""

    def run(self, tasks: Sequence["MergeTask"]) -> list[TaskFile]:
        """Return the files that tasks have written, in the order of the tasks."""
        ...

    @property
    def scratch(self) -> Path:
        """Return a directory that the tasks see, too."""
        ...


class MergeTask:
    """The merge of one range, in whatever process it runs."""

    def __init__(
        self, number: int, wanted: KeyRange, schema: bytes, since: Timestamp, directory: str
    ) -> None:
        self.number = number
        self._wanted = wanted
        self._schema = schema
        self._since = since
        self._directory = directory

    def __call__(self) -> TaskFile | None:
        """Merge, and write the rows into a file; None if there are none."""
        schema = pa.ipc.read_schema(pa.py_buffer(self._schema))
        rows = merge_range(self._wanted, schema, self._since, Path(self._directory))
        return write_rows(self._directory, self.number, rows)


class SparkRunner:
    """Runs tasks on Spark, for the compaction of a number."""

    def __init__(self, service: SparkService, number: int) -> None:
        self._service = service
        self._group = f"compaction #{number}"
        self._session = service.session()
        self.scratch = scratch_of(self._session)

    def run(self, tasks: Sequence[MergeTask]) -> list[TaskFile]:
        """Return the files that tasks have written, in the order of the tasks."""
        with self._service.group(self._session, self._group):
            distributed = self._session.sparkContext.parallelize(list(tasks), len(tasks))
            found = distributed.map(lambda task: task()).collect()
        return [file for file in found if file is not None]


def merged_by(
    runner: Runner, paths: Sequence[str], schema: pa.Schema, since: Timestamp
) -> Iterator[pa.RecordBatch]:
    """Yield what tasks merge of batches' files, sorted; all of it is done before the first."""
    directory = runner.scratch / f"merge-{uuid4().hex}"
    directory.mkdir(parents=True)
    try:
        size = sum(Path(path).stat().st_size for path in paths)
        ranges = ranges_of(paths, schema, max(1, size // RANGE_BYTES))
        encoded = schema.serialize().to_pybytes()
        tasks = [
            MergeTask(number, wanted, encoded, since, str(directory))
            for number, wanted in enumerate(ranges)
        ]
        yield from rows_of_files(runner.run(tasks))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class SparkMerger:
    """Merges batches of `threshold` bytes or more on Spark (`storage.compacter.Merger`)."""

    def __init__(self, lender: SparkLender, threshold: int, scratch: Scratch | None = None) -> None:
        """Make a merger, which removes its `scratch` directory at the end."""
        self._lender = lender
        self._threshold = threshold
        self._numbers = count()
        self._scratch = scratch

    def is_for(self, batches: Sequence[Batch]) -> bool:
        """Whether it merges batches of this size."""
        return sum(batch.bytes for batch in batches) >= self._threshold

    def merged(
        self, paths: Sequence[str], schema: pa.Schema, since: Timestamp, scratch: Path
    ) -> Iterator[pa.RecordBatch]:
        """Yield the consolidated updates of batches' files as of `since`, sorted.

        Raises Unavailable before the first if Spark fails.
        """
        began = False
        try:
            with self._lender.lent("compaction") as spark:
                runner = SparkRunner(spark.service, next(self._numbers))
                for part in merged_by(runner, paths, schema, since):
                    began = True
                    yield part
        except Exception as error:
            if began or isinstance(error, Unavailable):
                raise
            raise Unavailable("Spark could not merge the batches") from error

    def close(self) -> None:
        """End Spark, and so what it merges."""
        self._lender.close()
        if self._scratch is not None:
            self._scratch.remove()


def merger_of(master: str, gigabytes: int, properties: Mapping[str, str]) -> SparkMerger:
    """Return what merges batches of so many gigabytes or more, on a Spark with these properties."""
    scratch = Scratch()
    lender = SparkLender(SparkOptions(scratch.path / "spark", master, configuration=properties))
    return SparkMerger(lender, gigabytes * 10**9, scratch)
