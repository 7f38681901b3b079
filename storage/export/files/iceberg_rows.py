"""The rows that an interval adds to an Iceberg table, and the keys of those that it replaces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.errors import UndefinedColumn
from foreshore.storage.lake.columns import check_years
from foreshore.storage.lake.keys import KeySet, key_database
from foreshore.types import INT4, INT8, SqlType

ROWS_AT_ONCE = 1 << 16
TIME_COLUMN, DIFF_COLUMN = "_mz_timestamp", "_mz_diff"  # of MODE APPEND
APPENDED: dict[str, SqlType] = {DIFF_COLUMN: INT4, TIME_COLUMN: INT8}
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)  # have useful bounds


def appended_rows(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield the updates of a file as rows with `_mz_diff` and `_mz_timestamp`."""
    source = pq.ParquetFile(file)
    names = [*source.schema_arrow.names[:-2], TIME_COLUMN, DIFF_COLUMN]
    for batch in source.iter_batches(ROWS_AT_ONCE):
        yield pa.RecordBatch.from_arrays(batch.columns, names)


def added_rows(rows: Iterator[pa.RecordBatch], gone: str) -> Iterator[pa.RecordBatch]:
    """Yield the last rows of keys, without those that are gone."""
    for batch in rows:
        yield batch.filter(pc.invert(batch.column(gone))).drop_columns([gone])


def in_table(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the columns of a table; those that they do not have are NULL.

    Raises UndefinedColumn if the table lacks a column of the rows, and DatetimeFieldOverflow.
    """
    for name in rows.schema.names:
        if name not in schema.names:
            raise UndefinedColumn(f'the Iceberg table has no column "{name}" any more')
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    for name, array in zip(schema.names, arrays, strict=True):
        check_years(name, array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Keys:
    """The keys of an interval, in a DuckDB that may use a directory."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, key: Sequence[str]) -> None:
        self._connection = connection
        self._key = key
        self._set = KeySet(connection, "changed")

    def mask(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return which rows have one of the keys."""
        return self._set.mask([rows.column(name) for name in self._key])

    def filter(self) -> Any:
        """Return a condition that all rows with one of the keys meet, to leave out files."""
        from pyiceberg.expressions import (
            AlwaysTrue,
            And,
            GreaterThanOrEqual,
            LessThanOrEqual,
            Reference,
        )

        found: Any = AlwaysTrue()
        for place, name in enumerate(self._key):
            query = f"SELECT min(k{place}) a, max(k{place}) b, count(*) - count(k{place}) n"
            bounds = self._connection.sql(f"{query} FROM changed").to_arrow_table()
            low, high, nulls = (column[0].as_py() for column in bounds.columns)
            is_bounded = any(check(bounds.schema.field(0).type) for check in _BOUNDED)
            if is_bounded and not nulls and low is not None:
                column = Reference(name)
                found = And(found, GreaterThanOrEqual(column, low), LessThanOrEqual(column, high))
        return found


@contextmanager
def changed_keys(file: Path, key: Sequence[str]) -> Iterator[Keys]:
    """Yield the keys of the updates in a Parquet file."""
    with key_database(str(file.parent)) as connection:
        columns = ", ".join(f"{_quoted(name)} AS k{place}" for place, name in enumerate(key))
        source = f"read_parquet('{str(file).replace(chr(39), 2 * chr(39))}')"
        connection.execute(f"CREATE TABLE changed AS SELECT DISTINCT {columns} FROM {source}")
        yield Keys(connection, key)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
