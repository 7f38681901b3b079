"""Quotes of CSV files that are never closed, which Arrow closes at the end of the file.

COPY takes each quote for one that opens or closes a value, as PostgreSQL does, so their number is
enough. Where a quote within a value is a letter, as Arrow has it (`5" x`), an odd number of them is
a reason to look (`ends_in_quotes`).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from foreshore.errors import BadCopyFileFormat

T = TypeVar("T")


class QuoteCounter:
    """A stream to be read to its end, of which quotes are counted that no escape precedes."""

    closed = False

    def __init__(self, stream: pa.NativeFile, quote: str, escape: str) -> None:
        self._stream = stream
        self._quote = quote.encode()
        self._escape = b"" if escape == quote else escape.encode()
        self._is_escaped = False  # the next byte
        self._is_open = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, none at the end."""
        data: bytes = self._stream.read(None if size < 0 else size)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        if self._escape and data:
            if self._is_escaped:
                data = data[1:]
            data = data.replace(2 * self._escape, b"")
            self._is_escaped = data.endswith(self._escape)
            data = data.replace(self._escape + self._quote, b"")
        self._is_open ^= data.count(self._quote) % 2 == 1

    @property
    def is_odd(self) -> bool:
        """Whether the quotes that were read are an odd number."""
        return self._is_open

    def check(self, file: str) -> None:
        """Raise BadCopyFileFormat if a quote of the file is open."""
        if self._is_open:
            raise open_quote(file)

    def close(self) -> None:
        """Close the stream."""
        self.closed = True
        self._stream.close()


def open_quote(file: str) -> BadCopyFileFormat:
    """Return the error for a file with a quote that is not closed."""
    return BadCopyFileFormat(f'file "{file}": unterminated CSV quoted field')


_END_OF_FIELD = re.compile(rb"[,\r\n]")


def ends_in_quotes(stream: Any, size: int = 1 << 20) -> bool:
    """Whether a file ends in a field that a quote has begun; others in a field are letters."""
    is_quoted, is_begin = False, True
    data = b""
    while more := stream.read(size):
        data, at = data + more, 0
        while at < len(data):
            if is_quoted:
                at = data.find(b'"', at)
                if at < 0 or at + 1 == len(data):  # the next byte says whether it is a letter
                    break
                is_quoted = data[at + 1 : at + 2] == b'"'
                at += 2 if is_quoted else 1
            elif is_begin and data[at : at + 1] == b'"':
                is_quoted, is_begin, at = True, False, at + 1
            else:
                found = _END_OF_FIELD.search(data, at)
                is_begin = found is not None
                at = len(data) if found is None else found.end()
        data = b"" if at < 0 else data[at:]
    return is_quoted and data != b'"'


def before_the_last(items: Iterable[T], check: Callable[[], Any]) -> Iterator[T]:
    """Yield items; call `check` at their end, before the last one is yielded."""
    held: list[T] = []
    try:
        for item in items:
            yield from held
            held = [item]
    except Exception:
        yield from held
        raise
    check()
    yield from held
