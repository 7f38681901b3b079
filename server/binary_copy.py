"""COPY FROM in the binary format: a signature, tuples of sized values, a trailer."""

from struct import Struct, error

import pyarrow as pa

from foreshore.adapter.client import CopyIn
from foreshore.datum import to_array
from foreshore.errors import BadCopyFileFormat, DatabaseError, DataError
from foreshore.server.binary_tuples import columns_of, tuples_at
from foreshore.server.parameters import decode_binary
from foreshore.types import Datum

PIECE = 1024 * 1024
WINDOW = (
    2 * PIECE
)  # that is looked at at once, which takes 30 times as much memory, at worst 75 times
MOST_BYTES = 0x3FFFFFFE  # of a value
SIGNATURE = b"PGCOPY\n\xff\r\n\0"

_INT16 = Struct("!h")
_INT32 = Struct("!i")


class BinaryCopyParser:
    """Parses the data of one COPY FROM STDIN (FORMAT binary)."""

    def __init__(self, copy: CopyIn) -> None:
        self._table = copy.table
        self._names = copy.desc.names
        self._types = [column.type for column in copy.desc.columns]
        schema = copy.desc.arrow_schema()
        self._schema = pa.schema([field.with_nullable(True) for field in schema])
        self._data = bytearray()
        self._enough = PIECE  # bytes for a `take`; more where a tuple is longer
        self._begun = False
        self._line = 0
        self._field = 0  # of the tuple that is being read
        self.ended = False

    @property
    def full(self) -> bool:
        """Whether enough data has been fed for a `take` to pay."""
        return len(self._data) >= self._enough

    @property
    def unparsed_bytes(self) -> int:
        """The bytes that have been fed and not been taken."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        if self.ended and data:
            raise BadCopyFileFormat("received copy data after EOF marker", where=self._place())
        self._data += data

    def take(self, *, final: bool) -> pa.RecordBatch | None:
        """Return the complete tuples fed so far."""
        data = bytes(self._data)
        at = 0
        columns: list[list[Datum]] = [[] for _ in self._types]
        many: list[pa.Array] | None = None
        try:
            if not self._begun:
                at = self._header(data)
                self._begun = True
            if not self.ended and self._types:
                many, at = self._many(data, at)
            while not self.ended:
                at = self._tuple(data, at, columns)
        except (error, IndexError):
            # The data ends within a tuple, or without a trailer: the rest has yet to arrive.
            if final and not self._begun:
                raise _cut_header(len(data)) from None
            if final and len(data) - at >= _INT16.size:
                raise BadCopyFileFormat(
                    "unexpected EOF in COPY data", where=self._place(self._field)
                ) from None
        self._data = bytearray(data[at:])
        self._enough = max(PIECE, 2 * len(self._data))  # so that each byte is looked at a few times
        if self.ended and self._data:
            self.feed(b"x")
        if not columns or not (columns[0] or many):
            return None
        arrays = [to_array(c, type) for c, type in zip(columns, self._types, strict=True)]
        if many is not None:
            arrays = [pa.concat_arrays(pair) for pair in zip(many, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _many(self, data: bytes, at: int) -> tuple[list[pa.Array] | None, int]:
        """Return the columns of the tuples from `at` on that hold what is expected, and their end.

        The rest, or all of them, is left to `_tuple`.
        """
        parts: list[list[pa.Array]] = []
        while True:
            window = data[at : at + WINDOW]
            tuples = tuples_at(window, 0, len(self._types))
            found = columns_of(window, tuples, self._types, decode_binary) if len(tuples) else None
            if found is None:
                break
            parts.append(found)
            self._line += len(tuples)
            at += tuples.end
        return [pa.concat_arrays(each) for each in zip(*parts, strict=True)] or None, at

    def _header(self, data: bytes) -> int:
        if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
            raise BadCopyFileFormat("COPY file signature not recognized")
        flags = _INT32.unpack_from(data, 11)[0]
        if flags & 0x10000:
            raise BadCopyFileFormat("invalid COPY file header (WITH OIDS)")
        if flags & 0xFFFF0000:
            raise BadCopyFileFormat("unrecognized critical flags in COPY file header")
        extension = _INT32.unpack_from(data, 15)[0]
        if extension < 0:
            raise BadCopyFileFormat("invalid COPY file header (missing length)")
        if len(data) < 19 + extension:
            raise IndexError
        return 19 + int(extension)

    def _tuple(self, data: bytes, at: int, columns: list[list[Datum]]) -> int:
        """Append the tuple at `at` to `columns`, or none of it; return where it ends."""
        count = _INT16.unpack_from(data, at)[0]
        at += 2
        if count == -1:
            self.ended = True
            return at
        if count != len(self._types):
            raise BadCopyFileFormat(
                f"row field count is {count}, expected {len(self._types)}", where=self._place()
            )
        spans: list[tuple[int, int]] = []
        for self._field in range(count):
            length = _INT32.unpack_from(data, at)[0]
            at += 4
            self._check_length(length)
            spans.append((at, length))
            at += max(0, length)
            if at > len(data):
                raise IndexError
        where = self._place()
        self._line += 1
        row = zip(spans, self._types, self._names, columns, strict=True)
        for (start, length), type, name, column in row:
            if length < 0:
                column.append(None)
                continue
            try:
                column.append(decode_binary(data[start : start + length], type))
            except DatabaseError as wrong:
                wrong.where = f"{where}, column {name}"
                raise
        return at

    def _check_length(self, length: int) -> None:
        """Raise DatabaseError if a value cannot have so many bytes."""
        if length < -1:
            raise BadCopyFileFormat("invalid field size", where=self._place(self._field))
        if length > MOST_BYTES:
            raise DataError(
                "out of memory",
                sqlstate="54000",
                detail=f"Cannot enlarge string buffer containing 0 bytes by {length} more bytes.",
                where=self._place(self._field),
            )

    def _place(self, field: int | None = None) -> str:
        """Return where in the data the parser is, as errors name it."""
        column = "" if field is None else f", column {self._names[field]}"
        return f"COPY {self._table}, line {self._line + 1}{column}"


def _cut_header(size: int) -> BadCopyFileFormat:
    """Return the error for a header that ends after so many bytes."""
    if size < len(SIGNATURE):
        return BadCopyFileFormat("COPY file signature not recognized")
    missing = ("missing flags", "missing length", "wrong length")[
        min((size - len(SIGNATURE)) // 4, 2)
    ]
    return BadCopyFileFormat(f"invalid COPY file header ({missing})")
