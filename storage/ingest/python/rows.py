"""Rows between Python functions and relations: dictionaries, Arrow tables and data frames."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from foreshore.errors import BadCopyFileFormat, InvalidParameterValue
from foreshore.storage.external.python import column_called
from foreshore.storage.lake.columns import WrongValue, for_file, from_file, texts
from foreshore.types import RelationDesc
from foreshore.update import DIFF

_JSON = ("json", "jsonb")


def as_arrow(rows: Any, desc: RelationDesc) -> pa.Table:
    """Return Arrow tables, data frames or dictionaries as a table."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "to_arrow"):
        found: pa.Table = rows.to_arrow()
        return found
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if hasattr(rows, "columns"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Mapping):
        rows = [rows]
    return _of_dictionaries(list(rows), desc)


def _of_dictionaries(rows: Sequence[Mapping[str, Any]], desc: RelationDesc) -> pa.Table:
    columns = {}
    for name, column in zip(desc.names, desc.columns, strict=True):
        values = [row.get(name) for row in rows]
        if column.type.name in _JSON:
            values = [None if each is None else json.dumps(each) for each in values]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, TypeError, OverflowError):
            raise InvalidParameterValue(
                f'column "{name}" has values of several types, or of one that SQL has not'
            ) from None
    columns[DIFF] = pa.array([row.get(DIFF, 1) for row in rows], pa.int64())
    return pa.table(columns)


def stored(table: pa.Table, desc: RelationDesc) -> pa.Table:
    """Return rows of a function as a relation has them; raises DatabaseError."""
    arrays = []
    for name, column in zip(desc.names, desc.columns, strict=True):
        try:
            array = from_file(name, column_called(table, name), column.type)
        except WrongValue as error:
            raise error.error from None
        if not column.nullable and array.null_count:
            raise BadCopyFileFormat(f'null value in column "{name}"')
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=desc.stored_schema())


def as_dictionaries(table: pa.Table, desc: RelationDesc) -> list[dict[str, Any]]:
    """Return rows of a relation as dictionaries; documents as Python values."""
    columns = []
    for name, column in zip(desc.names, desc.columns, strict=True):
        array = column_called(table, name)
        if column.type.name == "number":  # with the digits that it has
            values = texts(array, column.type).to_pylist()
            columns.append([None if each is None else Decimal(each) for each in values])
            continue
        values = for_file(name, array, column.type).to_pylist()
        if column.type.name in _JSON:
            values = [None if each is None else json.loads(each) for each in values]
        columns.append(values)
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(desc.names, row, strict=True)) for row in zip(*columns, strict=True)]
