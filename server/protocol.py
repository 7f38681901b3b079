"""The protocol's frames: bytes in, messages out, without I/O.

    reader.feed(data)
    while (message := reader.next()) is not None: ...

A `MessageReader` returns each message once it has arrived in full. Whatever length a frame states,
the reader never allocates more than what has arrived. A length out of bounds is a FramingError.
Large CopyData is returned in parts as it arrives, since its boundaries mean nothing. The first
frame has no type. Until `open` marks the client as authenticated, frames must be small.
"""

from collections import deque
from struct import Struct

from foreshore.server.message import (
    COPY_DATA,
    CopyData,
    FramingError,
    Message,
    Opening,
    parse_message,
    parse_opening,
)

STARTUP_LIMIT = 10_000
LIMIT_BEFORE_LOGIN = 65_536
IN_PARTS = 65_536  # larger CopyData is returned in parts
LIMIT = 0x3FFFFFFF  # PostgreSQL's bound on one allocation

_INT32 = Struct("!i")


class MessageReader:
    """The frames of one connection's input."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._more: deque[bytes] = deque()  # bytes that arrived after `_data`
        self._more_size = 0
        self._limit = LIMIT_BEFORE_LOGIN
        self._left = 0  # bytes yet to be returned of a CopyData in parts

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        if self._at == len(self._data) and not self._more:
            self._data = data
            self._at = 0
        else:
            self._more.append(data)
            self._more_size += len(data)

    @property
    def buffered(self) -> int:
        """How many bytes have arrived and not been returned in a message."""
        return len(self._data) - self._at + self._more_size

    def open(self) -> None:
        """Accept messages of full size from now on: the client is authenticated."""
        self._limit = LIMIT

    def opening(self) -> Opening | None:
        """Return the first message once it has arrived in full."""
        if not self._has(4):
            return None
        length = _INT32.unpack_from(self._data, self._at)[0]
        if not 8 <= length <= STARTUP_LIMIT:
            raise FramingError("invalid length of startup packet")
        if not self._has(length):
            return None
        body = self._data[self._at + 4 : self._at + length]
        self._at += length
        return parse_opening(body)

    def next(self) -> Message | None:
        """Return the next message once it has arrived in full, or a part of large CopyData."""
        if self._left:
            return self._part()
        at = self._at
        data = self._data
        if len(data) - at < 5:
            if not self._has(5):
                return None
            at, data = self._at, self._data
        length: int = _INT32.unpack_from(data, at + 1)[0]
        if not 4 <= length <= self._limit:
            raise FramingError("invalid message length")
        end = at + 1 + length
        if len(data) < end:
            if length > IN_PARTS and data[at] == COPY_DATA:
                self._at, self._left = at + 5, length - 4
                return self._part()
            if not self._has(length + 1):
                return None
            at, data = self._at, self._data
            end = at + 1 + length
        self._at = end
        return parse_message(data[at], data[at + 5 : end])

    def _part(self) -> CopyData | None:
        """Return what has arrived of a large CopyData."""
        if self._at == len(self._data):
            if not self._more:
                return None
            self._data, self._at = self._more.popleft(), 0
            self._more_size -= len(self._data)
        end = min(len(self._data), self._at + self._left)
        part = self._data[self._at : end]  # bytes that are sliced in full are not copied
        self._left -= end - self._at
        self._at = end
        return CopyData(part)

    def upcoming(self) -> int | None:
        """Return the type of the next message as soon as its first byte has arrived."""
        return self._data[self._at] if self._has(1) else None

    def _has(self, size: int) -> bool:
        """Whether `size` bytes have arrived; if so, make them contiguous."""
        if len(self._data) - self._at >= size:
            return True
        if self.buffered < size:
            return False
        self._data = b"".join((self._data[self._at :], *self._more))
        self._at = 0
        self._more.clear()
        self._more_size = 0
        return True
