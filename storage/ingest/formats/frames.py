"""What is before an Avro message: the id of the schema that wrote it, as its registry has it."""

import uuid
import zlib
from collections.abc import Callable
from typing import TypeAlias

SchemaId: TypeAlias = int | str
Frame: TypeAlias = Callable[[bytes], tuple[SchemaId, bytes]]
MOST_BYTES = 64 * 2**20  # of a message that was compressed
_CONFLUENT = 5  # bytes: a zero, and the id
_GLUE = 18  # bytes: a 3, how the rest is compressed, and the id
_PLAIN, _ZLIB = 0, 5


def confluent(value: bytes) -> tuple[int, bytes]:
    """Return the id and the message; raises ValueError if they are not there."""
    if len(value) < _CONFLUENT or value[0]:
        raise ValueError("the message does not begin with a zero and the id of a schema")
    return int.from_bytes(value[1:_CONFLUENT], "big"), value[_CONFLUENT:]


def glue(value: bytes) -> tuple[str, bytes]:
    """Return the id of a version, a UUID, and the message; raises as `confluent` does."""
    if len(value) < _GLUE or value[0] != 3 or value[1] not in (_PLAIN, _ZLIB):
        raise ValueError("the message does not begin as those of AWS Glue's schema registry do")
    id, data = str(uuid.UUID(bytes=value[2:_GLUE])), value[_GLUE:]
    return id, data if value[1] == _PLAIN else _inflated(data)


def _inflated(data: bytes) -> bytes:
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"the message cannot be decompressed: {error}") from None
    if not inflate.eof:
        raise ValueError(f"the message has more than {MOST_BYTES >> 20} MiB, or is cut off")
    return found
