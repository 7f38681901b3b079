"""Results as Arrow, Parquet or CSV: the bytes of one result, made while it is read.

    application/vnd.apache.arrow.stream    an Arrow IPC stream
    application/vnd.apache.parquet         a Parquet file, with row groups of about GROUP_ROWS
    text/csv                               PostgreSQL's texts, all quoted but NULL; a header line

A client chooses one by the header Accept; without it, or with any other, the answer is JSON.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.adapter.files.arrow_columns import file_type, for_file, for_stream, stream_field
from foreshore.arrow_stream import END
from foreshore.output_style import OutputStyle
from foreshore.server.http.values import shows_names
from foreshore.text_columns import text_column
from foreshore.types import RelationDesc

GROUP_ROWS = 65_536
GROUP_BYTES = 16 << 20

Style = Callable[..., OutputStyle]


class Encoder(Protocol):
    """Encodes the rows of one result; runs on a thread. A batch may have up to all rows."""

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return the next bytes, which may be none; raises DataError if a value does not fit."""

    def end(self) -> bytes:
        """Return the last bytes."""


class ArrowEncoder:
    """Encodes rows as an Arrow stream."""

    def __init__(self, desc: RelationDesc, style: Style) -> None:
        self._types = [column.type for column in desc.columns]
        fields = zip(desc.names, self._types, strict=True)
        self._schema = pa.schema([stream_field(name, type) for name, type in fields])
        self._head: bytes = self._schema.serialize().to_pybytes()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return rows as a record batch, the first after the schema."""
        columns = [
            for_stream(field.name, column, type)
            for field, column, type in zip(self._schema, batch.columns, self._types, strict=True)
        ]
        found = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        head, self._head = self._head, b""
        return head + bytes(found.serialize().to_pybytes())

    def end(self) -> bytes:
        """Return the end mark."""
        return self._head + END


class ParquetEncoder:
    """Encodes rows as a Parquet file; holds the rows of one group."""

    def __init__(self, desc: RelationDesc, style: Style) -> None:
        self._types = [column.type for column in desc.columns]
        fields = zip(desc.names, self._types, strict=True)
        self._schema = pa.schema([pa.field(name, file_type(type)) for name, type in fields])
        self._written = _Written()
        file = pa.PythonFile(self._written, mode="w")
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._group: list[pa.RecordBatch] = []

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return the next row group, if there are enough rows for one."""
        columns = [
            for_file(field.name, column, type)
            for field, column, type in zip(self._schema, batch.columns, self._types, strict=True)
        ]
        self._group.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        rows = sum(each.num_rows for each in self._group)
        if rows >= GROUP_ROWS or sum(each.nbytes for each in self._group) >= GROUP_BYTES:
            self._write_group()
        return self._written.taken()

    def end(self) -> bytes:
        """Return the last row group and the footer."""
        if self._group:
            self._write_group()
        self._writer.close()
        return self._written.taken()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._group, schema=self._schema)
        self._group = []
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))


class CsvEncoder:
    """Encodes rows as CSV with a header."""

    def __init__(self, desc: RelationDesc, style: Style) -> None:
        self._types = [column.type for column in desc.columns]
        self._style = style(names=shows_names(desc))
        names = ",".join('"' + name.replace('"', '""') + '"' for name in desc.names)
        self._head: bytes = f"{names}\r\n".encode()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return rows as lines."""
        head, self._head = self._head, b""
        fields = [
            _quoted(text_column(column, type, self._style))
            for column, type in zip(batch.columns, self._types, strict=True)
        ]
        if not fields:
            return head + b"\r\n" * int(batch.num_rows)
        lines = pc.binary_join_element_wise(*fields, ",")
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        joined: bytes = pc.binary_join(whole, "\r\n")[0].as_buffer().to_pybytes()
        return head + joined + b"\r\n"

    def end(self) -> bytes:
        """Return the header if there were no rows."""
        return self._head


ENCODERS: Mapping[str, Callable[[RelationDesc, Style], Encoder]] = {
    "application/vnd.apache.arrow.stream": ArrowEncoder,
    "application/vnd.apache.parquet": ParquetEncoder,
    "text/csv": CsvEncoder,
}


def media_type(accept: str) -> str | None:
    """Return the first type of the header Accept that has an encoder; None: JSON is wanted.

    Parameters, such as q=0.5, are left out.
    """
    wanted = (each.partition(";")[0].strip().lower() for each in accept.split(","))
    for each in wanted:
        if each in ENCODERS:
            return each
        if each in ("application/json", "*/*"):
            return None
    return None


def _quoted(texts: pa.Array) -> pa.Array:
    """Return fields of CSV: in quotes, and nothing for NULL."""
    doubled = pc.replace_substring(texts.cast(pa.string()), '"', '""')
    return pc.fill_null(pc.binary_join_element_wise('"', doubled, '"', ""), "")


class _Written:
    """A file whose bytes are taken as they are written."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: all bytes are there to be taken."""

    def close(self) -> None:
        """Do nothing: the bytes stay."""

    def taken(self) -> bytes:
        """Return the bytes since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
