"""One statement and its Sync in the bytes that have arrived: where its messages begin and end.

    [Parse] Bind [Describe] Execute Sync    of the unnamed portal; Parse is of the unnamed statement
    Query

They are found without making values of them; what is not whole, long or otherwise made is left.
"""

from struct import Struct
from typing import NamedTuple

from foreshore.server import message

LONGEST = 16_384  # bytes of a message that is handled here

DESCRIBE = b"D\0\0\0\x06P\0"  # the unnamed portal
EXECUTE = b"E\0\0\0\x09\0"  # the same; the number of rows follows
EXECUTE_SIZE = len(EXECUTE) + 4
SYNC = b"S\0\0\0\x04"

_COUNT = Struct("!H").unpack_from
_INT32 = Struct("!i").unpack_from
_BIND, _PARSE = b"BP"


class Parsed(NamedTuple):
    """The text of a Parse message of the unnamed statement, and the oids of its parameters."""

    text: str
    oids: tuple[int, ...]


class Request(NamedTuple):
    """One statement in the extended protocol, up to its Sync; offsets are those in the bytes."""

    parsed: Parsed | None
    bind: int  # the body of its Bind message
    bind_end: int
    is_described: bool
    most: int  # rows to be returned; 0: all
    end: int


def end_of(data: bytes, at: int) -> int:
    """Return where the message at `at` ends; 0 if it is not there as a whole, empty, or long."""
    size = len(data)
    if size < at + 5:
        return 0
    end: int = at + 1 + _INT32(data, at + 1)[0]
    return end if at + 5 < end <= min(size, at + LONGEST) else 0


def parse_of(data: bytes, at: int, end: int) -> Parsed | None:
    """Return a Parse message, whose body is from `at` to `end`; None if it has a name."""
    text_end = data.find(b"\0", at + 1, end)
    if data[at] or text_end < 0 or text_end + 3 > end:
        return None
    count = _COUNT(data, text_end + 1)[0]
    if text_end + 3 + 4 * count != end:
        return None
    types = Struct(f"!{count}I").unpack_from(data, text_end + 3) if count else ()
    return Parsed(message.decode_text(data[at + 1 : text_end]), types)


def query_of(data: bytes, at: int) -> tuple[str, int] | None:
    """Return the text of the Query message at `at`, and where that ends."""
    end = end_of(data, at)
    if not end or data[end - 1]:
        return None
    return message.decode_text(data[at + 5 : end - 1]), end


def request_of(data: bytes, at: int) -> Request | None:
    """Return the messages from `at` to a Sync, if they are those of one statement."""
    parsed = None
    if data[at] == _PARSE:
        end = end_of(data, at)
        parsed = parse_of(data, at + 5, end) if end else None
        if parsed is None:
            return None
        at = end
    end = end_of(data, at)
    if not end or data[at] != _BIND or data[at + 5]:  # a portal with a name
        return None
    is_described = data.startswith(DESCRIBE, end)
    execute = end + len(DESCRIBE) if is_described else end
    after = execute + EXECUTE_SIZE
    if not data.startswith(EXECUTE, execute) or not data.startswith(SYNC, after):
        return None
    most = _INT32(data, execute + len(EXECUTE))[0]
    return Request(parsed, at + 5, end, is_described, most, after + len(SYNC))
