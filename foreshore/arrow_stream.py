"""Arrow's IPC stream, cut out of bytes as they arrive.

    stream = ArrowStream(MAX_MESSAGE)
    stream.feed(data)
    for batch in stream.batches(): ...

A stream is a schema, then dictionaries and record batches, then an end mark. Each is a message:
0xFFFFFFFF, the length of its metadata, the metadata (a flatbuffer), and the body, whose length is
in the metadata. Arrow reads from files that it waits for; here, bytes come when they come. So this
module finds where a message ends, and Arrow reads the message. One that is not complete is kept.

The bytes may come from anybody: what they say is checked before it is used.
"""

from collections.abc import Iterator
from struct import Struct, error

import pyarrow as pa

from foreshore.arrow_errors import describe_arrow_error

MAX_MESSAGE = 1 << 30  # bytes of one message, unless the caller says otherwise
END = b"\xff\xff\xff\xff\0\0\0\0"

_CONTINUATION = 0xFFFFFFFF
_PREFIX = Struct("<II")
_OFFSET = Struct("<I")
_SIGNED = Struct("<i")
_SHORT = Struct("<H")
_LONG = Struct("<q")
_PLACE = Struct("<qq")

# The numbers of fields in tables of Arrow's format.
_HEADER, _BODY_LENGTH = 2, 3  # of Message
_DATA = 1  # of DictionaryBatch
_BUFFERS, _COMPRESSION = 2, 3  # of RecordBatch

MOST_ROWS = 1 << 24  # of one batch: rows of NULL take no bytes
MOST_BUFFERS = 1 << 16  # of one compressed batch


class StreamError(ValueError):
    """The bytes are not an Arrow stream, or more than the reader accepts."""


class ArrowStream:
    """Reads one stream; `schema` is None until it has arrived.

    `is_checked` says whether each value is checked, as those of a stranger must be.
    """

    def __init__(self, max_message: int = MAX_MESSAGE, *, is_checked: bool = True) -> None:
        self.schema: pa.Schema | None = None
        self.ended = False
        self._max_message = max_message
        self._is_checked = is_checked
        self._data = bytearray()  # clients may send it byte by byte
        self._needed = _PREFIX.size  # bytes without which no message is complete
        self._head: bytes | None = None  # the schema and the dictionaries, if there are any

    @property
    def is_ready(self) -> bool:
        """Whether `batches` may find a complete message."""
        return len(self._data) >= self._needed

    @property
    def unread_bytes(self) -> int:
        """The bytes that have been fed and not been read."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        self._data += data

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches that are complete; raises StreamError."""
        while self.is_ready or (self.ended and self._data):
            message = self._next_message()
            if message is None and self.ended:
                continue
            if message is None:
                return
            try:
                batch = self._read(message)
                if batch is not None:
                    if batch.num_rows > MOST_ROWS:
                        raise StreamError(f"an Arrow batch has more than {MOST_ROWS} rows")
                    batch.validate(full=self._is_checked)
            except StreamError:
                raise
            except (pa.ArrowException, OSError, ValueError) as wrong:
                raise StreamError(f"invalid Arrow message: {describe_arrow_error(wrong)}") from None
            if batch is not None:
                yield batch

    def _next_message(self) -> bytes | None:
        """Return the next complete message, None if there is none."""
        data = self._data
        if self.ended:
            raise StreamError("data after the end of the Arrow stream")
        mark, metadata = _PREFIX.unpack_from(data)
        if mark != _CONTINUATION:
            raise StreamError("not an Arrow stream")
        end = _PREFIX.size + metadata
        if metadata and end <= self._max_message:
            if len(data) < end:
                self._needed = end
                return None
            end += _body_length(data, _PREFIX.size, end)
        if end > self._max_message:
            raise StreamError(f"an Arrow message has more than {self._max_message} bytes")
        if len(data) < end:
            self._needed = end
            return None
        with memoryview(data) as view:
            message = bytes(view[:end])
        del data[:end]
        self._needed = _PREFIX.size
        self.ended = metadata == 0
        return None if self.ended else message

    def _read(self, message: bytes) -> pa.RecordBatch | None:
        """Return a record batch; None for a schema or a dictionary, which are kept."""
        kind = pa.ipc.read_message(message).type
        if self.schema is None:
            if kind != "schema":
                raise StreamError("an Arrow stream begins with its schema")
            schema = pa.ipc.read_schema(pa.py_buffer(message))
            _ = schema.names  # raises UnicodeDecodeError for a name that is no text
            self.schema = schema
            if _has_dictionaries(self.schema):
                self._head = message
            return None
        if kind in ("dictionary", "record batch"):
            _check_size(message, self._max_message, is_dictionary=kind == "dictionary")
        if kind == "dictionary" and self._head is not None:
            self._head += message
            if len(self._head) > self._max_message:
                raise StreamError(f"dictionaries have more than {self._max_message} bytes")
            return None
        if kind != "record batch":
            raise StreamError(f"an Arrow message of kind {kind} within the stream")
        if self._head is None:
            return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)
        with pa.ipc.open_stream(self._head + message + END) as reader:
            return reader.read_next_batch()


def _has_dictionaries(schema: pa.Schema) -> bool:
    def within(type: pa.DataType) -> bool:
        return pa.types.is_dictionary(type) or any(
            within(type.field(i).type) for i in range(type.num_fields)
        )

    return any(within(field.type) for field in schema)


def _body_length(data: bytes | bytearray, begin: int, end: int) -> int:
    """Return the length of the body of the message whose metadata is `data[begin:end]`."""
    try:
        table = begin + _OFFSET.unpack_from(data, begin)[0]
        fields = table - _SIGNED.unpack_from(data, table)[0]
        if not (begin <= table < end and begin <= fields < end):
            raise StreamError("invalid Arrow message: an offset beyond its metadata")
        place = _field(data, table, _BODY_LENGTH)
        length: int = _LONG.unpack_from(data, place)[0] if place else 0
    except error:
        raise StreamError("invalid Arrow message: its metadata is cut off") from None
    if length < 0:
        raise StreamError("invalid Arrow message: its body has a negative length")
    return length


def _field(data: bytes | bytearray, table: int, number: int) -> int:
    """Return where a field of a table is, 0 if the table does not have it."""
    fields = table - _SIGNED.unpack_from(data, table)[0]
    entry = 4 + 2 * number
    if _SHORT.unpack_from(data, fields)[0] <= entry:
        return 0
    offset: int = _SHORT.unpack_from(data, fields + entry)[0]
    return table + offset if offset else 0


def _target(data: bytes, place: int) -> int:
    """Return where the table or vector is that a field at a place refers to."""
    found: int = place + _OFFSET.unpack_from(data, place)[0]
    return found


def _check_size(message: bytes, most: int, *, is_dictionary: bool) -> None:
    """Raise StreamError if the buffers of a message have more than `most` bytes uncompressed.

    Arrow has verified the metadata, and later refuses a buffer that has another size than it says.
    """
    body = _PREFIX.size + _PREFIX.unpack_from(message)[1]
    size = 0
    try:
        batch = _target(message, _field(message, _target(message, _PREFIX.size), _HEADER))
        if is_dictionary:
            batch = _target(message, _field(message, batch, _DATA))
        if not _field(message, batch, _COMPRESSION):
            return
        buffers = _target(message, _field(message, batch, _BUFFERS))
        count = _OFFSET.unpack_from(message, buffers)[0]
        if count > MOST_BUFFERS:
            raise StreamError(f"a compressed Arrow message has more than {MOST_BUFFERS} buffers")
        for number in range(count):
            at, length = _PLACE.unpack_from(message, buffers + 4 + number * _PLACE.size)
            if length and at >= 0:
                size += max(_LONG.unpack_from(message, body + at)[0], 0)
    except error:
        raise StreamError("invalid Arrow message: its metadata is cut off") from None
    if size > most:
        raise StreamError(f"an Arrow message has more than {most} bytes when it is decompressed")
