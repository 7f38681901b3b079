"""The messages of PostgreSQL's protocol 3.0: a client's messages as values, the server's as bytes.

A client's message is parsed from one whole frame, which `protocol.py` finds. Parsing must consume
the frame exactly: a count or length that points outside of it, or bytes left over, raise
FramingError, which ends the connection.
"""

import codecs
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.errors import DatabaseError, ProtocolViolation, Subject, UntranslatableCharacter

_INT16 = Struct("!h")
_INT32 = Struct("!i")
_UINT32 = Struct("!I")
_HEADER = Struct("!ci")
_INCREMENTAL = codecs.getincrementaldecoder("utf-8")
PIECE = 1 << 20  # bytes, or characters, that are coded at once


class FramingError(ProtocolViolation):
    """A violation of the protocol that ends the connection, as later bytes cannot be trusted."""


# --- from the client ------------------------------------------------------------------------


class SslRequest(msgspec.Struct, frozen=True):
    """Request TLS."""


class GssRequest(msgspec.Struct, frozen=True):
    """Request GSSAPI encryption."""


class CancelRequest(msgspec.Struct, frozen=True):
    """Cancel the statement that another connection is running."""

    pid: int
    secret: bytes


class StartupMessage(msgspec.Struct, frozen=True):
    """Start a session with protocol version 3.`minor` and these parameters."""

    minor: int
    parameters: dict[str, str]


Opening: TypeAlias = SslRequest | GssRequest | CancelRequest | StartupMessage


class Query(msgspec.Struct, frozen=True):
    """Run a text of any number of statements."""

    sql: str


class Parse(msgspec.Struct, frozen=True):
    """Prepare a statement."""

    name: str
    sql: str
    parameter_oids: tuple[int, ...]


Bytes: TypeAlias = bytes | memoryview
Body: TypeAlias = bytes | mmap  # of a frame


class Bind(msgspec.Struct, frozen=True):
    """Make a portal from a prepared statement and arguments."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: Sequence[Bytes | None]
    result_formats: tuple[int, ...]


class Describe(msgspec.Struct, frozen=True):
    """Describe the parameters and columns of a statement (S), or the columns of a portal (P)."""

    kind: OneOf["S", "P"]
    name: str


class Execute(msgspec.Struct, frozen=True):
    """Run a portal for at most `max_rows` rows; 0 means all."""

    portal: str
    max_rows: int


class Close(msgspec.Struct, frozen=True):
    """Close a statement (S) or a portal (P)."""

    kind: OneOf["S", "P"]
    name: str


class Sync(msgspec.Struct, frozen=True):
    """End the implicit transaction, and the skipping after an error."""


class Flush(msgspec.Struct, frozen=True):
    """Request the messages that the server has gathered."""


class Terminate(msgspec.Struct, frozen=True):
    """End the session."""


COPY_DATA = 0x64  # the type of CopyData


class CopyData(msgspec.Struct, frozen=True):
    """A part of COPY's data, which may begin and end anywhere."""

    data: bytes


class CopyDone(msgspec.Struct, frozen=True):
    """Mark COPY's data as complete."""


class CopyFail(msgspec.Struct, frozen=True):
    """End COPY because the client failed to send its data."""

    reason: str


class FunctionCall(msgspec.Struct, frozen=True):
    """Call a function by the protocol's old message, which is refused."""


class Password(msgspec.Struct, frozen=True):
    """Carry a password or a SASL response, depending on the state of the authentication."""

    data: bytes


class LongMessage(msgspec.Struct, frozen=True):
    """A long frame, whose `size` bytes `parse_long` parses on a thread."""

    code: int
    size: int
    pieces: deque[bytes]


class Unreadable(msgspec.Struct, frozen=True):
    """A message whose frame is valid but whose text is not UTF-8.

    With `simple` it was a Query or a function call, and ReadyForQuery follows the error.
    """

    error: DatabaseError
    simple: bool


Message: TypeAlias = (
    Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Sync
    | Flush
    | Terminate
    | CopyData
    | CopyDone
    | CopyFail
    | FunctionCall
    | Password
    | Unreadable
)

EXECUTE_TYPE = 0x45
SYNC_TYPE = 0x53
SYNC = Sync()
FLUSH = Flush()
TERMINATE = Terminate()
COPY_DONE = CopyDone()
FUNCTION_CALL = FunctionCall()


class _BadText(DatabaseError):
    sqlstate = "22021"


Recode = Callable[[int, Body], Body]  # a message's type and body to the body in UTF-8


def parse_long(long: LongMessage, recode: Recode | None = None) -> Message:
    """Return the message of a long frame, whose pieces are used up.

    They are put together in steps between which other threads can run.
    """
    body, at = mmap(-1, long.size), 0  # takes no memory before it is written to
    while long.pieces:
        piece = long.pieces.popleft()
        body[at : at + len(piece)] = piece
        at += len(piece)
    return parse_message(long.code, body, recode)


def parse_message(code: int, body: Body, recode: Recode | None = None) -> Message:
    """Return the message of type `code` with `body`, the frame without type and length.

    Long values of a Bind message are views of `body`. `recode` converts texts to UTF-8.
    """
    try:
        if recode is not None:
            body = recode(code, body)
        match code:
            case 0x42:  # B
                return _parse_bind(body)
            case 0x45:  # E, EXECUTE_TYPE
                portal, at = _text(body, 0)
                _exactly(body, at + 4)
                return Execute(portal, max(0, _INT32.unpack_from(body, at)[0]))
            case 0x53:  # S, SYNC_TYPE
                _exactly(body, 0)
                return SYNC
            case 0x51:  # Q
                sql, at = _text(body, 0)
                _exactly(body, at)
                return Query(sql)
            case 0x50:  # P
                return _parse_parse(body)
            case 0x44:  # D
                kind, name = _kind_and_name(body, "DESCRIBE")
                return Describe(kind, name)
            case 0x43:  # C
                kind, name = _kind_and_name(body, "CLOSE")
                return Close(kind, name)
            case 0x48:  # H
                _exactly(body, 0)
                return FLUSH
            case 0x64:  # d, COPY_DATA
                return CopyData(bytes(body))
            case 0x63:  # c
                _exactly(body, 0)
                return COPY_DONE
            case 0x66:  # f
                reason, at = _text(body, 0)
                _exactly(body, at)
                return CopyFail(reason)
            case 0x46:  # F
                return FUNCTION_CALL
            case 0x70:  # p
                return Password(bytes(body))
            case 0x58:  # X
                _exactly(body, 0)
                return TERMINATE
            case _:
                raise FramingError(f"invalid frontend message type {code}")
    except (_BadText, UntranslatableCharacter) as error:
        return Unreadable(error, code in (0x51, 0x46))


def _exactly(body: Body, end: int) -> None:
    if len(body) != end:
        raise FramingError(
            "insufficient data left in message" if len(body) < end else "invalid message format"
        )


def _text(body: Body, at: int) -> tuple[str, int]:
    """Return the string that begins at `at`, and the position after its terminator."""
    end = body.find(b"\0", at)
    if end < 0:
        raise FramingError("invalid string in message")
    return decode_text(memoryview(body)[at:end] if end - at > PIECE else body[at:end]), end + 1


def decode_text(value: Bytes) -> str:
    """Decode UTF-8; raises PostgreSQL's error if the bytes are not UTF-8.

    A long text is decoded in pieces, between which other threads can run.
    """
    try:
        if len(value) <= PIECE:
            return str(value, "utf-8")
        decode, text = _INCREMENTAL().decode, ""
        for at in range(0, len(value), PIECE):
            text += decode(value[at : at + PIECE])  # CPython extends it in place
        text += decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise bad_text(error) from None
    return text


def bad_text(error: UnicodeDecodeError, encoding: str = "UTF8") -> DatabaseError:
    """Return PostgreSQL's error for bytes that are no text in an encoding."""
    wrong = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
    return _BadText(f'invalid byte sequence for encoding "{encoding}": {wrong}')


def _count(body: Body, at: int) -> int:
    """Return the two-byte count at `at`; each counted entry has at least two bytes."""
    if at + 2 > len(body):
        raise FramingError("insufficient data left in message")
    count: int = _INT16.unpack_from(body, at)[0]
    if count < 0:
        count += 0x10000
    if at + 2 + 2 * count > len(body):
        raise FramingError("insufficient data left in message")
    return count


def _shorts(body: Body, at: int) -> tuple[tuple[int, ...], int]:
    count = _count(body, at)
    at += 2
    if count == 0:
        return (), at
    if count == 1:
        return _INT16.unpack_from(body, at), at + 2
    return Struct(f"!{count}h").unpack_from(body, at), at + 2 * count


def _kind_and_name(body: Body, what: str) -> tuple[OneOf["S", "P"], str]:
    name, at = _text(body, 1)
    _exactly(body, at)
    match body[0]:
        case 0x53:
            return "S", name
        case 0x50:
            return "P", name
        case kind:
            raise FramingError(f"invalid {what} message subtype {kind}")


def _parse_parse(body: Body) -> Parse:
    name, at = _text(body, 0)
    sql, at = _text(body, at)
    count = _count(body, at)
    _exactly(body, at + 2 + 4 * count)
    return Parse(name, sql, Struct(f"!{count}I").unpack_from(body, at + 2))


def _parse_bind(body: Body) -> Bind:
    portal, at = _text(body, 0)
    statement, at = _text(body, at)
    formats, at = _shorts(body, at)
    count = _count(body, at)
    at += 2
    values: list[Bytes | None] = []
    view = memoryview(body)
    end = len(body)
    for _ in range(count):
        if at + 4 > end:
            raise FramingError("insufficient data left in message")
        length = _INT32.unpack_from(body, at)[0]
        at += 4
        if length == -1:
            values.append(None)
            continue
        if length < 0 or at + length > end:
            raise FramingError("insufficient data left in message")
        values.append(view[at : at + length] if length > PIECE else body[at : at + length])
        at += length
    result_formats, at = _shorts(body, at)
    _exactly(body, at)
    return Bind(portal, statement, formats, values, result_formats)


SSL_CODE = 80877103
GSS_CODE = 80877104
CANCEL_CODE = 80877102


def parse_opening(body: bytes) -> Opening:
    """Return the request in a connection's first frame; `body` is the frame without its length."""
    code: int = _INT32.unpack_from(body)[0]
    match code:
        case 80877103:
            _exactly(body, 4)
            return SslRequest()
        case 80877104:
            _exactly(body, 4)
            return GssRequest()
        case 80877102:
            if not 12 <= len(body) <= 8 + LONGEST_KEY:
                raise FramingError("invalid length of cancel request packet")
            return CancelRequest(_INT32.unpack_from(body, 4)[0], bytes(body[8:]))
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        raise DatabaseError(
            f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2",
            sqlstate="0A000",
        )
    parameters: dict[str, str] = {}
    at = 4
    while at < len(body) and body[at] != 0:
        key, at = _text(body, at)
        parameters[key], at = _text(body, at)
    if at != len(body) - 1:
        raise FramingError("invalid startup packet layout: expected terminator as last byte")
    return StartupMessage(minor, parameters)


# --- to the client --------------------------------------------------------------------------
#
# libpq closes the connection at a message of more than 30,000 bytes, unless its type is A, D, d,
# E, N, T or V, and before the end of the login at an error of more. Messages of other types are
# bounded by what they hold. ParameterDescription of more than 7,400 parameters is longer, as in
# PostgreSQL: only clients that describe such a statement get it, and all but libpq accept it.

NEWEST_MINOR = 2  # of version 3
LONGEST_TAG = 64  # bytes, as in PostgreSQL
LONGEST_FATAL = 800  # characters of a field of an error that may precede the end of the login
LONGEST_KEY = 256  # bytes of a cancel request's key
PARSE_COMPLETE = b"1\0\0\0\x04"
BIND_COMPLETE = b"2\0\0\0\x04"
CLOSE_COMPLETE = b"3\0\0\0\x04"
NO_DATA = b"n\0\0\0\x04"
PORTAL_SUSPENDED = b"s\0\0\0\x04"
EMPTY_QUERY = b"I\0\0\0\x04"
COPY_DONE_OUT = b"c\0\0\0\x04"
AUTHENTICATION_OK = b"R\0\0\0\x08\0\0\0\0"
AUTHENTICATION_CLEARTEXT_PASSWORD = b"R\0\0\0\x08\0\0\0\x03"
REFUSE_ENCRYPTION = b"N"
ACCEPT_TLS = b"S"
TLS_HANDSHAKE = 0x16  # the first byte of a connection that begins with TLS
READY = {status: b"Z\0\0\0\x05" + status.encode() for status in "ITE"}


def frame(code: bytes, body: bytes) -> bytes:
    """Return a message of type `code`."""
    return _HEADER.pack(code, len(body) + 4) + body


def header(code: bytes, size: int) -> bytes:
    """Return the header of a message of type `code` whose body has `size` bytes."""
    return _HEADER.pack(code, size + 4)


def _text_of(text: str) -> bytes:
    return text.replace("\0", "").encode(errors="replace")


def _string(text: str) -> bytes:
    return _text_of(text) + b"\0"


@lru_cache(1024)
def command_complete(tag: str) -> bytes:
    """Return CommandComplete with a statement's tag."""
    assert len(tag) < LONGEST_TAG, tag
    return frame(b"C", tag.encode() + b"\0")


def parameter_status(name: str, value: str) -> bytes:
    """Return ParameterStatus with a parameter's value."""
    return frame(b"S", _string(name) + _string(value))


def backend_key_data(pid: int, secret: bytes) -> bytes:
    """Return BackendKeyData, whose values a cancel request must repeat."""
    return frame(b"K", _INT32.pack(pid) + secret)


def negotiate_version(minor: int, unknown_options: Sequence[str]) -> bytes:
    """Return NegotiateProtocolVersion: 3.`minor` will be spoken, and some options are unknown."""
    body = _INT32.pack((3 << 16) + minor) + _INT32.pack(len(unknown_options))
    return frame(b"v", body + b"".join(map(_string, unknown_options)))


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    """Return the request to authenticate by one of `mechanisms`."""
    return frame(b"R", _INT32.pack(10) + b"".join(map(_string, mechanisms)) + b"\0")


def authentication_sasl_continue(data: str) -> bytes:
    """Return the server's first message of a SASL exchange."""
    return frame(b"R", _INT32.pack(11) + data.encode())


def authentication_sasl_final(data: str) -> bytes:
    """Return the server's last message of a SASL exchange."""
    return frame(b"R", _INT32.pack(12) + data.encode())


def _fields(fields: Mapping[str, str | None]) -> Iterator[bytes]:
    """Yield the fields in pieces of bounded size: an error may quote a value of any length."""
    for code, text in fields.items():
        if text is None:
            continue
        yield code.encode()
        for at in range(0, len(text), PIECE):
            yield _text_of(text[at : at + PIECE])
        yield b"\0"
    yield b"\0"


_SUBJECTS: dict[Subject, str] = {
    "schema": "s",
    "table": "t",
    "column": "c",
    "datatype": "d",
    "constraint": "n",
}


def error_response(error: DatabaseError, *, fatal: bool = False) -> bytes:
    """Return ErrorResponse; the caller ends the connection after a fatal one."""
    return frame(b"E", b"".join(error_pieces(error, fatal=fatal)))


def error_pieces(error: DatabaseError, *, fatal: bool = False) -> Iterator[bytes]:
    """Yield the body of ErrorResponse in pieces, of which none takes long to make."""
    severity = "FATAL" if fatal else "ERROR"
    fields = {
        "S": severity,
        "V": severity,
        "C": error.sqlstate,
        "M": error.message,
        "D": error.detail,
        "H": error.hint,
        "P": None if error.position is None else str(error.position),
        "W": error.where,
        "R": error.routine,
        **{_SUBJECTS[subject]: name for subject, name in error.about.items()},
    }
    if fatal:
        fields = {code: text and text[:LONGEST_FATAL] for code, text in fields.items()}
    return _fields(fields)


def notice_response(
    severity: str, sqlstate: str, message: str, detail: str | None, hint: str | None
) -> bytes:
    """Return NoticeResponse."""
    fields = {
        "S": severity,
        "V": severity,
        "C": sqlstate,
        "M": message,
        "D": detail,
        "H": hint,
    }
    return frame(b"N", b"".join(_fields(fields)))


def notification_response(pid: int, channel: str, payload: str) -> bytes:
    """Return NotificationResponse."""
    return frame(b"A", _INT32.pack(pid) + _string(channel) + _string(payload))


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return ParameterDescription with the types of a statement's parameters."""
    return frame(b"t", Struct(f"!H{len(oids)}I").pack(len(oids), *oids))


_COLUMN = Struct("!IhIhih")


def row_description(columns: Sequence[tuple[str, int, int, int, int, int, int]]) -> bytes:
    """Return RowDescription.

    A column is name, table's oid, number in the table, type's oid and length, modifier, format.
    """
    parts = [_INT16.pack(len(columns))]
    for name, table, number, oid, length, modifier, format in columns:
        parts.append(_string(name))
        parts.append(_COLUMN.pack(table, number, oid, length, modifier, format))
    return frame(b"T", b"".join(parts))


def copy_response(code: bytes, format: int, columns: int) -> bytes:
    """Return CopyInResponse (`G`) or CopyOutResponse (`H`) for so many columns."""
    return frame(code, Struct(f"!bh{columns}h").pack(format, columns, *[format] * columns))


def copy_data(data: bytes) -> bytes:
    """Return CopyData."""
    return frame(b"d", data)
