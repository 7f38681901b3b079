"""Corrections: the updates that make the rows of a sink's shard those of its view."""

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import output_schema, rows_schema
from foreshore.compute.inputs import Contents, conform
from foreshore.errors import InternalError
from foreshore.types import ColumnType
from foreshore.update import Timestamp


def difference(
    rows: pa.Table, persisted: Contents, columns: tuple[ColumnType, ...], as_of: Timestamp
) -> pa.Table:
    """Return the updates at as_of that turn the persisted rows into `rows`."""
    schema = output_schema(columns)
    time = min(as_of, persisted.snapshot.upper - 1)
    if persisted.snapshot.upper and time < persisted.snapshot.since:
        raise InternalError(
            f"shard {persisted.snapshot.id} cannot be corrected as of {time},"
            f" as it is readable from {persisted.snapshot.since}"
        )
    held = [conform(table, schema) for table in persisted.until(time)]
    negated = [
        table.set_column(
            table.num_columns - 1, schema[-1], pc.negate(table.column(table.num_columns - 1))
        )
        for table in held
    ]
    both = pa.concat_tables([conform(table, schema) for table in [rows, *negated]])
    return consolidate(both, rows_schema(columns), as_of)
