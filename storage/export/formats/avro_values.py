"""Avro of values, by column: the bytes of each value, without a loop over rows.

int, long         a varint of the number in zigzag
decimal           16 bytes, the highest first, after their number
string, bytes     the number of bytes, and the bytes
union with null   0, or 2 and the value
array             the number of items and the items, and 0
"""

from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.output_style import OutputStyle
from foreshore.storage.export.formats.json_values import json_column
from foreshore.text_columns import list_offsets, text_column
from foreshore.types import STRUCTURED, SqlType

Bytes: TypeAlias = pa.Array  # of binary values
_STYLE = OutputStyle()
_NULL, _VALUE = b"\x00", b"\x02"
_DECIMAL_BYTES = 16
_MOST_BYTES = 10  # of a varint of 64 bits
_join = partial(pc.binary_join_element_wise, null_handling="emit_null")


def record(parts: list[Bytes]) -> Bytes:
    """Return records of the values of their fields."""
    return _join(*parts, pa.scalar(b"", pa.binary()))


def optional(values: Bytes) -> Bytes:
    """Return the values of a union of null and something."""
    tagged = _join(_bytes(_VALUE), values, _bytes(b""))
    return pc.fill_null(tagged, _bytes(_NULL))


def framed(values: Bytes, schema: int) -> Bytes:
    """Return messages: a zero and the id of their schema before each value."""
    return _join(_bytes(b"\x00" + schema.to_bytes(4, "big")), values, _bytes(b""))


def avro_column(column: pa.Array, type: SqlType) -> Bytes:
    """Return the bytes of each value; NULL of NULL."""
    if type.element is not None:
        return _arrays(column, type.element)
    match type.name:
        case "bool":
            return pc.if_else(column, _bytes(b"\x01"), _bytes(b"\x00"))
        case "int2" | "int4" | "int8" | "oid" | "uint2" | "uint4" | "mz_timestamp":
            return _numbers(column.cast(pa.int64()))
        case "date":
            return _numbers(column.view(pa.int32()).cast(pa.int64()))
        case "time" | "timestamp" | "timestamptz":
            return _numbers(column.view(pa.int64()))
        case "float4" | "float8":
            return _fixed(column, column.type.bit_width // 8)
        case "numeric":
            return _decimals(column)
        case "bytea":
            return _texts(column)
    if type.name in STRUCTURED:
        return _texts(json_column(column, type))
    return _texts(text_column(column, type, _STYLE))


def _bytes(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())


def _numbers(column: pa.Array) -> Bytes:
    """Return varints of 64-bit integers."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return _where_valid(column, varints(values))


def varints(values: "np.ndarray[Any, np.dtype[np.int64]]") -> Bytes:
    """Return each number in zigzag, seven bits a byte, the lowest first."""
    left = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(left), np.int64)
    for number in range(1, _MOST_BYTES):
        sizes += left >= np.uint64(1 << (7 * number))
    offsets = np.zeros(len(left) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    places, sizes = offsets[:-1].astype(np.int64), sizes.copy()
    while len(left):
        more = sizes > 1
        out[places] = (left & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        left, places, sizes = left[more] >> np.uint64(7), places[more] + 1, sizes[more] - 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _fixed(column: pa.Array, width: int) -> Bytes:
    """Return the bytes of numbers as they are in memory, the lowest first."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return _where_valid(column, _of_width(np.ascontiguousarray(values).view(np.uint8), width))


def _of_width(data: "np.ndarray[Any, np.dtype[np.uint8]]", width: int) -> Bytes:
    count = len(data) // width
    offsets = np.arange(count + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _decimals(column: pa.Array) -> Bytes:
    """Return the unscaled values, each after its length."""
    start, end = column.offset * _DECIMAL_BYTES, (column.offset + len(column)) * _DECIMAL_BYTES
    data = np.frombuffer(column.buffers()[1], np.uint8)[start:end]
    out = np.empty((len(column), _DECIMAL_BYTES + 1), np.uint8)
    out[:, 0] = 2 * _DECIMAL_BYTES
    out[:, 1:] = data.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    return _where_valid(column, _of_width(out.reshape(-1), _DECIMAL_BYTES + 1))


def _texts(column: pa.Array) -> Bytes:
    """Return texts or bytes, each after its length."""
    values = column.cast(pa.binary())
    return _join(_numbers(pc.binary_length(values).cast(pa.int64())), values, _bytes(b""))


def _arrays(column: pa.Array, element: SqlType) -> Bytes:
    """Return arrays: a block with all items, unless there are none."""
    items = optional(avro_column(column.flatten(), element))
    lists = pa.ListArray.from_arrays(pa.array(list_offsets(column)), items)
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    counts = pc.if_else(pc.greater(lengths, 0), _numbers(lengths), _bytes(b""))
    blocks = _join(counts, pc.binary_join(lists, _bytes(b"")), _bytes(_NULL), _bytes(b""))
    return _where_valid(column, blocks)


def _where_valid(column: pa.Array, found: Bytes) -> Bytes:
    if column.null_count == 0:
        return found
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary()))
