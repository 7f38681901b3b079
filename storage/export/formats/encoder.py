"""Encoders: rows as the keys or values of messages, by column."""

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.output_style import OutputStyle
from foreshore.storage.export.formats.columns import Columns
from foreshore.storage.export.formats.json_values import json_column, objects
from foreshore.text_columns import text_column

_STYLE = OutputStyle()


class Encoder(Protocol):
    """Encodes rows in one format. All arrays are of strings or of binary values."""

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return each row; NULL: its message is null."""
        ...

    def changes(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return changes of rows (ENVELOPE DEBEZIUM); NULL: there is no row before, or after."""
        ...

    def messages(self, encoded: pa.Array) -> pa.Array:
        """Return rows or changes as messages have them."""
        ...


class JsonEncoder:
    """Objects with a member for each column."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return an object for each row."""
        texts = [json_column(column, of.type) for column, of in self._columns.of(batch)]
        return objects(self._columns.names, texts)

    def changes(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return objects with the rows before and after."""
        return objects(("before", "after"), [before, after])

    def messages(self, encoded: pa.Array) -> pa.Array:
        """Return the objects."""
        return encoded


class SingleEncoder:
    """The value of one column, as text or as it is."""

    def __init__(self, columns: Columns, *, is_text: bool) -> None:
        self._columns = columns
        self._is_text = is_text

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values."""
        ((column, of),) = self._columns.of(batch)
        return text_column(column, of.type, _STYLE) if self._is_text else column

    def changes(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return nothing: binding refuses ENVELOPE DEBEZIUM."""
        raise AssertionError("changes have two rows")

    def messages(self, encoded: pa.Array) -> pa.Array:
        """Return the values."""
        return encoded


def as_bytes(encoded: pa.Array) -> list[bytes | None]:
    """Return messages as Python has them."""
    found: list[bytes | None] = encoded.cast(pa.binary()).to_pylist()
    return found


def where(condition: pa.Array, encoded: pa.Array) -> pa.Array:
    """Return what is encoded, NULL where the condition is false."""
    return pc.if_else(condition, encoded, pa.scalar(None, encoded.type))
