"""Equality: which values are one value, which are equal in SQL, and which of equal ones is shown.

Each type declares three things, an array, a record, a list or a map by those of its parts:

    identity   the physical form: what consolidation cancels, so '0' of jsonb changed to '0.0' is a
               change. All NaNs are one.
    key        equality, order and hash in SQL: `key_bytes`, and `python_key` for Python
    shown      which of the equal values of a group is shown: the least by `shown_bytes`

Every engine makes its keys by one of these three rules:

    has one form   equal values are identical: int4, text, uuid, ranges; arrays and records of such.
                   The physical form is the key, and if the type `is_plain` also the order.
    signed zeros   float4, float8 and arrays of them: the key is the value with 0.0 for -0.0, which
                   is also what a group shows
    many forms     interval, jsonb, numeric without a scale; arrays, records, lists and maps with
                   such parts, and records, lists and maps with floats

NaN equals NaN and is greater than all other floats. Text compares by bytes (collation C). Intervals
compare by length with months of 30 days, numerics by value whatever their scale, arrays element by
element with NULL greatest, and jsonb as PostgreSQL's btree does.
"""

import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import numbers
from foreshore.datum import from_array
from foreshore.expr.functions.jsontext import json_key_text, json_order_bytes
from foreshore.structured import pairs_of, read_items, values_of
from foreshore.types import (
    INT2,
    OID,
    REG_NAMES,
    SORTED_BYTES,
    STRUCTURED,
    SqlType,
    is_float,
    item_of,
    parts_of,
)

DAY = 86_400_000_000

_END, _VALUE, _NULL = b"\x00", b"\x01", b"\x02"
_WORD = 8  # bytes of an integer
_HALF = 2**63
_VECTORS = {"int2vector": INT2, "oidvector": OID}
_MANY_FORMS = frozenset({"interval", "jsonb", "number"})
# Types whose order in Arrow, Python and both engines is SQL's, if equal values are identical.
_ORDERED = frozenset(
    (
        *"bool bytea char name int8 int2 int4 text oid bpchar varchar date time timestamp".split(),
        *"timestamptz uuid xid cid mz_timestamp money unknown uint2 uint4 enum".split(),
        *REG_NAMES,
        *SORTED_BYTES,
    )
)


@cache
def has_one_form(type: SqlType) -> bool:
    """Whether equal values of the type are identical and displayed alike."""
    if type.name in _MANY_FORMS or is_float(type):
        return False
    return all(map(has_one_form, parts_of(type)))


def has_signed_zeros(type: SqlType) -> bool:
    """Whether the type is of floats or arrays of them, whose equal values differ in zeros only."""
    return is_float(type if type.element is None else type.element)


def has_many_forms(type: SqlType) -> bool:
    """Whether equal values of the type may look different in more than the sign of a zero."""
    return not has_one_form(type) and not has_signed_zeros(type)


def is_plain(type: SqlType) -> bool:
    """Whether the physical form has SQL's equality and order in Arrow, in Python and in engines."""
    return type.name in _ORDERED and (type.name not in STRUCTURED or has_one_form(type))


# --- keys -------------------------------------------------------------------------------------


def python_key(datum: Any, type: SqlType) -> Any:
    """Return a Python value with the order and equality of a datum, which is not NULL."""
    if is_plain(type):
        return datum.encode() if isinstance(datum, str) else datum
    match type.name:
        case "float4" | "float8":
            return (1, 0.0) if datum != datum else (0, datum + 0.0)
        case "interval":
            return _interval_micros(datum)
        case "numeric":
            return Decimal(datum)
        case "number":
            return numbers.order_key(numbers.number(datum))
        case _:
            return key_bytes(datum, type)


def key_bytes(datum: Any, type: SqlType) -> bytes:
    """Return bytes with the order and equality of a datum, which is not NULL."""
    element = type.element or _VECTORS.get(type.name)
    if element is not None:
        return _items_key(datum, element)
    if type.name in STRUCTURED:
        return _structured_key(datum, type)
    match type.name:
        case "jsonb":
            return json_order_bytes(datum)
        case "float4" | "float8":
            return _float_bytes(datum)
        case "interval":
            return int(_interval_micros(datum) + 2**95).to_bytes(12, "big")
        case "number" | "numeric":
            value, rest = numbers.order_key(numbers.number(datum))
            return numbers.unit_bytes(value) + rest
        case "bool":
            return b"\x01" if datum else b"\x00"
    if isinstance(datum, str | bytes):
        return datum.encode() if isinstance(datum, str) else datum
    return int(datum + _HALF).to_bytes(_WORD, "big")


def _interval_micros(datum: tuple[int, int, int]) -> int:
    months, days, micros = datum
    return (months * 30 + days) * DAY + micros


def _structured_key(datum: bytes, type: SqlType) -> bytes:
    match type.name:
        case "list":
            return _items_key(values_of(datum, type), item_of(type))
        case "shaped":
            items, end = read_items(datum, 0, item_of(type))
            return _items_key(items, item_of(type)) + datum[end:]
        case "map":
            pairs = pairs_of(datum, type).items()
            parts = [_VALUE + _ended(k.encode()) + _part_key(v, item_of(type)) for k, v in pairs]
            return b"".join(parts) + _END
    if not type.members:  # of unknown columns
        return datum
    types = (member.type for member in type.members)
    return b"".join(map(_part_key, values_of(datum, type), types))


def _items_key(items: Sequence[Any], item: SqlType) -> bytes:
    return b"".join([_part_key(each, item) for each in items]) + _END


def _part_key(datum: Any, type: SqlType) -> bytes:
    """Return the key of a value within another one, NULL last, so that it tells where it ends."""
    return _NULL if datum is None else _VALUE + _ended(key_bytes(datum, type))


def _ended(data: bytes) -> bytes:
    """Return `data` with a terminator that keeps the order, so that none is a prefix of another."""
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _float_bytes(value: float) -> bytes:
    """Return the bytes of a double: NaN last, -0.0 as 0.0."""
    if value != value:
        return b"\xff" * _WORD
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    flipped = bits ^ (2**64 - 1) if bits >> 63 else bits | _HALF
    return int(flipped).to_bytes(_WORD, "big")


# --- what is shown ----------------------------------------------------------------------------


def shown_bytes(datum: Any, type: SqlType) -> bytes:
    """Return bytes that order equal values (not NULL): a group shows the least.

    Intervals are ordered by their fields, numerics by their display scale, documents and structured
    values by their stored form, arrays by their elements, and 0.0 comes before -0.0.
    """
    if type.element is not None:
        parts = [b"" if d is None else _ended(shown_bytes(d, type.element)) for d in datum]
        return b"".join(parts)
    match type.name:
        case "interval":
            return b"".join(int(part + _HALF).to_bytes(_WORD, "big") for part in datum)
        case "number":
            return numbers.scale_of(numbers.number(datum)).to_bytes(2, "big")
        case "float4" | "float8":
            return b"\x01" if datum == 0 and str(datum)[0] == "-" else b"\x00"
        case "jsonb":
            return bytes(datum.encode())
    return bytes(datum) if type.name in STRUCTURED else b""


# --- columns ----------------------------------------------------------------------------------


def python_keys(column: pa.Array, type: SqlType) -> list[Any]:
    """Return for each row a Python value with SQL's order and equality; None for NULL."""
    if type.name == "interval":
        valid = column.is_valid().to_pylist()
        return [
            _interval_micros((m, d, u)) if v else None
            for v, m, d, u in zip(valid, *(f.to_pylist() for f in column.flatten()), strict=True)
        ]
    return [None if d is None else python_key(d, type) for d in from_array(column, type)]


def key_column(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column of bytes with SQL's order and equality."""
    if type.name == "number":
        return _number_keys(column)
    data = from_array(column, type)
    return pa.array([None if d is None else key_bytes(d, type) for d in data], pa.binary())


def equal_column(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column of strings that are identical where values are equal, in no useful order.

    Of documents that is a text, which most of them are already.
    """
    if type.name != "jsonb":
        return key_column(column, type)
    written = pc.fill_null(pc.match_substring_regex(column, r"\.|-0"), False)
    if not pc.any(written).as_py():
        return column
    texts = [None if t is None else json_key_text(t) for t in column.to_pylist()]
    return pa.array(texts, pa.string())


def shown_column(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column of bytes that order equal values."""
    data = from_array(column, type)
    return pa.array([None if d is None else shown_bytes(d, type) for d in data], pa.binary())


def with_one_zero(column: pa.Array) -> pa.Array:
    """Return a column of floats, or of arrays of them, with 0.0 for -0.0 and one kind of NaN."""
    if not pa.types.is_list(column.type):
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        values = values + values.dtype.type(0)  # so there is no -0.0
        values[np.isnan(values)] = np.nan
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return pa.array(values, column.type, mask=mask)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    values = with_one_zero(column.flatten())
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=column.type, mask=mask)


def _number_keys(column: pa.Array) -> pa.Array:
    value, rest, _ = column.flatten()
    rows = len(column)
    if not rows:
        return pa.array([], pa.binary())
    pairs = np.frombuffer(value.buffers()[1], np.uint64)[2 * value.offset :][: 2 * rows]
    units = np.empty((rows, 2), ">u8")
    units[:, 0] = pairs[1::2] ^ np.uint64(_HALF)
    units[:, 1] = pairs[::2]
    data = units.tobytes()
    fixed = pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(data)])
    found = pc.binary_join_element_wise(
        fixed.cast(pa.binary()), pc.fill_null(rest, b""), pa.scalar(b"", pa.binary())
    )
    if not column.null_count:
        return found
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary()))
