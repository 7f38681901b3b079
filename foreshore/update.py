"""Updates: `(data, time, diff)`, the one way in which collections change.

In columnar form a set of updates is an Arrow table: the row's columns, then `__time` (int64,
milliseconds of the timeline `epoch_ms`) and `__diff` (int64, signed multiplicity). Rows at one
time are the same table without `__time`. A collection version is what its updates up to a time
add up to.
"""

from functools import lru_cache

import pyarrow as pa

TIME = "__time"
DIFF = "__diff"

Timestamp = int  # milliseconds since 1970 on the timeline epoch_ms

T0: Timestamp = 0
MAX_TIMESTAMP: Timestamp = 2**63 - 1
# A frontier over these times is one of them, or empty: then nothing is at or beyond it. The empty
# one is the last integer, which is no update's time, so that frontiers compare as integers do.
EMPTY: Timestamp = MAX_TIMESTAMP

TIME_FIELD = pa.field(TIME, pa.int64(), nullable=False)
DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)


def update_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of updates to a collection whose rows have the schema `rows`."""
    return pa.schema([*rows, TIME_FIELD, DIFF_FIELD])


def row_schema(updates: pa.Schema) -> pa.Schema:
    """Return the schema of the rows within updates; the inverse of `update_schema`."""
    return pa.schema([field for field in updates if field.name not in (TIME, DIFF)])


@lru_cache(maxsize=1024)
def encode_schema(schema: pa.Schema) -> bytes:
    """Return a schema, of rows or of updates, as an Arrow IPC message."""
    return bytes(schema.serialize())


@lru_cache(maxsize=1024)
def decode_schema(data: bytes) -> pa.Schema:
    """Return the schema that `encode_schema` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def at_time(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows with `__diff` as updates at `time`."""
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    return rows.add_column(rows.schema.get_field_index(DIFF), TIME_FIELD, times)


def insertions_at(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows, each with multiplicity one, as updates at `time`."""
    return at_time(rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), len(rows))), time)
