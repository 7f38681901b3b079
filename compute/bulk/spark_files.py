"""Results of Spark jobs as files: each task writes its rows, and the driver gets the names.

A task may run twice, or be given up halfway. Each attempt writes a file of its own, which nobody
reads unless the job's result names it, so rows are there exactly once. Files that are not named go
with their directory.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

LARGE_INPUT = 64 << 20  # bytes of files, from which on tasks write the result
NAMES = "part INT, path STRING, rows BIGINT, bytes BIGINT"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """An Arrow file that a task has written, of the partition with number `part`."""

    part: int
    path: Path
    rows: int
    bytes: int


def write_by_tasks(frame: Any, directory: Path) -> list[TaskFile]:
    """Run the job of a data frame; return its rows' files in the order of partitions.

    The executors must see `directory`, which is made. A partition without rows has no file.
    """
    directory.mkdir(parents=True)
    target = str(directory)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _write_task(target, batches)

    return named_files(frame.mapInArrow(write, NAMES))


def scratch_of(spark: Any) -> Path:
    """Return the scratch directory of a session, which executors of other machines must see."""
    return Path(spark.sparkContext.getConf().get("spark.local.dir")).parent


def named_files(names: Any) -> list[TaskFile]:
    """Run the job of a data frame with the columns of `NAMES`; return the files in order."""
    found = names.collect()
    files = [TaskFile(row.part, Path(row.path), row.rows, row.bytes) for row in found]
    return sorted(files, key=lambda file: file.part)


def _write_task(directory: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: write the rows into a new file, and yield its name unless there are none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    file = write_rows(directory, context.partitionId(), batches)
    if file is not None:
        yield pa.RecordBatch.from_pydict(
            {
                "part": pa.array([file.part], pa.int32()),
                "path": [str(file.path)],
                "rows": pa.array([file.rows], pa.int64()),
                "bytes": pa.array([file.bytes], pa.int64()),
            }
        )


def write_rows(directory: str, part: int, batches: Iterator[pa.RecordBatch]) -> TaskFile | None:
    """Write rows into a new file, unless there are none; return its name."""
    path = Path(directory, f"{uuid4().hex}.arrow")
    writer, rows = None, 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file:
        for batch in batches:
            if batch.num_rows:
                writer = writer or pa.ipc.new_file(file, batch.schema, options=options)
                writer.write_batch(batch)
                rows += batch.num_rows
        if writer is not None:
            writer.close()
        size = file.tell()
    return TaskFile(part, path, rows, size) if rows else None


def rows_of_files(files: Sequence[TaskFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, a batch at a time; each file is removed when it has been read."""
    for each in files:
        with pa.memory_map(str(each.path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        each.path.unlink()


class Results:
    """The results of a session's statements, in files if the statements read much.

    They are in the session's scratch directory, which executors of other machines must see.
    """

    def __init__(self, scratch: Callable[[], Path]) -> None:
        self._scratch = scratch
        self._read = 0  # bytes of files
        self._directory: Path | None = None
        self._numbers = count()

    def reads(self, paths: Sequence[str]) -> None:
        """Note that statements read files."""
        self._read += sum(os.path.getsize(path) for path in paths)

    def forget(self) -> None:
        """Note that later statements do not read these files."""
        self._read = 0

    @property
    def are_large(self) -> bool:
        """Whether tasks are to write results into files."""
        return self._read >= LARGE_INPUT

    def of(self, frame: Any) -> Iterator[pa.Table]:
        """Yield the rows of a data frame, a batch at a time: at least one, which may be empty.

        The job ends before the first; each file is removed when it has been read.
        """
        if self._directory is None:
            self._directory = self._scratch() / f"results-{uuid4().hex}"
        directory = self._directory / str(next(self._numbers))
        files = write_by_tasks(frame, directory)
        try:
            for batch in rows_of_files(files):
                yield pa.Table.from_batches([batch])
            if not files:
                yield frame.limit(0).toArrow()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Remove what was not read."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
