"""Binary format, by column: convert a whole Arrow column to what PostgreSQL's send functions give.

`cells.py` does the same for single values, and for the types whose columns have no faster way.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.number_text import OID_NAMES
from foreshore.numbers import numbers_of
from foreshore.numeric_columns import numeric_columns
from foreshore.output_style import OutputStyle
from foreshore.server.binary_values import EPOCH_DAYS, EPOCH_MICROS, number_bytes, numeric_bytes
from foreshore.server.cells import binary_cell
from foreshore.single_bytes import byte_of
from foreshore.text_columns import list_offsets, text_column
from foreshore.types import BIT_TYPES, INT2, OID, RANGE_TYPES, STRUCTURED, UNSIGNED, SqlType, oid_of

Bytes: TypeAlias = pa.Array  # of binary


def binary_column(column: pa.Array, type: SqlType) -> Bytes:
    """Return the column's values in binary format, as an Arrow array of binary."""
    return _COLUMNS[type.name](column, type)


def _fixed(values: "np.ndarray[Any, Any]", column: pa.Array) -> Bytes:
    """Return big-endian values of a fixed size as binary, with the NULLs of `column`."""
    fixed = pa.Array.from_buffers(
        pa.binary(values.dtype.itemsize), len(values), [None, pa.py_buffer(values)]
    ).cast(pa.binary())
    return fixed if column.null_count == 0 else pc.if_else(column.is_valid(), fixed, None)


def _numpy(column: pa.Array, zero: Any = 0) -> "np.ndarray[Any, Any]":
    if column.null_count:
        column = pc.fill_null(column, zero)
    return np.asarray(column.to_numpy(zero_copy_only=False))


_FORMS = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}


def _number(column: pa.Array, type: SqlType) -> Bytes:
    return _fixed(_numpy(column).astype(_FORMS[type.name]), column)


def _oid(column: pa.Array, type: SqlType) -> Bytes:
    return _fixed(_numpy(column).astype(">u4"), column)


def _int8(column: pa.Array, type: SqlType) -> Bytes:
    return _fixed(_numpy(column).astype(">i8"), column)


def _bool(column: pa.Array, type: SqlType) -> Bytes:
    return _fixed(_numpy(column, False).astype("u1"), column)


def _strings(column: pa.Array, type: SqlType) -> Bytes:
    return text_column(column, type, OutputStyle()).cast(pa.binary())


def _single_bytes(column: pa.Array, type: SqlType) -> Bytes:
    if pc.all(pc.equal(pc.binary_length(column), 1)).as_py() is not False:  # ASCII, and not zero
        return column.cast(pa.binary())
    rows = column.to_pylist()
    return pa.array([None if d is None else bytes((byte_of(d),)) for d in rows], pa.binary())


def _bytes(column: pa.Array, type: SqlType) -> Bytes:
    return column


def _jsonb(column: pa.Array, type: SqlType) -> Bytes:
    return pc.binary_join_element_wise(b"\x01", column.cast(pa.binary()), b"")


def _date(column: pa.Array, type: SqlType) -> Bytes:
    days = _numpy(column.view(pa.int32())).astype(np.int64)
    finite = np.abs(days) < 2**31 - 1
    return _fixed(np.where(finite, days - EPOCH_DAYS, days).astype(">i4"), column)


def _time(column: pa.Array, type: SqlType) -> Bytes:
    return _fixed(_numpy(column.view(pa.int64())).astype(">i8"), column)


def _timestamp(column: pa.Array, type: SqlType) -> Bytes:
    micros = _numpy(column.view(pa.int64()))
    finite = (micros != 2**63 - 1) & (micros != -(2**63))
    with np.errstate(over="ignore"):
        return _fixed(np.where(finite, micros - EPOCH_MICROS, micros).astype(">i8"), column)


def _interval(column: pa.Array, type: SqlType) -> Bytes:
    values = np.empty(len(column), [("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])
    for name in ("micros", "days", "months"):
        values[name] = _numpy(pc.struct_field(column, name))
    return _fixed(values, column)


def _numbers(column: pa.Array, type: SqlType) -> Bytes:
    values = numbers_of(column)
    return pa.array([None if v is None else number_bytes(v) for v in values], pa.binary())


def _numeric(column: pa.Array, type: SqlType) -> Bytes:
    scale = None if type.trim else type.scale
    short = numeric_columns(column, scale)
    if short is not None:
        return short
    values = column.to_pylist()
    return pa.array([None if v is None else numeric_bytes(v, scale) for v in values], pa.binary())


def with_lengths(values: Bytes) -> list[pa.Array]:
    """Return two columns, the values' lengths and the values; the length of NULL is -1."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
    prefix = lengths.astype(">i4")
    return [_fixed(prefix, pa.nulls(0)), values]


def _elements(column: pa.Array, element: SqlType, lower_bound: int) -> Bytes:
    flat = binary_column(column.flatten(), element)
    offsets = list_offsets(column)
    items = pc.binary_join_element_wise(
        *with_lengths(flat), b"", null_handling="replace", null_replacement=b""
    )
    bodies = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), b"")
    lengths = np.diff(offsets)
    nulls = np.zeros(len(flat) + 1, np.int64)
    np.cumsum(_numpy(flat.is_null()), out=nulls[1:])
    header = np.zeros(
        len(column), [(name, ">i4") for name in ("ndim", "nulls", "oid", "length", "lower")]
    )
    header["ndim"] = 1
    header["nulls"] = (nulls[offsets[1:]] - nulls[offsets[:-1]]) > 0
    header["oid"] = oid_of(element)
    header["length"] = lengths
    header["lower"] = lower_bound
    full = _fixed(header, pa.nulls(0))
    if (lengths == 0).any():
        none = np.array([(0, 0, oid_of(element))], ">i4").tobytes()
        full = pc.if_else(pa.array(lengths == 0), none, full)
    joined = pc.binary_join_element_wise(full, bodies, b"")
    return joined if column.null_count == 0 else pc.if_else(column.is_valid(), joined, None)


def _array(column: pa.Array, type: SqlType) -> Bytes:
    assert type.element is not None, type
    return _elements(column, type.element, 1)


def _vector(column: pa.Array, type: SqlType) -> Bytes:
    return _elements(column, INT2 if type.name == "int2vector" else OID, 0)


def _by_cells(column: pa.Array, type: SqlType) -> Bytes:
    cell, style = binary_cell(type), OutputStyle()
    values = column.to_pylist()
    return pa.array([None if v is None else cell(v, style)[4:] for v in values], pa.binary())


def _void(column: pa.Array, type: SqlType) -> Bytes:
    return pa.array([b""] * len(column), pa.binary())


_BY_CELLS = frozenset({"inet", "cidr", "timetz"})
_COLUMNS: dict[str, Callable[[pa.Array, SqlType], Bytes]] = {
    "bool": _bool,
    "bytea": _bytes,
    "uuid": _bytes,
    "macaddr": _bytes,
    "jsonb": _jsonb,
    "jsonpath": _jsonb,
    "numeric": _numeric,
    "number": _numbers,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "interval": _interval,
    "array": _array,
    **dict.fromkeys(RANGE_TYPES | STRUCTURED | UNSIGNED | BIT_TYPES | _BY_CELLS, _by_cells),
    "int2vector": _vector,
    "oidvector": _vector,
    "mz_timestamp": _int8,
    "money": _int8,
    "void": _void,
    **dict.fromkeys(_FORMS, _number),
    **dict.fromkeys(OID_NAMES, _oid),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "unknown"), _strings),
    "char": _single_bytes,
    **dict.fromkeys(("json", "enum"), _strings),
}
