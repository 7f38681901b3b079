"""Conversion between datums, single values of physical form, and Arrow arrays.

Datums are defined in `foreshore.types`. Arrow's Python values differ from them for dates, times,
numerics and intervals, and converting value by value is slow, so both directions are implemented
here.
"""

from array import array as packed
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.list_items import items_of
from foreshore.numbers import column_of, number, numbers_of, shown
from foreshore.types import NUMERIC_DIGITS, Datum, SqlType, arrow_type

_INTEGRAL = frozenset({"date", "time", "timestamp", "timestamptz"})
_INTEGERS = {16: ("h", pa.int16()), 32: ("i", pa.int32()), 64: ("q", pa.int64())}  # by bits
_CONTEXT = Context(prec=NUMERIC_DIGITS)


def to_array(data: Sequence[Datum], type: SqlType) -> pa.Array:
    """Return the column of `data`, in order."""
    arrow = arrow_type(type)
    if type.element is not None:
        return _to_lists(data, type, arrow)
    match type.name:
        case "numeric":
            return pa.array([None if d is None else Decimal(str(d)) for d in data], arrow)
        case "number":
            return column_of([None if d is None else number(str(d)) for d in data])
        case (
            "int2"
            | "int4"
            | "int8"
            | "uint2"
            | "uint4"
            | "date"
            | "time"
            | "timestamp"
            | "timestamptz"
        ):
            return _to_integers(data, arrow)
        case "interval":
            valid = [d is not None for d in data]
            rows: list[Any] = [(0, 0, 0) if d is None else d for d in data]
            fields = [pa.array([row[i] for row in rows], arrow.field(i).type) for i in range(3)]
            mask = None if all(valid) else pa.array([not v for v in valid])
            return pa.StructArray.from_arrays(fields, fields=list(arrow), mask=mask)
        case _:
            return pa.array(data, arrow)


def _to_integers(data: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    code, integers = _INTEGERS[arrow.bit_width]
    if None in data:
        return pa.array(data, integers).view(arrow)
    values = packed(code, data)  # faster than pa.array, which inspects each value
    return pa.Array.from_buffers(arrow, len(data), [None, pa.py_buffer(values)])


def _to_lists(data: Sequence[Datum], type: SqlType, arrow: pa.DataType) -> pa.Array:
    assert type.element is not None
    offsets: list[int | None] = []
    items: list[Datum] = []
    for datum in data:
        if datum is None:
            offsets.append(None)
        else:
            assert isinstance(datum, tuple | list), datum
            offsets.append(len(items))
            items.extend(datum)
    offsets.append(len(items))
    values = to_array(items, type.element)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=arrow)


def from_array(array: pa.Array, type: SqlType) -> list[Datum]:
    """Return the datums of a column, in order."""
    if type.element is not None:
        items = from_array(items_of(array), type.element)
        ends, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
        return [
            tuple(items[start - ends[0] : end - ends[0]]) if is_there else None
            for start, end, is_there in zip(ends, ends[1:], valid, strict=False)
        ]
    match type.name:
        case "numeric":
            return [None if v is None else numeric_datum(v, type) for v in array.to_pylist()]
        case "number":
            return [None if v is None else shown(v) for v in numbers_of(array)]
        case "date":
            return list(array.view(pa.int32()).to_pylist())
        case "time" | "timestamp" | "timestamptz":
            return list(array.view(pa.int64()).to_pylist())
        case "interval":
            return [
                None if v is None else (v["months"], v["days"], v["micros"])
                for v in array.to_pylist()
            ]
        case "int2vector" | "oidvector":
            return [None if v is None else tuple(v) for v in array.to_pylist()]
        case _:
            return list(array.to_pylist())


def numeric_datum(value: Decimal, type: SqlType) -> str:
    """Return the text of a numeric, without trailing zeros if `type` trims them."""
    text = format(value, "f")
    if type.trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


def to_scalar(datum: Datum, type: SqlType) -> pa.Scalar:
    """Return a datum as an Arrow scalar."""
    return to_array([datum], type)[0]


def repeat(datum: Datum, type: SqlType, rows: int) -> pa.Array:
    """Return a column of `rows` equal values."""
    if rows == 1:
        return to_array([datum], type)
    if datum is None or rows == 0:  # pa.repeat cannot make a list of these
        return pa.nulls(rows, arrow_type(type))
    if isinstance(datum, bool | int | float) and type.name not in _INTEGRAL:
        if type.name == "bool":
            return pa.array(np.full(rows, datum))
        if type.name != "numeric":
            arrow = arrow_type(type)
            return pa.array(np.full(rows, datum, dtype=arrow.to_pandas_dtype()), arrow)
    return pa.repeat(to_scalar(datum, type), rows)
