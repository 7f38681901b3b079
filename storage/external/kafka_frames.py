"""Frames of Kafka's protocol whose answers have addresses of brokers, and how these are changed.

A request is its length, key, version and number; an answer its length and the number. The answers
to Metadata begin with the brokers, so that only their beginning is read.
"""

import struct
from collections.abc import Awaitable, Callable

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, VERSIONS = 0, 1, 3, 10, 18
READ = frozenset((METADATA, FIND_COORDINATOR, VERSIONS))  # requests whose answers are changed
# The last versions of requests whose answers have addresses nowhere else.
_LAST = {PRODUCE: 9, FETCH: 15, METADATA: 12, FIND_COORDINATOR: 2}
_FLEXIBLE_METADATA, _FLEXIBLE_VERSIONS = 9, 3
_UNSUPPORTED_VERSION = 35

PortOf = Callable[[str, int], Awaitable[tuple[str, int]]]  # another address for one of a broker


class _Frame:
    """The bytes of an answer, read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        if count < 0 or self.at > len(self.data):
            raise ValueError("an answer of Kafka is too short")
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def text(self, *, compact: bool) -> bytes | None:
        """Return a string, None for one that is NULL."""
        size = self.varint() - 1 if compact else self.number(">h")
        return None if size < 0 else self.take(size)

    def tags(self) -> None:
        """Pass over tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _text(value: str, *, compact: bool) -> bytes:
    data = value.encode()
    return (_varint(len(data) + 1) if compact else struct.pack(">h", len(data))) + data


async def changed(key: int, version: int, answer: bytes, port_of: PortOf) -> bytes:
    """Return an answer, from its number on, with other addresses; raises ValueError."""
    frame = _Frame(answer)
    frame.take(4)  # the number
    if key == VERSIONS:
        return _limited(frame, version)
    if key == METADATA:
        return await _of_metadata(frame, version, port_of)
    return await _of_coordinator(frame, version, port_of)


def _limited(frame: _Frame, version: int) -> bytes:
    """Return an answer to ApiVersions that offers no later versions than `_LAST`."""
    data = bytearray(frame.data)
    is_flexible = frame.number(">h") != _UNSUPPORTED_VERSION and version >= _FLEXIBLE_VERSIONS
    count = frame.varint() - 1 if is_flexible else frame.number(">i")
    for _ in range(count):
        key, _, last = struct.unpack(">hhh", frame.take(6))
        struct.pack_into(">h", data, frame.at - 2, min(last, _LAST.get(key, last)))
        if is_flexible:
            frame.tags()
    return bytes(data)


async def _of_metadata(frame: _Frame, version: int, port_of: PortOf) -> bytes:
    compact = version >= _FLEXIBLE_METADATA
    if compact:
        frame.tags()  # of the header
    if version >= 3:
        frame.take(4)  # how long to wait
    begins = frame.at
    count = frame.varint() - 1 if compact else frame.number(">i")
    brokers = [frame.data[:begins]]
    brokers.append(_varint(count + 1) if compact else struct.pack(">i", count))
    for _ in range(count):
        id = frame.take(4)
        host, port = await _address(frame, port_of, compact=compact)
        rest = frame.at
        if version >= 1:
            frame.text(compact=compact)  # the rack
        if compact:
            frame.tags()
        brokers += [id, _text(host, compact=compact), struct.pack(">i", port)]
        brokers.append(frame.data[rest : frame.at])
    return b"".join(brokers) + frame.data[frame.at :]


async def _of_coordinator(frame: _Frame, version: int, port_of: PortOf) -> bytes:
    if version >= 1:
        frame.take(4)  # how long to wait
    error = frame.number(">h")
    if version >= 1:
        frame.text(compact=False)  # the error's
    frame.take(4)  # the broker's id
    begins = frame.at
    if error:
        return frame.data  # there is none
    host, port = await _address(frame, port_of, compact=False)
    address = _text(host, compact=False) + struct.pack(">i", port)
    return frame.data[:begins] + address + frame.data[frame.at :]


async def _address(frame: _Frame, port_of: PortOf, *, compact: bool) -> tuple[str, int]:
    host = frame.text(compact=compact) or b""
    port = frame.number(">i")
    return await port_of(host.decode(), port)
