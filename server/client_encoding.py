"""Conversion between a client's encoding and UTF-8, the only one within the server.

What arrives is converted before it is parsed, what is sent after it has been encoded:

    names and texts of messages     here, `incoming` and `outgoing`
    arguments of Bind               `argument`: all in text format, texts in binary format
    rows, data of COPY TO           `rows`, `lines`
    data of COPY FROM               `lines_decoder`

So a client with UTF8 pays nothing. Messages without text are not looked at. Characters that the
client's encoding lacks fail a statement if they are in its rows; in messages `?` stands for them.
"""

import codecs
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct

from foreshore.client_encodings import CODECS, is_multibyte
from foreshore.errors import DatabaseError, FeatureNotSupported, UntranslatableCharacter
from foreshore.server.message import Body, Bytes, bad_text
from foreshore.types import SqlType

_INT16 = Struct("!h")
_INT32 = Struct("!i")
_HEADER = Struct("!ci")
_COLUMN_SIZE = 18  # bytes of a column in RowDescription behind its name
_TEXTS = frozenset("text varchar bpchar name char enum json jsonb jsonpath unknown".split())
# Types whose values may have texts within.
_CONTAINERS = frozenset("record list map shaped array".split())
# The client's messages by what begins them: strings up to a NUL, with a letter or not before them.
_STRINGS = {0x51: 1, 0x50: 2, 0x42: 2, 0x45: 1, 0x66: 1}  # Q P B E f
_NAMED = (0x44, 0x43)  # D C: a letter, then a string


@cache
def client_encoding(name: str) -> "ClientEncoding | None":
    """Return how to convert the encoding with PostgreSQL's name; None: nothing is converted."""
    return ClientEncoding(name) if name in CODECS else None


class ClientEncoding:
    """One encoding other than UTF8."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._codec = CODECS[name]

    def to_utf8(self, data: Bytes) -> bytes:
        """Return text of the client in UTF-8; raises UntranslatableCharacter or 22021."""
        data = bytes(data)
        if data.isascii() and not is_multibyte(self.name):
            return data
        try:
            return data.decode(self._codec).encode()
        except UnicodeDecodeError as error:
            raise self.wrong(error) from None

    def wrong(self, error: UnicodeDecodeError) -> DatabaseError:
        """Return the error for bytes that are no text of the client."""
        if is_multibyte(self.name):
            error.end = max(error.end, min(error.start + 2, len(error.object)))
            return bad_text(error, self.name)
        wrong = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
        return UntranslatableCharacter(
            f'character with byte sequence {wrong} in encoding "{self.name}" has no equivalent'
            ' in encoding "UTF8"'
        )

    def from_utf8(self, data: Bytes) -> bytes:
        """Return text of the server as the client reads it; raises UntranslatableCharacter."""
        data = bytes(data)
        if data.isascii() and not is_multibyte(self.name):
            return data
        try:
            return data.decode().encode(self._codec)
        except UnicodeEncodeError as error:
            wrong = " ".join(f"0x{byte:02x}" for byte in error.object[error.start].encode())
            raise UntranslatableCharacter(
                f'character with byte sequence {wrong} in encoding "UTF8" has no equivalent'
                f' in encoding "{self.name}"'
            ) from None

    # --- messages ---------------------------------------------------------------------------

    def incoming(self, code: int, body: Body) -> Body:
        """Return the body of a client's message with its names and SQL in UTF-8."""
        if code in _NAMED:
            return bytes(body[:1]) + self.to_utf8(body[1:])
        count = _STRINGS.get(code)
        if count is None:
            return body
        at, data = 0, bytes(body)
        for _ in range(count):
            end = data.find(b"\0", at)
            if end < 0:
                return body  # parsing reports it
            at = end + 1
        return self.to_utf8(data[:at]) + data[at:]

    def outgoing(self, data: Bytes) -> Bytes:
        """Return messages of the server, whole ones, with their texts as the client reads them."""
        found: list[bytes] = []
        for code, body in _messages(data):
            match code:
                case b"T":
                    body = self._row_description(body)
                case b"E" | b"N" | b"C" | b"S":
                    body = self._shown(body)
                case b"A":
                    body = body[:4] + self._shown(body[4:])
            found += (_HEADER.pack(code, len(body) + 4), body)
        return b"".join(found)

    def _shown(self, text: bytes) -> bytes:
        if text.isascii() and not is_multibyte(self.name):
            return text
        return text.decode().encode(self._codec, errors="replace")

    def _row_description(self, body: bytes) -> bytes:
        found, at = [body[:2]], 2
        while at < len(body):
            end = body.index(b"\0", at)
            found.append(self._shown(body[at:end]))
            at = end + 1 + _COLUMN_SIZE
            found.append(body[end:at])
        return b"".join(found)

    # --- values -----------------------------------------------------------------------------

    def argument(self, value: Bytes, type: SqlType, format: int) -> Bytes:
        """Return an argument of Bind with its text in UTF-8."""
        return self.to_utf8(value) if self._is_text(type, format) else value

    def rows(self, data: Bytes, types: Sequence[SqlType], formats: Sequence[int]) -> bytes:
        """Return DataRow messages with their texts as the client reads them."""
        texts = [self._is_text(*each) for each in zip(types, formats, strict=True)]
        found: list[bytes] = []
        for code, body in _messages(data):
            fields, at = [body[:2]], 2
            for is_text in texts:
                length = _INT32.unpack_from(body, at)[0]
                end = at + 4 + max(length, 0)
                if is_text and length > 0:
                    value = self.from_utf8(body[at + 4 : end])
                    fields += (_INT32.pack(len(value)), value)
                else:
                    fields.append(body[at:end])
                at = end
            row = b"".join(fields)
            found += (_HEADER.pack(code, len(row) + 4), row)
        return b"".join(found)

    def lines(self, data: Bytes) -> bytes:
        """Return CopyData messages of text or csv as the client reads them."""
        found: list[bytes] = []
        for code, body in _messages(data):
            body = self.from_utf8(body)
            found += (_HEADER.pack(code, len(body) + 4), body)
        return b"".join(found)

    def check_binary(self, types: Sequence[SqlType]) -> None:
        """Raise FeatureNotSupported if values of COPY in binary format have texts."""
        for type in types:
            if self._is_text(type, 1):
                raise self._refused(type)

    def _is_text(self, type: SqlType, format: int) -> bool:
        """Return whether a value is text alone.

        Raises FeatureNotSupported for the binary format of a type with texts within.
        """
        if format == 0 or (type.element is None and type.name in _TEXTS):
            return True
        inner = type.element or type
        if inner.name in _CONTAINERS or (type.element is not None and inner.name in _TEXTS):
            raise self._refused(type)
        return False

    def _refused(self, type: SqlType) -> FeatureNotSupported:
        return FeatureNotSupported(
            f"binary format of type {type} is not supported with client_encoding {self.name}",
            hint="Use the text format, or client_encoding UTF8.",
        )


class LinesDecoder:
    """Converts the data of a COPY FROM, which arrive in pieces that may split characters."""

    def __init__(self, encoding: ClientEncoding) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(CODECS[encoding.name])()

    def decoded(self, data: bytes, *, final: bool = False) -> bytes:
        """Return the next data in UTF-8; raises UntranslatableCharacter or 22021."""
        try:
            return self._decoder.decode(data, final).encode()
        except UnicodeDecodeError as error:
            raise self._encoding.wrong(error) from None


def _messages(data: Bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the types and bodies of whole messages."""
    data, at = bytes(data), 0
    while at < len(data):
        code, length = _HEADER.unpack_from(data, at)
        yield code, data[at + 5 : at + 1 + length]
        at += 1 + length
