"""Messages of rows, put together by one join of their columns in Arrow, row by row.

The join leaves room for sizes, which are known from its offsets and are written into it afterwards.
A column comes in pieces, arrays of binary values that follow each other, for example the digits
before a point and those behind it. Where a value is NULL all of its pieces are.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.server import message

Pieces: TypeAlias = Sequence[pa.Array]  # of one column: binary values, at least one
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_ROOM = pa.scalar(b"\0\0\0\0", pa.binary())
_LONG = 1 << 14  # bytes above which a copy costs more than the array that is kept
_END = pa.scalar(b"\n", pa.binary())
_WIDTH = Struct("!h")


def field_messages(code: bytes, columns: Sequence[Pieces], rows: int) -> message.Bytes:
    """Return messages of the type `code`: the number of columns, and each value after its length.

    These are DataRow messages, and those of COPY in binary. The length of NULL is -1.
    """
    head = code + b"\0\0\0\0" + _WIDTH.pack(len(columns))
    parts: list[pa.Array | pa.Scalar] = []
    for pieces in columns:
        parts += [_ROOM, *pieces]
    if not parts:
        return (code + b"\0\0\0\x06\0\0") * rows
    starts, data = _joined([pa.scalar(head, pa.binary()), *parts], rows)
    _write_sizes(data, starts)
    at = starts[:-1] + len(head)
    for pieces in columns:
        lengths = _lengths(pieces[0])
        for each in pieces[1:]:
            lengths = lengths + _lengths(each)
        _write(data, at, lengths)
        if pieces[0].null_count:
            absent = at[pieces[0].is_null().to_numpy(zero_copy_only=False)]
            for byte in range(4):
                data[absent + byte] = 0xFF
        at = at + 4 + lengths
    return _bytes(data)


def line_messages(columns: Sequence[Pieces], delimiter: str, null: str, rows: int) -> message.Bytes:
    """Return the CopyData messages of lines: the columns with delimiters between them."""
    between = pa.scalar(delimiter.encode(), pa.binary())
    parts: list[pa.Array | pa.Scalar] = [pa.scalar(b"d\0\0\0\0", pa.binary())]
    for number, (first, *others) in enumerate(columns):
        if number:
            parts.append(between)
        if first.null_count:
            first = pc.fill_null(first, pa.scalar(null.encode(), pa.binary()))
        parts += [first, *others]
    starts, data = _joined([*parts, _END], rows)
    _write_sizes(data, starts)
    return _bytes(data)


def _joined(parts: Sequence[pa.Array | pa.Scalar], rows: int) -> tuple[Numbers, Numbers]:
    """Return where each of the rows begins in the parts joined row by row, and the bytes."""
    joined = pc.binary_join_element_wise(
        *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    if isinstance(joined, pa.Scalar):  # no part is an array
        joined = pa.array([joined.as_py()] * rows, pa.binary())
    starts = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :][: rows + 1]
    data = np.frombuffer(joined.buffers()[2], np.uint8)
    if not data.flags.writeable:
        data = data.copy()
    data = data[starts[0] : starts[-1]]
    return starts - starts[0], data


def _lengths(values: pa.Array) -> Numbers:
    """Return the length of each value, 0 of NULL."""
    if values.null_count:
        lengths = pc.fill_null(pc.binary_length(values), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False))
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    return np.diff(offsets)


def _write_sizes(data: Numbers, starts: Numbers) -> None:
    """Write the size of each message behind its type, which it does not count."""
    _write(data, starts[:-1] + 1, np.diff(starts) - 1)


def _write(data: Numbers, at: Numbers, numbers: Numbers) -> None:
    """Write numbers as four bytes each, the highest first, over zeros at some places."""
    largest = int(numbers.max(initial=0))
    for byte in range(4):
        if largest >> 8 * byte:
            data[at + (3 - byte)] = (numbers >> 8 * byte).astype(np.uint8)


def _bytes(data: Numbers) -> message.Bytes:
    kept: Any = data  # NumPy's type does not say that it is a buffer
    return memoryview(kept) if len(data) > _LONG else data.tobytes()
