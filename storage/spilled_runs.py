"""Sorted runs on disk, of what is sorted in parts because it does not fit in memory."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

PIECE = 1 << 20  # bytes of a run that are read at once
PREFIX = "runs-"  # of the directories
MOST = 64  # runs that are merged at once, a piece of each in memory

Merge = Callable[[list[Iterator[pa.RecordBatch]]], Iterator[pa.RecordBatch]]


class SpilledRuns:
    """Runs of record batches with one schema, in files below `scratch` until it is closed."""

    def __init__(self, scratch: Path, schema: pa.Schema, merge: Merge) -> None:
        self._scratch = scratch
        self._directory: TemporaryDirectory[str] | None = None  # made with the first run
        self._schema = schema
        self._merge = merge
        self._files: list[Path] = []
        self._names = count()

    def __enter__(self) -> "SpilledRuns":
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def add(self, run: Iterable[pa.RecordBatch]) -> None:
        """Write a run; raises OSError if the disk is full. Many runs become one."""
        if len(self._files) == MOST:
            merged, before = self._merge(self.read()), self._files
            self._files = [self._write(merged)]
            for file in before:
                file.unlink()
        self._files.append(self._write(run))

    def read(self) -> list[Iterator[pa.RecordBatch]]:
        """Return all runs, which are read piece by piece."""
        return [_read(file) for file in self._files]

    def _write(self, run: Iterable[pa.RecordBatch]) -> Path:
        if self._directory is None:
            self._directory = TemporaryDirectory(dir=self._scratch, prefix=PREFIX)
        file = Path(self._directory.name, str(next(self._names)))
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, self._schema) as writer:
            for batch in run:
                rows = max(1, batch.num_rows * PIECE // max(1, batch.nbytes))
                for start in range(0, batch.num_rows, rows):
                    writer.write_batch(batch.slice(start, rows))
        return file


def _read(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as source:
        yield from pa.ipc.open_stream(source)


def remove_leftovers(scratch: Path) -> None:
    """Remove the files and runs in `scratch` that a process that was killed has left."""
    for leftover in scratch.iterdir():
        if leftover.is_file():
            leftover.unlink(missing_ok=True)
        elif leftover.name.startswith(PREFIX):
            shutil.rmtree(leftover)
