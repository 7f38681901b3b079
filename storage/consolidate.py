"""Consolidation: the fewest updates with the same sums from `since` on.

Times before `since` move to `since`, diffs of equal (row, time) are added, and zeros are removed.
The result is sorted by row, in column order, and then by time.

    consolidate    of updates in any order: sorted in parts in memory, which are spilled and merged
    merge          of runs that are sorted already, in constant memory

A merge holds one piece of each run. No run yields anything before the end of its piece, so all
updates up to the earliest of these ends are complete. They are consolidated and emitted, except for
the last row, to which the next round may add.

Rows are equal only if they are equal bit for bit: adding 0.0 to -0.0 would change stored values. So
each column is taken as the integers that it consists of, under generated names. NaN is the
exception: all NaNs count as one value, because their bits depend on the processor.

What is in memory is sorted by `sorting.py`, in a fraction of DuckDB's time; DuckDB takes rows with
nested columns, which that does not compare.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataCorrupted
from foreshore.storage.sorting import consolidated, is_sortable
from foreshore.storage.spilled_runs import SpilledRuns
from foreshore.update import Timestamp

MEMORY = 64 << 20
IN_MEMORY = MEMORY // 2  # bytes that are sorted at once, with a few copies beside them
NESTED = 4  # what a sort by DuckDB takes of memory, for each byte
ROWS_AT_ONCE = 1 << 16
VECTOR_ROWS = 2048  # DuckDB holds at least this many rows, whatever its limit
COPIES = 4  # of a vector; a sort needs three, measured with rows of 30 kB to 250 MB
IDLE = 2  # databases that are kept for later
WIDE = 4 << 10  # bytes; narrower rows fit in `MEMORY` anyway

Key = tuple[object, ...]


class Databases:
    """DuckDB's databases of one directory for spilled data, used again as opening one is dear.

    A database is kept after use by one thread, unless that failed, was not finished, or has raised
    the memory limit.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._idle: deque[duckdb.DuckDBPyConnection] = deque()
        self._closed = False
        self._lent: set[duckdb.DuckDBPyConnection] = set()

    @contextmanager
    def lent(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, "_MemoryLimit"]]:
        """Yield a connection to a database that nobody else uses, and its memory limit."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _connect(self.scratch)
        self._lent.add(connection)
        try:
            room = _MemoryLimit(connection)
            yield connection, room
        except BaseException:
            connection.close()
            raise
        finally:
            self._lent.discard(connection)
        if self._closed or room.raised or len(self._idle) >= IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def interrupt(self) -> None:
        """Let what is computed at this moment fail, as nobody waits for it."""
        for connection in self._lent.copy():
            with suppress(duckdb.ConnectionException):  # it was just closed
                connection.interrupt()

    def close(self) -> None:
        """Close the databases that are idle, and the others after their use."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


@contextmanager
def _database(
    scratch: Path, databases: Databases | None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, "_MemoryLimit"]]:
    """Yield a database of `databases`, or one that is closed afterwards, and its memory limit."""
    if databases is not None:
        with databases.lent() as lent:
            yield lent
    else:
        with closing(_connect(scratch)) as connection:
            yield connection, _MemoryLimit(connection)


def consolidate(
    updates: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    since: Timestamp,
    scratch: Path,
    databases: Databases | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the consolidated updates as of `since`, sorted.

    `updates` have the schema, with columns by position and time and diff last. `scratch` is a
    directory for spilled data. A database of `databases`, which are of that directory, is used.
    """
    with _adding_up(schema, scratch, databases) as add_up:

        def merged(runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
            return _merged(runs, schema, since, add_up)

        with SpilledRuns(scratch, schema, merged) as spilled:
            last: pa.RecordBatch | None = None
            for part in _parts(updates, exact_schema(schema), since):
                if last is not None:
                    spilled.add([last])
                last = _original(add_up(part), part.schema, schema)
            runs = spilled.read()
            if runs:
                yield from merged([*runs, iter([last])])
            elif last is not None:
                yield from _in_pieces(last)


def _parts(
    updates: Iterable[pa.RecordBatch], exact: pa.Schema, since: Timestamp
) -> Iterator[pa.Table]:
    """Yield updates under their bitwise types, as many at once as are sorted in memory."""
    most = IN_MEMORY if is_sortable(exact) else IN_MEMORY // NESTED
    part: list[pa.RecordBatch] = []
    size = 0
    for update in updates:
        if part and size + update.nbytes > most:
            yield pa.Table.from_batches(part, exact)
            part, size = [], 0
        part.append(exact_batch(update, exact, since))
        size += update.nbytes
    if part:
        yield pa.Table.from_batches(part, exact)


def merge(
    runs: Sequence[Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    since: Timestamp,
    scratch: Path,
    databases: Databases | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the consolidated updates of all runs as of `since`, sorted, as `consolidate` does.

    Each run is sorted by row and time. At most one piece of each is in memory. Raises DataCorrupted
    if a piece begins before the end of the previous one.
    """
    with _adding_up(schema, scratch, databases) as add_up:
        yield from _merged(runs, schema, since, add_up)


@contextmanager
def _adding_up(
    schema: pa.Schema, scratch: Path, databases: Databases | None
) -> Iterator[Callable[[pa.Table], pa.RecordBatch]]:
    """Yield what sorts and adds up updates under their bitwise types, in memory."""
    if is_sortable(exact_schema(schema)):
        yield lambda table: consolidated(_single(table))
    else:
        with _database(scratch, databases) as (connection, room):
            yield partial(_add_up, connection, room, _query(schema))


def _add_up(
    connection: duckdb.DuckDBPyConnection, room: "_MemoryLimit", query: str, complete: pa.Table
) -> pa.RecordBatch:
    """Return updates sorted and added up by DuckDB."""
    for batch in complete.to_batches():
        room.make(batch)
    result = connection.from_arrow(complete).query("updates", query).to_arrow_table()
    return _single(result.cast(complete.schema))


def _merged(
    runs: Sequence[Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    since: Timestamp,
    add_up: Callable[[pa.Table], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    exact = exact_schema(schema)
    live = [run for run in (_Run(pieces, exact, since) for pieces in runs) if run.fill()]
    last = pa.RecordBatch.from_pylist([], exact)  # the next round may add to it
    while live:
        bound = min(run.end for run in live)
        batch = add_up(pa.Table.from_batches([last, *(run.take(bound) for run in live)], exact))
        live = [run for run in live if run.fill()]
        last = batch.slice(max(0, batch.num_rows - 1))
        if batch.num_rows > 1:
            yield _original(batch.slice(0, batch.num_rows - 1), exact, schema)
        if batch.num_rows:
            last = last.take([0])  # a copy, which keeps no other memory alive
    if last.num_rows:
        yield _original(last, exact, schema)


def _single(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, ROWS_AT_ONCE):
        yield batch.slice(start, ROWS_AT_ONCE)


class _Run:
    """A sorted run, one piece of which is in memory."""

    def __init__(
        self, pieces: Iterator[pa.RecordBatch], exact: pa.Schema, since: Timestamp
    ) -> None:
        self.end: Key = ()  # of the piece; everything still unread comes after it
        self._pieces = pieces
        self._exact = exact
        self._since = since
        self._piece: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Load the next piece if the current one is used up; return whether there is one."""
        while self._piece is None or self._piece.num_rows == 0:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece = exact_batch(piece, self._exact, self._since)
            if self._piece.num_rows:
                if self._key(0) < self.end:
                    raise DataCorrupted("updates of a batch are not sorted")
                self.end = self._key(self._piece.num_rows - 1)
        return True

    def take(self, bound: Key) -> pa.RecordBatch:
        """Remove the updates up to `bound` from the piece and return them."""
        piece = self._piece
        assert piece is not None
        rows = bisect_right(range(piece.num_rows), bound, key=self._key)
        self._piece = piece.slice(rows)
        return piece.slice(0, rows)

    def _key(self, row: int) -> Key:
        """Return the sort key of a row and its time, in DuckDB's order."""
        piece = self._piece
        assert piece is not None
        return _key(piece, row, 1)


def key_of_row(updates: pa.RecordBatch, row: int) -> Key:
    """Return what rows are ordered by, of updates under their bitwise types, without the time."""
    return _key(updates, row, 2)


def _key(updates: pa.RecordBatch, row: int, without: int) -> Key:
    return tuple(_ordered(column[row].as_py()) for column in updates.columns[:-without])


def _ordered(value: object) -> tuple[bool, object]:
    """Return a value with Python's order: nulls last, also within arrays and structs."""
    match value:
        case None:
            return True, None
        case list():
            return False, tuple(map(_ordered, value))
        case dict():
            return False, tuple(map(_ordered, value.values()))
    return False, value


def _query(schema: pa.Schema) -> str:
    key = ", ".join([*(f"c{i}" for i in range(len(schema) - 2)), "t"])
    return (
        f"SELECT {key}, CAST(sum(d) AS BIGINT) AS d FROM updates"
        f" GROUP BY {key} HAVING sum(d) <> 0 ORDER BY {key}"
    )


def least_multiplicity(
    updates: Iterable[pa.RecordBatch], schema: pa.Schema, since: Timestamp, scratch: Path
) -> int:
    """Return the least multiplicity of any row at any time from `since` on.

    At most 0, because a row does not exist before it is inserted. A negative result means that the
    updates are not those of a collection.
    """
    rows = ", ".join([f"c{i}" for i in range(len(schema) - 2)] or ["true"])
    counts = f"SELECT sum(d) OVER (PARTITION BY {rows} ORDER BY t) AS n FROM updates"
    least_count = f"SELECT min(n) FROM ({counts})"
    least = 0
    with closing(_connect(scratch)) as connection:
        room = _MemoryLimit(connection)
        for part in _whole_rows(consolidate(updates, schema, since, scratch), schema, since):
            for batch in part.to_batches():
                room.make(batch)
            ((found,),) = connection.from_arrow(part).query("updates", least_count).fetchall()
            least = min(least, int(found))
    return least


def _whole_rows(
    updates: Iterable[pa.RecordBatch], schema: pa.Schema, since: Timestamp
) -> Iterator[pa.Table]:
    """Yield consolidated updates under their bitwise types, all updates of a row together."""
    exact = exact_schema(schema)
    held: list[pa.RecordBatch] = []  # the updates of one row
    for update in updates:
        batch = exact_batch(update, exact, since)
        key = partial(key_of_row, batch)
        if held and key_of_row(held[0], 0) != key(0):
            yield pa.Table.from_batches(held)
            held = []
        last = bisect_left(range(batch.num_rows), key(batch.num_rows - 1), key=key)
        if last:
            yield pa.Table.from_batches([*held, batch.slice(0, last)])
            held = []
        held.append(batch.slice(last))
    if held:
        yield pa.Table.from_batches(held)


def out_of_room(error: duckdb.Error) -> bool:
    """Whether there was no disk space for spilled data."""
    # DuckDB limits itself to the free space, before it meets the limit of the disk itself.
    text = str(error)
    return "No space left on device" in text or "failed to offload data block" in text


def _connect(scratch: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{MEMORY}B",
            "temp_directory": str(scratch),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )


class _MemoryLimit:
    """The memory limit of a connection, raised for what it receives.

    DuckDB can spill most data but not its current rows. Without enough memory for a single wide
    row, or a vector of them, consolidation would fail at every attempt.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._settings = connection.cursor()  # the connection itself may be busy with its query
        self._widest = np.zeros(0, np.int64)
        self._limit = MEMORY

    @property
    def raised(self) -> bool:
        """Whether the limit is more than that of other databases."""
        return self._limit > MEMORY

    def make(self, batch: pa.RecordBatch) -> None:
        """Raise the limit to hold the rows of a batch too."""
        widths = sum(map(_widths, batch.columns), np.zeros(batch.num_rows, np.int64))
        wide = widths[widths > WIDE]
        if len(wide):
            self._widest = np.sort(np.concatenate([self._widest, wide]))[-VECTOR_ROWS:]
        limit = MEMORY + COPIES * int(self._widest.sum())
        if limit > self._limit:
            self._limit = limit
            self._settings.execute(f"SET GLOBAL memory_limit = '{limit}B'")


def _widths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes of each row of a variable-width column."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)
    if pa.types.is_list(column.type):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0), np.int64)
        values = column.flatten()
        ends = np.concatenate([[0], np.cumsum(_widths(values) + 8)])
        last = np.cumsum(lengths)
        return np.asarray(ends[last] - ends[last - lengths], np.int64)
    return np.zeros(len(column), np.int64)


def exact_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema of the same bits whose types compare bitwise."""
    rows = [pa.field(f"c{i}", exact_type(schema.types[i])) for i in range(len(schema) - 2)]
    return pa.schema([*rows, pa.field("t", pa.int64()), pa.field("d", pa.int64())])


def exact_type(type: pa.DataType) -> pa.DataType:
    """Return the type as which columns of `type` are compared bitwise."""
    if pa.types.is_floating(type) or pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if pa.types.is_list(type):
        return pa.list_(exact_type(type.value_type))
    return type


def exact_batch(batch: pa.RecordBatch, exact: pa.Schema, since: Timestamp) -> pa.RecordBatch:
    """Return the updates under their bitwise types, with no time before `since`."""
    *row, times, diffs = batch.columns
    columns = [
        column if column.type == type else canonical_nans(column).view(type)
        for column, type in zip(row, exact.types[:-2], strict=True)
    ]
    late = pa.array(np.maximum(times.to_numpy(), since))
    return pa.RecordBatch.from_arrays([*columns, late, diffs], schema=exact)


def canonical_nans(column: pa.Array) -> pa.Array:
    """Return the column with equal bits for all NaNs; the column itself if it has none."""
    if not holds_floats(column.type):
        return column
    values = column if pa.types.is_floating(column.type) else column.flatten()
    nans = pc.is_nan(values)
    if not pc.any(nans).as_py():
        return column
    values = pc.if_else(pc.fill_null(nans, False), pa.scalar(math.nan, values.type), values)
    if pa.types.is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return pa.ListArray.from_arrays(offsets, values, type=column.type, mask=column.is_null())
    return values


def holds_floats(type: pa.DataType) -> bool:
    """Whether values of the type are floats, or lists of floats."""
    return bool(pa.types.is_floating(type.value_type if pa.types.is_list(type) else type))


def _original(batch: pa.RecordBatch, exact: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, via, type in zip(batch.columns, exact.types, schema.types, strict=True):
        if column.type != via:
            column = column.cast(via)
        columns.append(column if via == type else column.view(type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
