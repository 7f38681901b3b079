"""Binary format, by column: convert a whole Arrow column to what PostgreSQL's send functions give.

`cells.py` does the same for single values.
"""

from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.number_text import OID_NAMES
from foreshore.numbers import numbers_of, scale_of, shown
from foreshore.numeric_columns import numeric_columns
from foreshore.output_style import OutputStyle
from foreshore.text_columns import list_offsets, text_column
from foreshore.types import BIT_TYPES, INT2, OID, RANGE_TYPES, STRUCTURED, UNSIGNED, SqlType, oid_of

EPOCH_DAYS = 10_957  # from 1970-01-01 to PostgreSQL's epoch, 2000-01-01
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000

Bytes: TypeAlias = pa.Array  # of binary

_NUMERIC = Struct("!HhHH")
NEGATIVE = 0x4000


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


def numeric_bytes(value: Decimal, scale: int | None) -> bytes:
    """Return a numeric in binary, as digits in base 10000.

    If `scale` is None, the numeric has as few fractional digits as the value needs.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    unscaled = int("".join(map(str, digits)) or "0")
    places = -exponent
    if places < 0:
        unscaled, places = unscaled * 10**-places, 0
    if scale is None:
        while places and unscaled % 10 == 0:
            unscaled //= 10
            places -= 1
        scale = places
    if places % 4:
        unscaled *= 10 ** (4 - places % 4)
    groups: list[int] = []
    weight = -1 - (places + 3) // 4
    while unscaled:
        unscaled, group = divmod(unscaled, 10_000)
        weight += 1
        if group or groups:
            groups.append(group)
    if not groups:
        return _NUMERIC.pack(0, 0, 0, scale)
    groups.reverse()
    header = _NUMERIC.pack(len(groups), weight, NEGATIVE if sign else 0, scale)
    return header + Struct(f"!{len(groups)}H").pack(*groups)


_NOT_FINITE = {"NaN": 0xC000, "Infinity": 0xD000, "-Infinity": 0xF000}


def number_bytes(value: Decimal) -> bytes:
    """Return a numeric without a declared scale in binary."""
    if value.is_finite():
        return numeric_bytes(value, scale_of(value))
    return _NUMERIC.pack(0, 0, _NOT_FINITE[shown(value)], 0)


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
    from foreshore.server.cells import binary_cell

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
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char", "unknown"), _strings),
    **dict.fromkeys(("json", "enum"), _strings),
}
