"""The codec: encode rows as DataRow messages, by column.

A `RowEncoder` serves one result, with fixed columns and formats. It encodes a large batch a column
at a time: each column becomes an array of encoded values and one of their lengths. One join of all
of them in Arrow, row by row, gives the messages. A few rows are encoded value by value, since calls
into Arrow would be most of the cost.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from struct import Struct
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import ProtocolViolation
from foreshore.output_style import OutputStyle
from foreshore.server import bulk_rows, message
from foreshore.server.binary_columns import binary_column
from foreshore.server.cells import Cell, binary_cell, text_cell
from foreshore.server.row_messages import field_messages
from foreshore.table_rows import Row
from foreshore.text_columns import text_column, text_pieces
from foreshore.types import NO_ORIGIN, REG_NAMES, TYPES, RelationDesc, SqlType, oid_of, typmod_of

TEXT_FORMAT = 0
BINARY_FORMAT = 1

FEW = 64  # batches of up to so many rows are encoded value by value
CHUNK = 8192  # rows that are encoded at once

_ROW = Struct("!cih")
_NULL = b"\xff\xff\xff\xff"
# Types whose datums are the Python values that Arrow returns.
_DIRECT = frozenset(TYPES) - {
    "date", "time", "timestamp", "timestamptz", "interval", "number", "array", "int2vector",
    "oidvector",
}  # fmt: skip


def result_formats(codes: Sequence[int], columns: int) -> tuple[int, ...]:
    """Return one format for each column, given the format codes of a Bind message."""
    for code in codes:
        if code not in (TEXT_FORMAT, BINARY_FORMAT):
            raise ProtocolViolation(f"unsupported format code: {code}", sqlstate="22023")
    if len(codes) == columns:
        return tuple(codes)
    if len(codes) > 1:
        raise ProtocolViolation(
            f"bind message has {len(codes)} result formats but query has {columns} columns"
        )
    return (codes[0] if codes else TEXT_FORMAT,) * columns


def row_description(desc: RelationDesc, formats: Sequence[int]) -> bytes:
    """Return the RowDescription of a result."""
    return message.row_description(
        [
            (name, *origin, oid_of(c.type), _length(c.type), typmod_of(c.type), format)
            for name, origin, c, format in zip(
                desc.names,
                desc.origins or (NO_ORIGIN,) * len(desc.names),
                desc.columns,
                formats,
                strict=True,
            )
        ]
    )


def _length(type: SqlType) -> int:
    return -1 if type.element is not None else TYPES[type.name].length


class RowEncoder:
    """Encodes the rows of one result; `description` is its RowDescription."""

    def __init__(self, desc: RelationDesc, formats: Sequence[int]) -> None:
        self.desc = desc
        self._types = [column.type for column in desc.columns]
        self._formats = tuple(formats)
        self._cells: list[tuple[Cell, SqlType, bool]] = [
            (
                binary_cell(type) if format == BINARY_FORMAT else text_cell(type),
                type,
                type.name in _DIRECT,
            )
            for type, format in zip(self._types, self._formats, strict=True)
        ]
        self._encode = [cell for cell, _, _ in self._cells]
        self.description = row_description(desc, formats)
        self.columns = self._types, self._formats
        # Whether a column shows names in place of oids, as text.
        self.shows_names = any(
            format == TEXT_FORMAT and (type.element or type).name in REG_NAMES
            for type, format in zip(self._types, self._formats, strict=True)
        )

    def form(self, style: OutputStyle) -> Hashable:
        """Return a key that differs where encoders of the same columns encode differently."""
        return "row", self._formats, style

    def encoded(self, style: OutputStyle) -> Callable[[pa.RecordBatch], bytes]:
        """Return the function that encodes a batch of at most `CHUNK` rows."""
        return lambda batch: bytes(
            (self.few if batch.num_rows <= FEW else self.chunk)(batch, style)
        )

    def few(self, batch: pa.RecordBatch, style: OutputStyle) -> bytes:
        """Return the DataRow messages of a small batch."""
        columns: list[list[bytes]] = []
        for column, (cell, type, direct) in zip(batch.columns, self._cells, strict=True):
            values: list[Any] = column.to_pylist() if direct else from_array(column, type)
            columns.append([_NULL if value is None else cell(value, style) for value in values])
        width = len(columns)
        if width == 0:
            return bytes(_ROW.pack(b"D", 6, 0) * batch.num_rows)
        return _messages(zip(*columns, strict=True), width)

    def tuples(self, rows: Sequence[Row], style: OutputStyle) -> bytes:
        """Return the DataRow messages of few rows, whose data are of the columns' types."""
        parts: list[bytes] = []
        encode, width = self._encode, len(self._encode)
        for row in rows:
            body = b"".join(
                [
                    _NULL if value is None else cell(value, style)
                    for value, cell in zip(row, encode, strict=True)
                ]
            )
            parts.append(_ROW.pack(b"D", len(body) + 6, width))
            parts.append(body)
        return b"".join(parts)

    def chunk(self, batch: pa.RecordBatch, style: OutputStyle) -> message.Bytes:
        """Return the DataRow messages of a batch of at most `CHUNK` rows."""
        if batch.num_rows and bulk_rows.is_ready(batch.num_rows):
            return self._chunk_by_kernel(batch, style)
        columns = [
            [binary_column(column, type)]
            if format == BINARY_FORMAT
            else text_pieces(column, type, style)
            for column, type, format in zip(batch.columns, self._types, self._formats, strict=True)
        ]
        return field_messages(b"D", columns, batch.num_rows)

    def _chunk_by_kernel(self, batch: pa.RecordBatch, style: OutputStyle) -> message.Bytes:
        values = []
        for column, type, format in zip(batch.columns, self._types, self._formats, strict=True):
            if format == BINARY_FORMAT:
                found = bulk_rows.as_binary(column, type)
                found = found or bulk_rows.of_bytes(binary_column(column, type))
            else:
                found = bulk_rows.as_text(column, type, style)
                found = found or bulk_rows.of_bytes(
                    text_column(column, type, style).cast(pa.binary())
                )
            values.append(found)
        return bulk_rows.field_messages(b"D", values, batch.num_rows)


def _messages(rows: Iterable[Iterable[bytes]], width: int) -> bytes:
    """Return the DataRow messages of rows of encoded values."""
    parts: list[bytes] = []
    for row in rows:
        body = b"".join(row)
        parts.append(_ROW.pack(b"D", len(body) + 6, width))
        parts.append(body)
    return b"".join(parts)
