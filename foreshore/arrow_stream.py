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

MAX_MESSAGE = 1 << 30  # bytes of one message, unless the caller says otherwise
END = b"\xff\xff\xff\xff\0\0\0\0"

_CONTINUATION = 0xFFFFFFFF
_PREFIX = Struct("<II")
_OFFSET = Struct("<I")
_SIGNED = Struct("<i")
_SHORT = Struct("<H")
_LONG = Struct("<q")
_BODY_LENGTH = 3  # the number of this field in the table `Message` of Arrow's format


class StreamError(ValueError):
    """The bytes are not an Arrow stream, or more than the reader accepts."""


class ArrowStream:
    """Reads one stream; `schema` is None until it has arrived."""

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self.schema: pa.Schema | None = None
        self.ended = False
        self._max_message = max_message
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = _PREFIX.size  # bytes without which no message is complete
        self._head: bytes | None = None  # the schema and the dictionaries, if there are any

    @property
    def is_ready(self) -> bool:
        """Whether `batches` may find a complete message."""
        return self._size >= self._needed

    @property
    def is_at_boundary(self) -> bool:
        """Whether all bytes belong to complete messages."""
        return self._size == 0

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        if data:
            self._parts.append(data)
            self._size += len(data)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches that are complete; raises StreamError."""
        while self.is_ready or (self.ended and self._size):
            message = self._next_message()
            if message is None and self.ended:
                continue
            if message is None:
                return
            try:
                batch = self._read(message)
                if batch is not None:
                    batch.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as wrong:
                raise StreamError(f"invalid Arrow message: {wrong}") from None
            if batch is not None:
                yield batch

    def _next_message(self) -> bytes | None:
        """Return the next complete message, None if there is none."""
        data = b"".join(self._parts)
        self._parts = [data]
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
        self._parts = [data[end:]] if end < len(data) else []
        self._size = len(data) - end
        self._needed = _PREFIX.size
        self.ended = metadata == 0
        return None if self.ended else data[:end]

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


def _body_length(data: bytes, begin: int, end: int) -> int:
    """Return the length of the body of the message whose metadata is `data[begin:end]`."""
    try:
        table = begin + _OFFSET.unpack_from(data, begin)[0]
        fields = table - _SIGNED.unpack_from(data, table)[0]
        if not (begin <= table < end and begin <= fields < end):
            raise StreamError("invalid Arrow message: an offset beyond its metadata")
        entry = 4 + 2 * _BODY_LENGTH
        if _SHORT.unpack_from(data, fields)[0] <= entry:
            return 0
        offset = _SHORT.unpack_from(data, fields + entry)[0]
        length: int = _LONG.unpack_from(data, table + offset)[0] if offset else 0
    except error:
        raise StreamError("invalid Arrow message: its metadata is cut off") from None
    if length < 0:
        raise StreamError("invalid Arrow message: its body has a negative length")
    return length
