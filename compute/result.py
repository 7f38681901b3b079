"""Results: the rows of a query on their way to a client, in memory only while they are few.

Rows are added in batches until the result is complete, then taken once, in order; or they are read
part by part, in any order, and stay. What exceeds `KEPT_BYTES`, or what queries of all sessions may
hold (`foreshore/query_memory.py`), goes to a scratch file, so a client that does not read costs
disk space but no memory. Rows of many megabytes are mapped from there, not read into memory.

One thread at a time adds or takes; `close` may be called at any time from any thread.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from threading import Lock

import pyarrow as pa

from foreshore.query_memory import QUERY_MEMORY, Reservation
from foreshore.scratch_file import ScratchFile

PART_BYTES = 1 << 20  # of a batch written, sent or read at once, unless rows are very wide
KEPT_BYTES = 2 << 20
SMALL = 4 << 10  # bytes of a batch that are not counted
BATCH_ROWS = 8_192  # sent to a client at once
LONG_BYTES = 4 << 20  # of one batch: it is on disk, and mapped from there
LARGE_RESULT = 16 << 20  # above this, allocators are asked to return memory


class Result:
    """The rows of one query."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.num_rows = 0
        self._kept: deque[pa.RecordBatch] = deque()
        self._kept_bytes = 0
        self._reserved = Reservation()  # for them
        self._file: ScratchFile | None = None
        # Offsets and sizes of batches, and their rows.
        self._spilled: deque[tuple[int, int, int]] = deque()
        self._end = 0
        self._lock = Lock()
        self._busy = False  # whether a thread uses the file
        self._closed = False

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "Result":
        """Return a result of rows that stay in memory."""
        result = cls(rows.schema)
        result._kept.append(rows)
        result.num_rows = rows.num_rows
        result._kept_bytes = size = rows.nbytes
        if size > SMALL:
            result._reserved.try_reserve(size)
        return result

    def _takes(self, rows: pa.RecordBatch) -> bool:
        """Whether rows added now stay in memory, which is reserved for them then."""
        size = rows.nbytes
        if self._spilled or self._kept_bytes + size > KEPT_BYTES:
            return False
        if size > SMALL and not self._reserved.try_reserve(size):
            return False
        self._kept_bytes += size
        return True

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, in memory or at the end of the file; no effect on a closed result."""
        if not self.add_in_memory(rows):
            self.spill(rows)

    def spill(self, rows: pa.RecordBatch) -> None:
        """Add rows at the end of the file."""
        self.num_rows += rows.num_rows
        for part in _cut(rows):
            self._write(part)
        QUERY_MEMORY.count_spilled(rows.nbytes)

    def spill_whole(self, rows: pa.RecordBatch) -> None:
        """Add rows at the end of the file, to be taken together."""
        self.num_rows += rows.num_rows
        self._write(rows)
        QUERY_MEMORY.count_spilled(rows.nbytes)

    def add_in_memory(self, rows: pa.RecordBatch) -> bool:
        """Add rows if they can stay in memory; return whether they do."""
        if not self._takes(rows):
            return False
        self._kept.append(rows)
        self.num_rows += rows.num_rows
        return True

    @property
    def spilled_bytes(self) -> int:
        """Return the bytes written to the file."""
        return self._end

    @property
    def size_bytes(self) -> int:
        """Return the bytes of what is in memory and in the file."""
        kept: int = sum(batch.nbytes for batch in self._kept)
        return kept + self._end

    def is_at_hand(self) -> bool:
        """Whether the next batch is in memory."""
        return bool(self._kept) or not self._spilled

    def take(self) -> pa.RecordBatch | None:
        """Return the next batch; None if there are no more or the result is closed."""
        if self._kept:
            rows = self._kept.popleft()
            if not self._kept:
                self._reserved.close()
            return rows
        if not self._spilled or (file := self._begin()) is None:
            return None
        try:
            place, size, _ = self._spilled.popleft()
            data = file.read(place, size)
        finally:
            self._finish()
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)

    def parts(self, since: int = 0) -> list[int]:
        """Return the numbers of rows of the batches that are left, but for the first `since`."""
        kept = [batch.num_rows for batch in islice(self._kept, since, None)]
        spilled = islice(self._spilled, max(since - len(self._kept), 0), None)
        return kept + [rows for _, _, rows in spilled]

    def is_kept(self, number: int) -> bool:
        """Whether the batch of this number, from 0, is in memory."""
        return number < len(self._kept)

    def part(self, number: int) -> pa.RecordBatch:
        """Return the batch of this number, which stays; of no rows if the result is closed."""
        if self.is_kept(number):
            return self._kept[number]
        if (file := self._begin()) is None:
            return empty_batch(self.schema)
        try:
            place, size, _ = self._spilled[number - len(self._kept)]
            data = file.read(place, size)
        finally:
            self._finish()
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)

    def whole(self) -> pa.RecordBatch:
        """Return all remaining rows as one batch."""
        batches = list(iter(self.take, None))
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches) if batches else empty_batch(self.schema)

    def close(self) -> None:
        """Free memory and file."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            if not self._busy:
                self._release()

    def __del__(self) -> None:
        """Close a result that was not closed."""
        self.close()

    def _write(self, rows: pa.RecordBatch) -> None:
        file = self._begin()
        if file is None:
            return
        try:
            data = memoryview(rows.serialize())
            self._spilled.append((file.add(data), len(data), rows.num_rows))
            self._end += len(data)
        finally:
            self._finish()

    def _begin(self) -> ScratchFile | None:
        """Return the file, protected from closing until `_finish`; None if the result is closed."""
        with self._lock:
            if self._closed:
                return None
            if self._file is None:
                self._file = ScratchFile()
            self._busy = True
            return self._file

    def _finish(self) -> None:
        with self._lock:
            self._busy = False
            if self._closed:
                self._release()

    def _release(self) -> None:
        self._kept.clear()
        self._reserved.close()
        self._spilled.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


def mapped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as mapped from a scratch file, which is freed with the last of them."""
    result = Result(rows.schema)
    with closing(result):
        result.spill_whole(rows)
        found = result.take()
        assert found is not None
        return found


def collected(parts: Iterable[pa.RecordBatch]) -> Result:
    """Return the rows of at least one batch as a result."""
    rest = iter(parts)
    first = next(rest)
    result = Result(first.schema)
    try:
        result.add(first)
        for part in rest:
            result.add(part)
    except BaseException:
        result.close()
        raise
    return result


def sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `PART_BYTES`, at least one if there is any batch.

    Rows without columns have no size and are passed on unchanged.
    """
    gathered: list[pa.RecordBatch] = []
    size = 0
    yielded = False
    for batch in batches:
        if not batch.num_columns:
            yield batch
            continue
        for part in _cut(batch):
            gathered.append(part)
            size += part.nbytes
            if size >= PART_BYTES:
                yield _joined(gathered)
                yielded = True
                gathered, size = [], 0
    if gathered and (size or not yielded):
        yield _joined(gathered)


def _cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield `rows` in slices of about `PART_BYTES`; at least one."""
    size, count = rows.nbytes, rows.num_rows
    step = count if size <= PART_BYTES else max(1, count * PART_BYTES // size)
    for start in range(0, count, step) if count else (0,):
        yield rows.slice(start, step)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    some = [batch for batch in batches if batch.num_rows] or batches[:1]
    return some[0] if len(some) == 1 else pa.concat_batches(some)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table's rows as one batch."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else empty_batch(table.schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
