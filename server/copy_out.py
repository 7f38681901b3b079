"""COPY TO: format record batches as text, csv or binary, one CopyData message for each row."""

import re
from collections.abc import Callable, Hashable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import CopyOptions
from foreshore.output_style import OutputStyle
from foreshore.server import message
from foreshore.server.binary_columns import binary_column, with_lengths
from foreshore.server.codec import joined_bytes
from foreshore.server.text_columns import text_column
from foreshore.types import RelationDesc

BINARY_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
BINARY_TRAILER = b"\xff\xff"

_ESCAPES = (
    ("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"),
    ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v"),
)  # fmt: skip


# The texts of these types consist of these characters only, so that they never need quotes.
_PLAIN_CHARACTERS = frozenset("0123456789+-.: abcdefghijklmnopqrstuvwxyzCINTB")
_PLAIN_TYPES = frozenset((
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "uuid",
    "date", "time", "timestamp", "timestamptz", "interval", "mz_timestamp",
))  # fmt: skip


class CopyFormatter:
    """Formats the rows of one COPY TO STDOUT."""

    def __init__(self, desc: RelationDesc, options: CopyOptions, style: OutputStyle) -> None:
        self._types = [column.type for column in desc.columns]
        self._names = desc.names
        self._options = options
        self._style = style
        forced = options.force_quote
        self._forced = [forced == "*" or name in forced for name in desc.names]
        special = re.escape(options.delimiter)
        self._needs_quotes = f"[{special}{re.escape(options.quote)}\\n\\r]"
        self._needs_escapes = f"[\\\\\\x08\\f\\n\\r\\t\\v{special}]"
        self._signature = BINARY_SIGNATURE if options.format == "binary" else b""  # not yet sent
        plain = options.delimiter + options.quote
        null = options.null if options.format == "csv" else ""
        safe = not set(plain) & _PLAIN_CHARACTERS and (not null or set(null) - _PLAIN_CHARACTERS)
        safe = safe and (style.dates, style.intervals) == ("ISO", "postgres")
        self._plain = [bool(safe) and type.name in _PLAIN_TYPES for type in self._types]
        self._rows: Callable[[pa.RecordBatch], list[pa.Array]] = {
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
        return self._messages([self._joined(names)], 1)

    def end(self) -> bytes:
        """Return the messages that come after the rows."""
        if not self.binary:
            return b""
        signature, self._signature = self._signature, b""
        return message.copy_data(signature + BINARY_TRAILER)

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Return the messages of the rows."""
        if batch.num_rows == 0:
            return b""
        if not self._signature:
            return self._messages(self._rows(batch), batch.num_rows)
        # The first row shares a message with the signature.
        signature, self._signature = self._signature, b""
        first = message.copy_data(signature + joined_bytes(self._rows(batch.slice(0, 1))))
        return first + self.rows(batch.slice(1))

    def _messages(self, parts: list[pa.Array], rows: int) -> bytes:
        sizes = np.full(rows, 4, np.int64)
        for part in parts:
            sizes += pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False)
        header = np.zeros(rows, [("code", "S1"), ("size", ">i4")])
        header["code"] = b"d"
        header["size"] = sizes
        headers = pa.Array.from_buffers(pa.binary(5), rows, [None, pa.py_buffer(header)])
        return joined_bytes([headers.cast(pa.binary()), *parts])

    def _joined(self, columns: list[pa.Array]) -> pa.Array:
        """Return the lines: the columns joined by delimiters, each with a newline at its end."""
        if not columns:
            return pa.array([b"\n"])
        line = pc.binary_join_element_wise(*columns, self._options.delimiter)
        return pc.binary_join_element_wise(line, "\n", "").cast(pa.binary())

    def _texts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [
            text_column(column, type, self._style)
            for column, type in zip(batch.columns, self._types, strict=True)
        ]

    def _text_rows(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if not self._types:
            return [pa.array([b"\n"] * batch.num_rows)]
        columns = [
            pc.fill_null(texts if plain else self._escaped(texts), self._options.null)
            for texts, plain in zip(self._texts(batch), self._plain, strict=True)
        ]
        return [self._joined(columns)]

    def _escaped(self, texts: pa.Array) -> pa.Array:
        if not pc.any(pc.match_substring_regex(texts, self._needs_escapes)).as_py():
            return texts
        for plain, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, plain, escaped)
        delimiter = self._options.delimiter
        if delimiter != "\t":
            texts = pc.replace_substring(texts, delimiter, f"\\{delimiter}")
        return texts

    def _csv_rows(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if not self._types:
            return [pa.array([b"\n"] * batch.num_rows)]
        columns = [
            pc.fill_null(
                self._quoted(text_column(c, type, self._style), forced), self._options.null
            )
            for c, type, forced in zip(batch.columns, self._types, self._forced, strict=True)
        ]
        return [self._joined(columns)]

    def _quoted(self, texts: pa.Array, forced: bool) -> pa.Array:
        quote, escape = self._options.quote, self._options.escape
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

    def _binary_rows(self, batch: pa.RecordBatch) -> list[pa.Array]:
        width = np.full(batch.num_rows, len(self._types), ">i2")
        parts = [
            pa.Array.from_buffers(pa.binary(2), len(width), [None, pa.py_buffer(width)]).cast(
                pa.binary()
            )
        ]
        for column, type in zip(batch.columns, self._types, strict=True):
            parts += with_lengths(binary_column(column, type))
        return parts
