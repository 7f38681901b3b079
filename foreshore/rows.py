"""Rows with multiplicities: Arrow tables of a relation's columns and, last, `__diff`.

A row that appears twice may be in the table twice with `__diff` 1, or once with `__diff` 2. The
rows that a write deletes have a negative `__diff`.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.update import DIFF, DIFF_FIELD


def split_diffs(table: pa.Table) -> tuple[list[pa.Array], pa.Array]:
    """Return the columns of rows with `__diff`, and their multiplicities."""
    columns = [_one_chunk(column) for column in table.combine_chunks().columns]
    return columns[:-1], columns[-1]


def table_of(columns: Sequence[pa.Array], diffs: pa.Array) -> pa.Table:
    """Return columns, named c0, c1, ..., and multiplicities as rows with `__diff`."""
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    return pa.Table.from_arrays([*columns, diffs], schema=pa.schema([*fields, DIFF_FIELD]))


def counted(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return rows with a `__diff` of 1 each."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return pa.Table.from_arrays([*rows.columns, ones], schema=rows.schema.append(DIFF_FIELD))


def count(rows: pa.Table) -> int:
    """Return the sum of the multiplicities of rows with `__diff`."""
    return sum(int(chunk.to_numpy().sum()) for chunk in rows.column(DIFF).chunks)


def negated(table: pa.Table) -> pa.Table:
    """Return rows with `__diff` negated."""
    columns, diffs = split_diffs(table)
    return pa.Table.from_arrays([*columns, pc.negate(diffs)], schema=table.schema)


def repeated(table: pa.Table) -> pa.Table:
    """Return rows with `__diff`, each repeated as often as that says, with a `__diff` of 1."""
    columns, diffs = split_diffs(table)
    counts = diffs.to_numpy(zero_copy_only=False)
    if not len(counts) or (counts == 1).all():
        return table
    places = np.repeat(np.arange(len(counts)), counts)
    taken = [column.take(pa.array(places)) for column in columns]
    ones = pa.array(np.ones(len(places), np.int64))
    return pa.Table.from_arrays([*taken, ones], schema=table.schema)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
