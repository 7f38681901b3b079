"""Messages of many rows by the compiled kernel of `row_kernel.py`, once it is worth loading.

A process that has sent very many rows loads the kernel on a thread of low priority; until it is
there, `messages` returns None, and Arrow makes the messages (`row_messages.py`). Columns that the
kernel does not write itself come as bytes that Arrow has made.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking, calendar
from foreshore.numeric_columns import unscaled_decimals
from foreshore.output_style import OutputStyle
from foreshore.server import message
from foreshore.types import SqlType

logger = logging.getLogger(__name__)

WORTH = 500_000  # rows that a process sends before it loads the kernel
FEWEST = 256  # rows that it is called for

Numbers = np.ndarray[Any, np.dtype[Any]]

# The kinds of `row_kernel.py`, which is not imported here.
_BYTES, _ESCAPED, _INTEGER, _NUMERIC, _TRIMMED, _DATE, _TIMESTAMP, _TIMESTAMPTZ = range(8)
_BOOL, _WORD, _GROUPS, _TRIMMED_GROUPS = range(8, 12)
_WIDEST = 64  # bytes of a value as the kernel writes it, with its length or delimiter

_MOST_DIGITS = 16  # behind the point
_YEAR_1 = calendar.days_from_civil(1, 1, 1)
_YEAR_10000 = calendar.days_from_civil(10_000, 1, 1)
_EPOCH = calendar.days_from_civil(2000, 1, 1)  # PostgreSQL's, in days
_INTEGERS = frozenset(("int2", "int4", "int8", "oid", "uint2", "uint4"))
_WIDTHS = {"bool": 1, "int2": 2, "int4": 4, "int8": 8, "oid": 4, "float4": 4, "float8": 8}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column: its kind, and words or else bytes; digits as the kind says."""

    kind: int
    column: pa.Array  # of bytes, or the one whose NULLs count
    words: Numbers | None = None
    digits: int = 0


def of_bytes(column: pa.Array, *, escaped: bool = False) -> Values:
    """Return binary values as they are, or with escapes."""
    return Values(_ESCAPED if escaped else _BYTES, column)


def as_text(column: pa.Array, type: SqlType, style: OutputStyle) -> Values | None:
    """Return what the kernel writes in text format; None if it does not write all values."""
    if style.dates != "ISO" and type.name in ("date", "timestamp", "timestamptz"):
        return None
    match type.name:
        case name if name in _INTEGERS:
            words = _integers(column)
            fits = name != "int8" or int(words.min(initial=0)) > np.iinfo(np.int64).min
            return Values(_INTEGER, column, words) if fits else None
        case "numeric":
            return _decimals(column, _TRIMMED if type.trim else _NUMERIC)
        case "bool":
            return Values(_BOOL, column, _integers(column))
        case "date":
            words = _integers(column.view(pa.int32()))
            is_in = _is_between(words, _YEAR_1, _YEAR_10000)
            return Values(_DATE, column, words) if is_in else None
        case "timestamp" | "timestamptz":
            if type.name == "timestamptz" and calendar.zone_named(style.zone) is not UTC:
                return None
            words = _integers(column.view(pa.int64()))
            if not _is_between(words, _YEAR_1 * calendar.DAY, _YEAR_10000 * calendar.DAY):
                return None
            return Values(_TIMESTAMP if type.name == "timestamp" else _TIMESTAMPTZ, column, words)
    return None


def as_binary(column: pa.Array, type: SqlType) -> Values | None:
    """Return what the kernel writes in binary format; None if it does not write all values."""
    width = _WIDTHS.get(type.name)
    if width is not None:
        if pa.types.is_floating(column.type):
            column = column.view(pa.int32() if width == 4 else pa.int64())
        return Values(_WORD, column, _integers(column), width)
    match type.name:
        case "numeric":
            return _decimals(column, _TRIMMED_GROUPS if type.trim else _GROUPS)
        case "date":
            words = _integers(column.view(pa.int32()))
            is_in = _is_between(words, _YEAR_1, _YEAR_10000)
            return Values(_WORD, column, words - _EPOCH, 4) if is_in else None
        case "timestamp" | "timestamptz":
            words = _integers(column.view(pa.int64()))
            if not _is_between(words, _YEAR_1 * calendar.DAY, _YEAR_10000 * calendar.DAY):
                return None
            return Values(_WORD, column, words - _EPOCH * calendar.DAY, 8)
    return None


def _integers(column: pa.Array) -> Numbers:
    """Return integers or booleans as words, with 0 for NULL."""
    if column.null_count:
        zero = False if pa.types.is_boolean(column.type) else 0
        column = pc.fill_null(column, pa.scalar(zero, column.type))
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _is_between(words: Numbers, low: int, high: int) -> bool:
    """Whether all values, and 0 for NULL, are from `low` to below `high`."""
    return not len(words) or bool(words.min() >= low and words.max() < high)


def _decimals(column: pa.Array, kind: int) -> Values | None:
    words = unscaled_decimals(column)
    if words is None or not 0 <= column.type.scale <= _MOST_DIGITS:
        return None
    return Values(kind, column, words, column.type.scale)


class _Kernel:
    """The kernel of this process: how many rows have been sent, and how to write more."""

    def __init__(self) -> None:
        self.write: Callable[..., int] | None = None
        self._left = WORTH
        self._lock = threading.Lock()

    def count(self, rows: int) -> None:
        """Count rows that are sent; load the kernel on a thread when they are many."""
        if self._left <= 0:
            return
        with self._lock:
            before, self._left = self._left, self._left - rows
        if before > 0 >= self._left and os.environ.get("FORESHORE_UNCOMPILED") != "1":
            blocking.background("row kernel").submit(self.load)

    def load(self) -> None:
        """Load the kernel, or compile it."""
        try:
            from foreshore.server.row_kernel import write_rows
        except (ImportError, RuntimeError) as error:  # numba is missing, or finds no cache
            logger.warning("rows are sent without a compiled kernel: %s", error)
            return
        self.write = write_rows


KERNEL = _Kernel()
_NO_ESCAPES = np.zeros(256, np.uint8)
_NO_BYTES = np.zeros(0, np.uint8)


def is_ready(rows: int) -> bool:
    """Count rows that are sent; return whether to use `field_messages` and `line_messages`."""
    KERNEL.count(rows)
    return KERNEL.write is not None and rows >= FEWEST


def escapes_of(pairs: Sequence[tuple[str, str]]) -> Numbers:
    """Return for each byte the one that is written behind a backslash in its place, or 0."""
    table = np.zeros(256, np.uint8)
    for plain, written in pairs:
        table[ord(plain)] = ord(written)
    return table


def field_messages(code: bytes, columns: Sequence[Values], rows: int) -> message.Bytes:
    """Return messages of rows: the number of columns, and each value after its length."""
    return _written(code, columns, rows, b"", b"", _NO_ESCAPES)


def line_messages(
    columns: Sequence[Values], delimiter: str, null: str, escapes: Numbers, rows: int
) -> message.Bytes:
    """Return the CopyData messages of lines: the columns with delimiters between them."""
    return _written(b"d", columns, rows, delimiter.encode(), null.encode(), escapes)


def _written(
    code: bytes,
    values: Sequence[Values],
    rows: int,
    delimiter: bytes,
    null: bytes,
    escapes: Numbers,
) -> message.Bytes:
    assert KERNEL.write is not None
    width = len(values)
    columns = np.zeros((width, 3), np.int64)
    absent = np.zeros((width, rows), np.bool_)
    in_words = [each.words for each in values if each.words is not None]
    words = np.empty((len(in_words), rows), np.int64)
    in_bytes = [each.column for each in values if each.words is None]
    offsets = np.empty((len(in_bytes), rows + 1), np.int64)
    parts: list[Numbers] = []
    word, place, length, room = 0, 0, 0, 16 + _WIDEST * len(in_words)
    for number, each in enumerate(values):
        if each.words is not None:
            words[word] = each.words
            columns[number] = each.kind, word, each.digits
            word += 1
        else:
            starts = np.frombuffer(each.column.buffers()[1], np.int32)
            starts = starts[each.column.offset : each.column.offset + rows + 1]
            first, last = int(starts[0]), int(starts[-1])
            np.add(starts, length - first, out=offsets[place], casting="unsafe")
            if last > first:
                parts.append(np.frombuffer(each.column.buffers()[2], np.uint8)[first:last])
            columns[number] = each.kind, place, 0
            place += 1
            length += last - first
        if each.column.null_count:
            absent[number] = each.column.is_null().to_numpy(zero_copy_only=False)
    data = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else _NO_BYTES
    growth = 2 if escapes.any() else 1
    room += (4 + len(null)) * width
    out = np.empty(rows * room + growth * length, np.uint8)
    separator = delimiter[0] if delimiter else 0
    marker = np.frombuffer(null, np.uint8)
    end = KERNEL.write(
        code[0], bool(delimiter), separator, marker, escapes,
        columns, words, offsets, data, absent, out,
    )  # fmt: skip
    kept: Any = out[:end]
    return memoryview(kept)
