"""The protocol's frames: bytes in, messages out, without I/O.

    reader.feed(data)
    while (message := reader.next()) is not None: ...

A `MessageReader` returns each message once it has arrived in full. Whatever length a frame states,
the reader never allocates more than what has arrived. A length out of bounds is a FramingError.
Large CopyData is returned in parts as it arrives, since its boundaries mean nothing. Another long
frame is gathered, and returned as a `LongMessage` that is still to be parsed; all of these have a
bound together (`shared_bytes.py`). The first frame has no type. Until `open` marks the client as
authenticated, frames must be small.
"""

from collections import deque
from struct import Struct

from foreshore.server.message import (
    COPY_DATA,
    CopyData,
    FramingError,
    LongMessage,
    Message,
    Opening,
    Recode,
    parse_message,
    parse_opening,
)
from foreshore.server.shared_bytes import KeptBytes, SharedBytes

STARTUP_LIMIT = 10_000
LIMIT_BEFORE_LOGIN = 65_535
SMALL = 10_000  # the most bytes of messages that have no text, as in PostgreSQL
IN_PARTS = 65_536  # larger CopyData is returned in parts
LONG = 1 << 20  # a longer frame that has not arrived in full is gathered
LIMIT = 0x3FFFFFFF  # PostgreSQL's bound on one allocation
MOST = 256 << 20  # bytes of one message, unless an option says otherwise
# Of messages, and of rows of COPY, that have not arrived in full; as long as the longest message.
GATHERED = SharedBytes(all=1 << 30, always=1 << 20)
AGAIN = "Send it again later."

_INT32 = Struct("!i")
# Sync, Flush, Terminate, Close, Describe, Execute, CopyDone, CopyFail.
_SMALL = frozenset(b"SHXCDEcf")


class TooMuchGathered(FramingError):
    """The process holds as many bytes of long messages as it may."""

    sqlstate = "53200"


class MessageReader:
    """The frames of one connection's input."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._more: deque[bytes] = deque()  # bytes that arrived after `_data`
        self._more_size = 0
        self._limit = self._most = LIMIT_BEFORE_LOGIN
        self.recode: Recode | None = None  # of a client whose encoding is not UTF8
        self._left = 0  # bytes yet to come of a CopyData in parts or of a long frame
        self._long: LongMessage | None = None  # the long frame that is being gathered
        self._gathered = KeptBytes(GATHERED)  # of the last long frame, until it is done

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

    def is_done(self) -> bool:
        """Note that what was returned has been handled; return whether nothing else has arrived."""
        if self._gathered.bytes:
            self._gathered.clear()
        return len(self._data) == self._at and not self._more_size

    def take(self) -> bytes:
        """Return the bytes that have arrived and not been returned, which are no messages."""
        data = b"".join((self._data[self._at :], *self._more))
        self._data, self._at = b"", 0
        self._more.clear()
        self._more_size = 0
        return data

    def open(self, most: int = MOST) -> None:
        """Accept messages of up to `most` bytes from now on: the client is authenticated.

        CopyData may have as many as in PostgreSQL, as it is returned in parts.
        """
        self._limit, self._most = LIMIT, most

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

    def next(self) -> Message | LongMessage | None:
        """Return the next message once it has arrived in full, or a part of large CopyData."""
        if self._long is not None:
            return self._gather(self._long)
        if self._left:
            return self._part()
        if self._gathered.bytes:  # the message has been handled
            self._gathered.clear()
        at = self._at
        data = self._data
        if len(data) - at < 5:
            if not self._has(5):
                return None
            at, data = self._at, self._data
        length: int = _INT32.unpack_from(data, at + 1)[0]
        if not 4 <= length <= SMALL and not self._may_be_long(data[at], length):
            raise FramingError("invalid message length")
        end = at + 1 + length
        if len(data) < end:
            if length > IN_PARTS and data[at] == COPY_DATA:
                self._at, self._left = at + 5, length - 4
                return self._part()
            if length > LONG:
                code, self._at, self._left = data[at], at + 5, length - 4
                self._long = LongMessage(code, self._left, deque())
                return self._gather(self._long)
            if not self._has(length + 1):
                return None
            at, data = self._at, self._data
            end = at + 1 + length
        self._at = end
        return parse_message(data[at], data[at + 5 : end], self.recode)

    def close(self) -> None:
        """Note that nothing more is read."""
        self._gathered.clear()

    def _may_be_long(self, code: int, length: int) -> bool:
        """Whether a message of this type may have a length beyond SMALL."""
        if length < 4 or length > self._limit or code in _SMALL:
            return False
        return length <= self._most or code == COPY_DATA

    def _part(self) -> CopyData | None:
        """Return what has arrived of a large CopyData."""
        part = self._piece()
        return None if part is None else CopyData(part)

    def _gather(self, long: LongMessage) -> LongMessage | None:
        """Add to a long frame what has arrived of it; return it once that is all."""
        while self._left:
            piece = self._piece()
            if piece is None:
                return None
            if not self._gathered.change(self._gathered.bytes + len(piece)):
                raise TooMuchGathered(
                    "out of memory",
                    detail="Messages that have not arrived in full hold too many bytes.",
                    hint=AGAIN,
                )
            long.pieces.append(piece)
        self._long = None
        return long

    def _piece(self) -> bytes | None:
        """Return some of the bytes yet to come, if any have arrived."""
        if self._at == len(self._data):
            if not self._more:
                return None
            self._data, self._at = self._more.popleft(), 0
            self._more_size -= len(self._data)
        end = min(len(self._data), self._at + self._left)
        piece = self._data[self._at : end]  # bytes that are sliced in full are not copied
        self._left -= end - self._at
        self._at = end
        return piece

    def ahead(self) -> tuple[bytes, int] | None:
        """Return bytes that have arrived, and where the next frame begins in them; None: nothing.

        If that frame has arrived in full, it is in these bytes. None also within a long frame.
        """
        if self._left or self._long is not None:
            return None
        if self._more and self._has(5):
            self._has(1 + int(_INT32.unpack_from(self._data, self._at + 1)[0]))
        return (self._data, self._at) if self._at < len(self._data) else None

    def skip_to(self, at: int) -> None:
        """Go on at a place in what `ahead` has returned."""
        self._at = at

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
