"""Rows as JSON, by column.

Each row is an array. NULL is null; booleans, int2, int4 and finite floats are JSON's; json and
jsonb are themselves; all else, also int8 and numeric, is a string with PostgreSQL's text. Arrow
makes the text of a whole column at once, and joins the columns row by row.
"""

from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.output_style import OutputStyle
from foreshore.server.codec import CHUNK
from foreshore.text_columns import text_column
from foreshore.types import REG_NAMES, TYPES, RelationDesc, SqlType, oid_of, typmod_of

PIECE_BYTES = 1 << 20  # of rows that are encoded at once
INLINE_ROWS = 256  # up to so many rows are encoded on the event loop
INLINE_BYTES = 64 << 10
_CONTROL = 0x20  # the first character that need not be escaped
_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


def columns_of(desc: RelationDesc) -> Mapping[str, Any]:
    """Return the description of a result's columns."""
    return {
        "columns": [
            {
                "name": name,
                "type_oid": oid_of(column.type),
                "type_len": -1 if column.type.element else TYPES[column.type.name].length,
                "type_mod": typmod_of(column.type),
            }
            for name, column in zip(desc.names, desc.columns, strict=True)
        ]
    }


def shows_names(desc: RelationDesc) -> bool:
    """Return whether a column shows names in place of oids."""
    return any((each.type.element or each.type).name in REG_NAMES for each in desc.columns)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of about PIECE_BYTES, each of at least a row."""
    if not batch.num_rows:
        return
    row_bytes = batch.nbytes // batch.num_rows + 1
    step = max(1, min(CHUNK, PIECE_BYTES // row_bytes))
    for begin in range(0, batch.num_rows, step):
        yield batch.slice(begin, step)


class Piece(NamedTuple):
    """Rows as strings, each a JSON array."""

    texts: pa.Array

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.texts)

    def joined(self) -> bytes:
        """Return the rows with commas between them."""
        if not len(self.texts):
            return b""
        whole = pa.ListArray.from_arrays(pa.array([0, len(self.texts)], pa.int32()), self.texts)
        return bytes(pc.binary_join(whole, ",")[0].as_buffer())


class RowsAsJson:
    """Encodes the rows of one result, whose columns are those of `desc`.

    With `is_change` their first column is the number of copies, and a row is that and an array.
    """

    def __init__(
        self, desc: RelationDesc, style: Callable[..., OutputStyle], *, is_change: bool = False
    ) -> None:
        self._types = [column.type for column in desc.columns]
        self._style = style(names=shows_names(desc))
        self._is_change = is_change

    @property
    def form(self) -> Hashable:
        """A key that differs where the same rows are encoded differently."""
        return "json", self._is_change, self._style

    def is_one_piece(self, batch: pa.RecordBatch) -> bool:
        """Return whether all rows of a batch can be encoded at once."""
        return bool(batch.num_rows <= CHUNK and batch.nbytes <= PIECE_BYTES)

    async def parts(self, batch: pa.RecordBatch) -> AsyncIterator[Piece]:
        """Yield the rows of a batch in pieces; large ones are encoded on a thread."""
        for part in pieces(batch):
            if part.num_rows <= INLINE_ROWS and part.nbytes <= INLINE_BYTES:
                yield self.piece(part)
            else:
                yield await blocking.run(None, self.piece, part)

    def piece(self, batch: pa.RecordBatch) -> Piece:
        """Return all rows of a batch."""
        columns, types = list(batch.columns), self._types
        first: list[Any] = []
        if self._is_change:
            first = [columns[0].cast(pa.string()), ","]
            columns, types = columns[1:], types[1:]
        body: list[Any] = []
        for column, type in zip(columns, types, strict=True):
            body += [",", json_column(column, type, self._style)]
        if not body and not first:
            return Piece(pa.repeat("[]", batch.num_rows))
        values = ["[", *body[1:], "]"]
        whole = ["[", *first, *values, "]"] if self._is_change else values
        return Piece(pc.binary_join_element_wise(*whole, ""))


def json_column(column: pa.Array, type: SqlType, style: OutputStyle) -> pa.Array:
    """Return the values of a column as JSON, in strings that are never NULL."""
    match type.name:
        case "bool":
            found = pc.if_else(column, "true", "false")
        case "int2" | "int4":
            found = column.cast(pa.string())
        case "float4" | "float8":
            texts = text_column(column, type, style)
            found = pc.if_else(pc.is_finite(column), texts, quoted(texts))
        case "json" | "jsonb":
            found = _in_one_line(text_column(column, type, style))
        case _:
            found = quoted(text_column(column, type, style))
    return pc.fill_null(found, "null") if found.null_count else found


def quoted(texts: pa.Array) -> pa.Array:
    """Return texts as strings of JSON."""
    special = _special(texts)
    for code in (0x5C, 0x22):  # the backslash first, since it stands before the others
        if code in special:
            texts = pc.replace_substring(texts, chr(code), f"\\{chr(code)}")
    for code in special:
        if code < _CONTROL:
            escape = _SHORT.get(code, f"\\u{code:04x}")
            texts = pc.replace_substring(texts, chr(code), escape)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _in_one_line(texts: pa.Array) -> pa.Array:
    """Return JSON without line breaks, which are between its tokens only."""
    for code in (0x0A, 0x0D):
        if code in _special(texts):
            texts = pc.replace_substring(texts, chr(code), " ")
    return texts


def _special(texts: pa.Array) -> list[int]:
    """Return the bytes that JSON escapes and that are in a text, perhaps in one that is masked."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return []
    wide = pa.types.is_large_string(texts.type)
    places = np.frombuffer(offsets, np.int64 if wide else np.int32)
    first, last = places[texts.offset], places[texts.offset + len(texts)]
    found = np.frombuffer(data, np.uint8)[first:last]
    special = found[(found < _CONTROL) | (found == 0x22) | (found == 0x5C)]
    return [int(each) for each in np.unique(special)]
