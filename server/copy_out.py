"""COPY TO: format record batches as text, csv or binary, one CopyData message for each row."""

import re
from collections.abc import Callable, Hashable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import CopyOptions
from foreshore.output_style import OutputStyle
from foreshore.server import bulk_rows, message
from foreshore.server.binary_columns import binary_column
from foreshore.server.bulk_rows import Values
from foreshore.server.codec import CHUNK
from foreshore.server.row_messages import Pieces, field_messages, line_messages
from foreshore.text_columns import text_column, text_pieces
from foreshore.types import RelationDesc

BINARY_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
_HEADER = 5  # bytes before the body of a message
BINARY_TRAILER = b"\xff\xff"

_ESCAPES = (
    ("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"),
    ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"),
)  # fmt: skip


_ESCAPED = "".join(plain for plain, _ in _ESCAPES)
_NO_ESCAPES = bulk_rows.escapes_of(())

# The texts of these types consist of these characters only, so that they never need quotes.
_PLAIN_CHARACTERS = frozenset("0123456789+-.: abcdefghijklmnopqrstuvwxyzCINTB")
_PLAIN_TYPES = frozenset((
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "uuid",
    "date", "time", "timestamp", "timestamptz", "interval", "mz_timestamp",
))  # fmt: skip


class CopyFormatter:
    """Formats the rows of one COPY TO STDOUT."""

    chunk_rows = CHUNK

    def __init__(self, desc: RelationDesc, options: CopyOptions, style: OutputStyle) -> None:
        self._types = [column.type for column in desc.columns]
        self._names = desc.names
        self._options = options
        self._style = style
        forced = options.force_quote
        self._forced = [forced == "*" or name in forced for name in desc.names]
        special = re.escape(options.delimiter)
        self._needs_quotes = f"[{special}{re.escape(options.quote)}\\n\\r]"
        self._signature = BINARY_SIGNATURE if options.format == "binary" else b""  # not yet sent
        plain = options.delimiter + options.quote
        null = options.null if options.format == "csv" else ""
        safe = not set(plain) & _PLAIN_CHARACTERS and (not null or set(null) - _PLAIN_CHARACTERS)
        safe = safe and (style.dates, style.intervals) == ("ISO", "postgres")
        letters = [(plain, written[1]) for plain, written in _ESCAPES]
        self._escapes = bulk_rows.escapes_of([(options.delimiter, options.delimiter), *letters])
        self._plain = [bool(safe) and type.name in _PLAIN_TYPES for type in self._types]
        assert options.format != "arrow"  # of ArrowFormatter
        self._rows: Callable[[pa.RecordBatch], message.Bytes] = {
            "text": self._text_rows,
            "csv": self._csv_rows,
            "binary": self._binary_rows,
        }[options.format]

    @property
    def binary(self) -> bool:
        """Whether the format is binary."""
        return self._options.format == "binary"

    @property
    def is_plain(self) -> bool:
        """Whether the messages depend on the rows alone, not on what was sent before."""
        return not self._signature

    @property
    def form(self) -> Hashable:
        """A key that differs where formatters of the same columns format differently."""
        return "copy", self._options, self._style

    def start(self) -> bytes:
        """Return the messages that come before the rows."""
        if self.binary or not self._options.header:
            return b""
        names = [pa.array([name]) for name in self._names]
        if self._options.format == "csv":
            names = [self._quoted(name, False) for name in names]
        else:
            names = [self._escaped(name) for name in names]
        return bytes(self._lines(list(map(_piece, names)), 1))

    def end(self) -> bytes:
        """Return the messages that come after the rows."""
        if not self.binary:
            return b""
        signature, self._signature = self._signature, b""
        return message.copy_data(signature + BINARY_TRAILER)

    def rows(self, batch: pa.RecordBatch) -> message.Bytes:
        """Return the messages of the rows."""
        if batch.num_rows == 0:
            return b""
        if not self._signature:
            if bulk_rows.is_ready(batch.num_rows):
                return self._rows_by_kernel(batch)
            return self._rows(batch)
        # The first row shares a message with the signature.
        signature, self._signature = self._signature, b""
        row = bytes(self._rows(batch.slice(0, 1)))[_HEADER:]
        return message.copy_data(signature + row) + bytes(self.rows(batch.slice(1)))

    def shared(self, batch: pa.RecordBatch) -> bytes:
        """Return what `rows` returns, to be kept."""
        return bytes(self.rows(batch))

    def _lines(self, columns: list[Pieces], rows: int) -> message.Bytes:
        return line_messages(columns, self._options.delimiter, self._options.null, rows)

    def _text_rows(self, batch: pa.RecordBatch) -> message.Bytes:
        columns: list[Pieces] = []
        for column, type, plain in zip(batch.columns, self._types, self._plain, strict=True):
            if plain:
                columns.append(text_pieces(column, type, self._style))
            else:
                columns.append(_piece(self._escaped(text_column(column, type, self._style))))
        return self._lines(columns, batch.num_rows)

    def _rows_by_kernel(self, batch: pa.RecordBatch) -> message.Bytes:
        if self.binary:
            fields = [
                bulk_rows.as_binary(column, type) or bulk_rows.of_bytes(binary_column(column, type))
                for column, type in zip(batch.columns, self._types, strict=True)
            ]
            return bulk_rows.field_messages(b"d", fields, batch.num_rows)
        is_csv = self._options.format == "csv"
        columns = [
            self._csv_values(number, column) if is_csv else self._text_values(number, column)
            for number, column in enumerate(batch.columns)
        ]
        escapes = _NO_ESCAPES if is_csv else self._escapes
        delimiter, null = self._options.delimiter, self._options.null
        return bulk_rows.line_messages(columns, delimiter, null, escapes, batch.num_rows)

    def _text_values(self, number: int, column: pa.Array) -> Values:
        type = self._types[number]
        if self._plain[number]:
            found = bulk_rows.as_text(column, type, self._style)
            if found is not None:
                return found
        texts = text_column(column, type, self._style)
        return bulk_rows.of_bytes(texts.cast(pa.binary()), escaped=True)

    def _csv_values(self, number: int, column: pa.Array) -> Values:
        type, is_forced = self._types[number], self._forced[number]
        if self._plain[number] and not is_forced and len(self._types) > 1:
            found = bulk_rows.as_text(column, type, self._style)
            if found is not None:
                return found
        texts = self._quoted(text_column(column, type, self._style), is_forced)
        return bulk_rows.of_bytes(texts.cast(pa.binary()))

    def _escaped(self, texts: pa.Array) -> pa.Array:
        if not _has_any(texts, _ESCAPED + self._options.delimiter):
            return texts
        for plain, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, plain, escaped)
        delimiter = self._options.delimiter
        if delimiter != "\t":
            texts = pc.replace_substring(texts, delimiter, f"\\{delimiter}")
        return texts

    def _csv_rows(self, batch: pa.RecordBatch) -> message.Bytes:
        columns: list[Pieces] = []
        for column, type, plain, forced in zip(
            batch.columns, self._types, self._plain, self._forced, strict=True
        ):
            if plain and not forced and len(self._types) > 1:
                columns.append(text_pieces(column, type, self._style))
            else:
                texts = text_column(column, type, self._style)
                columns.append(_piece(self._quoted(texts, forced)))
        return self._lines(columns, batch.num_rows)

    def _quoted(self, texts: pa.Array, forced: bool) -> pa.Array:
        quote, escape = self._options.quote, self._options.escape
        if not forced and not self._may_need_quotes(texts):
            return texts
        need = pc.or_(
            pc.match_substring_regex(texts, self._needs_quotes),
            pc.equal(texts, self._options.null),
        )
        if len(self._types) == 1:
            need = pc.or_(need, pc.equal(texts, "\\."))
        if not forced and not pc.any(need).as_py():
            return texts
        inner = texts
        if escape != quote:
            inner = pc.replace_substring(inner, escape, escape * 2)
        inner = pc.replace_substring(inner, quote, escape + quote)
        quoted = pc.binary_join_element_wise(quote, inner, quote, "")
        return quoted if forced else pc.if_else(need, quoted, texts)

    def _may_need_quotes(self, texts: pa.Array) -> bool:
        options = self._options
        if len(self._types) == 1 or _has_any(texts, f"{options.delimiter}{options.quote}\n\r"):
            return True
        return bool(pc.any(pc.equal(texts, options.null)).as_py())

    def _binary_rows(self, batch: pa.RecordBatch) -> message.Bytes:
        columns = [
            [binary_column(column, type)]
            for column, type in zip(batch.columns, self._types, strict=True)
        ]
        return field_messages(b"d", columns, batch.num_rows)


def _piece(texts: pa.Array) -> Pieces:
    return [texts.cast(pa.binary())]


def _has_any(texts: pa.Array, characters: str) -> bool:
    """Whether one of some ASCII characters is in a text, perhaps in one that is masked as NULL."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return False
    places = np.frombuffer(offsets, np.int32)
    first, last = places[texts.offset], places[texts.offset + len(texts)]
    whole = bytes(memoryview(data)[first:last])
    return any(each in whole for each in map(str.encode, characters))
