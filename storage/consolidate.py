"""Consolidation: the fewest updates that say the same from `since` on.

Times before `since` move to `since`, diffs of equal (row, time) are added, zeros vanish. The result
is sorted by row, column by column in their order, and then by time. DuckDB does the work, spilling
to disk what does not fit in a bounded memory.

Two rows are the same only if they are bit for bit: adding 0.0 to -0.0 would change what is stored.
So DuckDB does not see the columns' types but the integers that they are made of, under names of our
own.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from foreshore.update import Timestamp

MEMORY = "512MB"
ROWS_AT_ONCE = 1 << 16


def consolidate(
    updates: Iterable[pa.RecordBatch], schema: pa.Schema, since: Timestamp, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the consolidated updates as of `since`, sorted.

    `updates` have the schema, columns by position, time and diff last; `scratch` is a directory for
    what does not fit in memory.
    """
    exact = exact_schema(schema)
    reader = pa.RecordBatchReader.from_batches(exact, (_exact(u, exact) for u in updates))
    columns = ", ".join(f"c{i}" for i in range(len(schema) - 2))
    key = f"{columns}, t" if columns else "t"
    query = (
        f"SELECT {key}, CAST(sum(d) AS BIGINT) AS d"
        f" FROM (SELECT * REPLACE (greatest(t, {int(since)}) AS t) FROM updates)"
        f" GROUP BY {key} HAVING sum(d) <> 0 ORDER BY {key}"
    )
    with duckdb.connect(config=_config(scratch)) as connection:
        result = connection.from_arrow(reader).query("updates", query)
        for batch in result.to_arrow_reader(ROWS_AT_ONCE):
            if batch.num_rows:
                yield _original(batch, exact, schema)


def _config(scratch: Path) -> dict[str, str | int]:
    return {
        "threads": 1,
        "memory_limit": MEMORY,
        "temp_directory": str(scratch),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }


def exact_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the same bits under types whose equality is that of their bits."""
    rows = [pa.field(f"c{i}", exact_type(schema.types[i])) for i in range(len(schema) - 2)]
    return pa.schema([*rows, pa.field("t", pa.int64()), pa.field("d", pa.int64())])


def exact_type(type: pa.DataType) -> pa.DataType:
    """Return the type as which the bits of a column of `type` are compared."""
    if pa.types.is_floating(type) or pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if pa.types.is_list(type):
        return pa.list_(exact_type(type.value_type))
    return type


def _exact(batch: pa.RecordBatch, exact: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            column if column.type == type else column.view(type)
            for column, type in zip(batch.columns, exact.types, strict=True)
        ],
        schema=exact,
    )


def _original(batch: pa.RecordBatch, exact: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, via, type in zip(batch.columns, exact.types, schema.types, strict=True):
        if column.type != via:
            column = column.cast(via)
        columns.append(column if via == type else column.view(type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
