"""Updates: `(data, time, diff)` triples, which express all changes of collections.

In columnar form a set of updates is an Arrow table: the row's columns, then `__time` (int64,
milliseconds of the timeline `epoch_ms`) and `__diff` (int64, signed multiplicity). Rows at one time
are the same table without `__time`. The contents of a collection at a time are the sum of its
updates up to that time.
"""

from functools import lru_cache

import pyarrow as pa

TIME = "__time"
DIFF = "__diff"

Timestamp = int  # milliseconds since 1970 on the timeline epoch_ms

T0: Timestamp = 0
MAX_TIMESTAMP: Timestamp = 2**63 - 1
# A frontier over these times is one of them, or empty: nothing is at or beyond it. The empty
# frontier is the greatest integer, which is no update's time, so frontiers compare as integers.
EMPTY: Timestamp = MAX_TIMESTAMP

TIME_FIELD = pa.field(TIME, pa.int64(), nullable=False)
DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)


def update_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of updates to a collection whose rows have the schema `rows`."""
    return pa.schema([*rows, TIME_FIELD, DIFF_FIELD])


def row_schema(updates: pa.Schema) -> pa.Schema:
    """Return the schema of the rows in updates; the inverse of `update_schema`."""
    return pa.schema([field for field in updates if field.name not in (TIME, DIFF)])


@lru_cache(maxsize=1024)
def encode_schema(schema: pa.Schema) -> bytes:
    """Return a schema, of rows or of updates, as an Arrow IPC message."""
    return bytes(schema.serialize())


@lru_cache(maxsize=1024)
def decode_schema(data: bytes) -> pa.Schema:
    """Return the schema encoded by `encode_schema`."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def at_time(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows with `__diff` as updates at `time`; all chunks share the memory of the times."""
    place = rows.schema.get_field_index(DIFF)
    lengths = [len(chunk) for chunk in rows.column(place).chunks]
    times = pa.repeat(pa.scalar(time, pa.int64()), max(lengths, default=0))
    column = pa.chunked_array([times.slice(0, length) for length in lengths], pa.int64())
    return rows.add_column(place, TIME_FIELD, column)


def insertions_at(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows, each with multiplicity one, as updates at `time`."""
    return at_time(rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), len(rows))), time)
