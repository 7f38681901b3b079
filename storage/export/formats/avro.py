"""Encodes rows as Avro, with the id of a schema of a registry before each message."""

from typing import Any

import pyarrow as pa

from foreshore.sources.formats import AvroFormat
from foreshore.storage.export.formats.avro_schema import change_schema, record_schema
from foreshore.storage.export.formats.avro_values import (
    avro_column,
    framed,
    optional,
    record,
)
from foreshore.storage.export.formats.columns import Columns


class AvroEncoder:
    """Records with a field for each column; `id` is that of their schema."""

    def __init__(self, columns: Columns, id: int) -> None:
        self._columns = columns
        self._id = id

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a record for each row."""
        parts = []
        for column, of in self._columns.of(batch):
            values = avro_column(column, of.type)
            parts.append(optional(values) if of.nullable else values)
        return record(parts)

    def changes(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return records with the rows before and after."""
        return record([optional(before), optional(after)])

    def messages(self, encoded: pa.Array) -> pa.Array:
        """Return the records with the id of their schema."""
        return framed(encoded, self._id)


def schema_of(
    columns: Columns, part: str, format: AvroFormat, *, is_change: bool
) -> dict[str, Any]:
    """Return the schema of the keys or the values of messages, whose record may have a name."""
    docs = dict(format.column_docs)
    if is_change:
        found = change_schema(columns, format.doc, docs)
    else:
        found = record_schema(columns, part, format.doc, docs)
    if format.fullname is None:
        return found
    namespace, _, found["name"] = format.fullname.rpartition(".")
    if namespace:
        return {**found, "namespace": namespace}
    del found["namespace"]
    return found
