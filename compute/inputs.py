"""Snapshots sent to a replica: their form in messages, and reading them there.

The environment describes a snapshot (`describe`): batch files by key, and the tail as tables beside
the message. The replica makes the files available locally, checked, and passes them to an engine
(`Contents.input`), or reads parts of them itself: the updates after a time, or the rows at one. All
reading belongs on a thread.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.compute.protocol import InputFile, InputSnapshot
from foreshore.ids import GlobalId
from foreshore.storage.controller import Snapshot
from foreshore.storage.local_files import LocalFiles
from foreshore.update import TIME, Timestamp, decode_schema, encode_schema, update_schema


def describe(snapshot: Snapshot) -> tuple[InputSnapshot, list[pa.Table]]:
    """Return the snapshot as part of a message, and the tables that go with it."""
    files = tuple(
        InputFile(f.key, f.bytes, f.checksum, f.lower, f.upper, f.since, f.rows)
        for f in snapshot.files
    )
    tables = [table for table in snapshot.tail if table.num_rows]
    schema = encode_schema(snapshot.schema)
    return (
        InputSnapshot(snapshot.id, snapshot.since, snapshot.upper, files, len(tables), schema),
        tables,
    )


def describe_rows(id: GlobalId, rows: pa.Table, as_of: Timestamp) -> tuple[InputSnapshot, pa.Table]:
    """Return known rows as part of a message: a collection as of one time."""
    table = with_times(rows, as_of)
    return InputSnapshot(id, as_of, as_of + 1, (), 1, encode_schema(rows.schema)), table


def with_times(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return the rows as updates at `time`, each with multiplicity one."""
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    diffs = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return pa.Table.from_arrays([*rows.columns, times, diffs], schema=update_schema(rows.schema))


@dataclass(frozen=True, slots=True)
class Contents:
    """A received snapshot."""

    snapshot: InputSnapshot
    schema: pa.Schema  # of the rows
    tail: tuple[pa.Table, ...]
    files: LocalFiles

    @contextmanager
    def input(self) -> Iterator[Input]:
        """Yield the snapshot in the form that engines take, valid during the block."""
        with self.files.of(self.snapshot.files) as paths:
            yield Input(self.schema, tuple(map(str, paths)), self.tail)

    def after(self, time: Timestamp) -> list[pa.Table]:
        """Read the updates later than `time`, which must be at least since - 1."""
        assert time >= self.snapshot.since - 1, (time, self.snapshot)
        schema = update_schema(self.schema)
        later = [file for file in self.snapshot.files if file.upper > time + 1]
        with self.files.of(later) as paths:
            found = [pq.read_table(path, filters=[(TIME, ">", time)]) for path in paths]
        found += (table.filter(pc.greater(times_of(table), time)) for table in self.tail)
        return [conform(table, schema) for table in found if table.num_rows]

    def until(self, time: Timestamp) -> list[pa.Table]:
        """Read the updates at or before `time`."""
        schema = update_schema(self.schema)
        earlier = [file for file in self.snapshot.files if file.lower <= time]
        with self.files.of(earlier) as paths:
            found = [pq.read_table(path, filters=[(TIME, "<=", time)]) for path in paths]
        found += (table.filter(pc.less_equal(times_of(table), time)) for table in self.tail)
        return [conform(table, schema) for table in found if table.num_rows]


def arrived(
    snapshots: Sequence[InputSnapshot], tables: Iterator[pa.Table], files: LocalFiles
) -> list[Contents]:
    """Return the snapshots with their tables, which are taken from `tables`."""
    return [
        Contents(s, decode_schema(s.schema), tuple(next(tables) for _ in range(s.tables)), files)
        for s in snapshots
    ]


def times_of(updates: pa.Table) -> pa.ChunkedArray:
    """Return the times of updates in columns."""
    return updates.column(updates.num_columns - 2)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns with the names and nullability of `schema`, by position."""
    if table.schema.equals(schema):
        return table
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def moved(updates: pa.Table, time: Timestamp) -> pa.Table:
    """Return the updates, all at one time."""
    times = pa.repeat(pa.scalar(time, pa.int64()), updates.num_rows)
    place = updates.num_columns - 2
    return updates.set_column(place, updates.schema[place], times)
