"""Rows that a statement keeps for long: in memory while they are few, else mapped from a file.

The file has no name: its space is freed when its last rows are, or its process ends. What is
mapped takes memory only as long as the system has no better use for it.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO
from weakref import finalize

import pyarrow as pa

from foreshore.errors import OutOfDisk, is_disk_full
from foreshore.scratch_share import SCRATCH

KEPT_BYTES = 32 << 20
PIECE_BYTES = 8 << 20  # that are written at once, and mapped as one
PIECE_ROWS = 1 << 16
WINDOW_BYTES = 64 << 20  # of a file that are mapped together, at least
SPARED_BYTES = 64 << 20  # of a disk, for the log and what else is written
ALIGNMENT = 64  # of data in a file, as Arrow wants it
SPARED_PART = 8  # of a smaller disk, one in so many bytes


class MappedFile:
    """A file without a name that only grows. All methods block, and one thread at a time calls.

    Each mapping keeps a descriptor. So the file is mapped in windows that reach beyond its data,
    each at least as long as the file before it: a file of 160 GB has a dozen.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._share = SCRATCH.get()
        self._counted = [0]  # bytes in the last window
        self._file: BinaryIO = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        self._end = 0
        self._window: memoryview = memoryview(b"")  # the last one
        self._window_start = 0

    def add(self, data: pa.Buffer) -> pa.Buffer:
        """Write data, and return it as mapped from the file.

        Raises OutOfDisk, and SessionLimitExceeded for the session in which the file was made.
        """
        if not data.size:
            return data
        self._leave_room(data.size)
        self._share.add(data.size)
        start = self._end + -self._end % ALIGNMENT
        left, at = memoryview(data), start
        try:
            self._extend_window(start, data.size)
            self._counted[0] += data.size
            while left:
                written = os.pwrite(self._file.fileno(), left, at)
                left, at = left[written:], at + written
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise OutOfDisk("rows to a temporary file") from error
        self._end = at
        return pa.py_buffer(self._window[start - self._window_start :][: data.size])

    def mapped(self, rows: pa.Table) -> pa.Table:
        """Return rows as mapped from the file, in which they are written; raises as `add` does."""
        found = [
            pa.ipc.read_record_batch(self.add(batch.serialize()), rows.schema)
            for batch in rows.to_batches()
        ]
        return pa.Table.from_batches(found, rows.schema)

    def _extend_window(self, start: int, size: int) -> None:
        """Map more of the file if the last window ends before the data; raises OSError."""
        if start + size <= self._window_start + len(self._window):
            return
        start -= start % mmap.ALLOCATIONGRANULARITY
        length = max(size + mmap.ALLOCATIONGRANULARITY, start, WINDOW_BYTES)
        os.ftruncate(self._file.fileno(), start + length)  # a hole: it takes no space
        mapped = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ, offset=start)
        self._window, self._window_start = memoryview(mapped), start
        self._counted = counted = [0]  # until nobody has any of the window
        finalize(mapped, lambda share: share.give(counted[0]), self._share).atexit = False

    def _leave_room(self, size: int) -> None:
        """Raise OutOfDisk if too little would be left for what others write meanwhile."""
        disk = os.fstatvfs(self._file.fileno())
        spared = min(SPARED_BYTES, disk.f_blocks * disk.f_frsize // SPARED_PART)
        if disk.f_bavail * disk.f_frsize - size < spared:
            raise OutOfDisk("rows to a temporary file")

    def close(self) -> None:
        """Free the file once nothing of it is mapped."""
        self._window, self._window_start = memoryview(b""), 0
        self._file.close()

    def __del__(self) -> None:
        """Close it."""
        self._file.close()


class Spill:
    """Tables of one schema, in their order, in pieces of at most `PIECE_ROWS` rows.

    Beyond `KEPT_BYTES`, or from the first on if there is a `file`, which may have several, they are
    in a file; adding to it blocks (`is_for_file`).
    """

    def __init__(self, directory: Path, file: MappedFile | None = None) -> None:
        self._directory = directory
        self._file = file
        self._gathered: list[pa.Table] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._tables: list[pa.Table] = []
        self._kept_bytes = 0
        self.num_rows = 0
        self.size_bytes = 0  # of all rows, wherever they are

    def is_for_file(self, rows: pa.Table) -> bool:
        """Whether a file may be written if these rows are added."""
        size = self._kept_bytes + self._gathered_bytes + int(rows.nbytes)
        return self._file is not None or size > KEPT_BYTES

    @property
    def tables(self) -> list[pa.Table]:
        """All rows that were added; call `flush` before."""
        assert not self._gathered
        return self._tables

    def add(self, rows: pa.Table) -> None:
        """Take more rows; raises OutOfDisk."""
        for start in range(0, rows.num_rows, PIECE_ROWS):
            part = rows.slice(start, PIECE_ROWS)
            if self._gathered_rows + part.num_rows > PIECE_ROWS:
                self.flush()
            self._gathered.append(part)
            self._gathered_rows += part.num_rows
            size = int(part.nbytes)
            self._gathered_bytes += size
            self.size_bytes += size
            self.num_rows += part.num_rows
            if self._gathered_bytes >= PIECE_BYTES:
                self.flush()

    def keep(self, rows: pa.Table) -> None:
        """Take rows as they are: they are in another file already, or few."""
        self.flush()
        self._tables.append(rows)
        size = int(rows.nbytes)
        self._kept_bytes += size
        self.size_bytes += size
        self.num_rows += rows.num_rows

    def flush(self) -> None:
        """Put what was added into `tables`; raises OutOfDisk."""
        if not self._gathered:
            return
        piece = pa.concat_tables(self._gathered).combine_chunks()
        if self._file is not None or self._kept_bytes + self._gathered_bytes > KEPT_BYTES:
            piece = self._mapped(piece)
        else:
            self._kept_bytes += self._gathered_bytes
        self._tables.append(piece)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0

    def _mapped(self, rows: pa.Table) -> pa.Table:
        if self._file is None:
            self._file = MappedFile(self._directory)
        return self._file.mapped(rows)


def whole(parts: Iterable[pa.Table], directory: Path, check: Callable[[int], None]) -> pa.Table:
    """Return at least one part as one table; much is mapped from a file below `directory`.

    `check` is called with the bytes so far, and may raise. This blocks.
    """
    kept: list[pa.Table] = []
    size = 0
    spill: Spill | None = None
    for part in parts:
        size += int(part.nbytes)
        check(size)
        kept.append(part)
        if spill is None and size > PIECE_BYTES:
            spill = Spill(directory, MappedFile(directory))
        if spill is not None:
            for each in kept:
                spill.add(each)
            kept = []
    if spill is not None:
        spill.flush()
        kept = spill.tables
    return pa.concat_tables(kept)
