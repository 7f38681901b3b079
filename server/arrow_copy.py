"""COPY in the format arrow: rows as an Arrow IPC stream, which CopyData messages carry.

Where messages of the protocol begin and end says nothing about the stream. COPY TO sends the schema
first, also of no rows, and the end mark last; of SUBSCRIBE each batch has rows of one time or
progress. COPY FROM finds columns by their names and casts values as assignments do.
"""

from collections.abc import Hashable

import pyarrow as pa

from foreshore.adapter.client import CopyIn
from foreshore.adapter.files.arrow_columns import (
    WrongValue,
    for_stream,
    from_stream,
    stream_field,
)
from foreshore.arrow_stream import END, ArrowStream, StreamError
from foreshore.errors import BadCopyFileFormat, DatabaseError, FeatureNotSupported
from foreshore.server import message
from foreshore.types import RelationDesc

MAX_MESSAGE = 256 << 20  # bytes of one batch that is received
BATCH_ROWS = 65_536  # that are sent at most in one batch
PART_BYTES = 1 << 20  # of one CopyData


class ArrowFormatter:
    """Formats the rows of one COPY TO STDOUT (FORMAT arrow)."""

    binary = True
    is_plain = True  # the messages of rows depend on the rows alone
    chunk_rows = BATCH_ROWS

    def __init__(self, desc: RelationDesc, *, exact_numeric: bool = False) -> None:
        self._exact_numeric = exact_numeric
        self._types = [column.type for column in desc.columns]
        self._schema = pa.schema(
            [
                stream_field(name, column.type, exact_numeric=exact_numeric)
                for name, column in zip(desc.names, desc.columns, strict=True)
            ]
        )

    @property
    def form(self) -> Hashable:
        """A key that differs where formatters of the same columns format differently."""
        return "arrow", self._exact_numeric, tuple(self._schema.names)

    def start(self) -> bytes:
        """Return the schema."""
        return _copy_data(self._schema.serialize())

    def rows(self, batch: pa.RecordBatch) -> message.Bytes:
        """Return rows as a record batch."""
        if batch.num_rows == 0:
            return b""
        columns = [
            for_stream(field.name, column, type, exact_numeric=self._exact_numeric)
            for field, column, type in zip(self._schema, batch.columns, self._types, strict=True)
        ]
        found = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return _copy_data(found.serialize())

    def shared(self, batch: pa.RecordBatch) -> bytes:
        """Return what `rows` returns, to be kept."""
        return bytes(self.rows(batch))

    def end(self) -> bytes:
        """Return the end mark of the stream."""
        return message.copy_data(END)


def _copy_data(buffer: pa.Buffer) -> bytes:
    """Return a message of Arrow as messages of the protocol."""
    whole = memoryview(buffer)
    if len(whole) <= PART_BYTES:
        return message.copy_data(whole.tobytes())
    parts = (whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES))
    return b"".join(message.copy_data(part.tobytes()) for part in parts)


class ArrowCopyParser:
    """Parses the data of one COPY FROM STDIN (FORMAT arrow)."""

    def __init__(self, copy: CopyIn) -> None:
        self._table = copy.table
        self._desc = copy.desc
        self._schema = pa.schema([f.with_nullable(True) for f in copy.desc.arrow_schema()])
        self._stream = ArrowStream(MAX_MESSAGE)
        self._places: list[int] | None = None
        self._rows = 0

    @property
    def full(self) -> bool:
        """Whether a `take` may find rows."""
        return self._stream.is_ready

    @property
    def unparsed_bytes(self) -> int:
        """The bytes that have been fed and not been taken."""
        return self._stream.unread_bytes

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        self._stream.feed(data)

    def take(self, *, final: bool) -> list[pa.RecordBatch]:
        """Return the batches that are complete; with `final` the stream must have ended."""
        found = []
        try:
            for batch in self._stream.batches():
                found.append(self._conformed(batch))
                self._rows += batch.num_rows
            if final and (self._stream.schema is None or self._stream.unread_bytes):
                raise StreamError("unexpected EOF in COPY data")
        except StreamError as error:
            where = f"COPY {self._table}, line {self._rows + 1}"
            raise BadCopyFileFormat(str(error), where=where) from None
        return found

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the table has them."""
        if self._places is None:
            self._places = [self._place(name, batch.schema) for name in self._desc.names]
        arrays = []
        for place, name, column in zip(
            self._places, self._desc.names, self._desc.columns, strict=True
        ):
            try:
                arrays.append(from_stream(name, batch.column(place), column.type))
            except WrongValue as wrong:
                line = self._rows + wrong.row + 1
                wrong.error.where = f"COPY {self._table}, line {line}, column {name}"
                raise wrong.error from None
            except DatabaseError as error:
                error.where = f"COPY {self._table}, column {name}"
                raise
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _place(self, name: str, schema: pa.Schema) -> int:
        """Return which column of the stream a column of the table is."""
        places = schema.get_all_field_indices(name)
        if len(places) == 1:
            return int(places[0])
        if places:
            raise FeatureNotSupported(f'the Arrow stream has several columns "{name}"')
        raise BadCopyFileFormat(
            f'the Arrow stream has no column "{name}"',
            hint="Name the columns that it has: COPY table (column, ...) FROM STDIN.",
        )
