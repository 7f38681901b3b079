"""Records, lists and maps: the stored form of their values.

The stored form is bytes. Where equal values within are identical it has the order of the values, so
engines compare, hash and sort them as they do bytea. Each value within one is a byte, 01, and the
value as bytes that sort as it does and tell where they end; NULL is 02 and sorts last. A record is
its columns; a list is its items and 00; a map is its pairs, in the order of their keys, and 00. So
a list sorts before those that continue it.

    >>> values_of(stored((1, None), LIST_OF_INT4), LIST_OF_INT4)
    (1, None)

Numerics have no trailing zeros in this form: a value gets those of its type when it is read.
Values whose equal forms differ (intervals, documents, numbers with their scale, zeros with a sign)
keep their form, so where there are such within, `expr/equality.py` makes the key of the whole.
"""

import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from foreshore import numbers
from foreshore.sorted_numerics import numeric_bytes, numeric_end, numeric_of
from foreshore.types import (
    CONTAINERS,
    INT2,
    OID,
    STRUCTURED,
    TEXT,
    Datum,
    SqlType,
    arrow_type,
    item_of,
)

_END, _VALUE, _NULL = b"\x00", b"\x01", b"\x02"
_WORD = 8  # bytes of an integer
_HALF = 2**63
_VECTORS = {"int2vector": INT2, "oidvector": OID}


def stored(values: Iterable[Datum], type: SqlType) -> bytes:
    """Return the stored form of a record of columns, or of a list of items."""
    if type.name == "list":
        return items_bytes(values, item_of(type))
    return b"".join(map(_written, values, (member.type for member in type.members)))


def stored_map(pairs: Mapping[str, Datum], type: SqlType) -> bytes:
    """Return the stored form of a map."""
    item = item_of(type)
    parts = [
        _VALUE + _bytes(key) + _written(pairs[key], item) for key in sorted(pairs, key=str.encode)
    ]
    return b"".join(parts) + _END


def values_of(datum: bytes, type: SqlType) -> tuple[Datum, ...]:
    """Return the columns of a record, or the items of a list."""
    if type.name == "list":
        return read_items(datum, 0, item_of(type))[0]
    values: list[Datum] = []
    at = 0
    for member in type.members:
        value, at = _read(datum, at, member.type)
        values.append(value)
    return tuple(values)


def pairs_of(datum: bytes, type: SqlType) -> dict[str, Datum]:
    """Return the pairs of a map, in the order of their keys."""
    item = item_of(type)
    pairs: dict[str, Datum] = {}
    at = 0
    while datum[at : at + 1] == _VALUE:
        key, at = _read(datum, at, TEXT)
        pairs[str(key)], at = _read(datum, at, item)
    return pairs


# --- writing ----------------------------------------------------------------------------------


def _written(value: Any, type: SqlType) -> bytes:
    return _NULL if value is None else _VALUE + _value_bytes(value, type)


def items_bytes(values: Iterable[Any], item: SqlType) -> bytes:
    """Return the bytes of values in order, which tell where they end."""
    return b"".join(_written(value, item) for value in values) + _END


def _value_bytes(value: Any, type: SqlType) -> bytes:
    element = type.element or _VECTORS.get(type.name)
    if element is not None:
        return items_bytes(value, element)
    if type.name in STRUCTURED:
        return bytes(value)  # tells where it ends
    match type.name:
        case "numeric":
            return numeric_bytes(Decimal(str(value)))
        case "number":
            return _number_bytes(numbers.number(value))
        case "bool":
            return b"\x01" if value else b"\x00"
        case "float4" | "float8":
            return _float_bytes(value)
        case "interval":
            months, days, micros = value
            total = (months * 30 + days) * 86_400_000_000 + micros
            key = (total + 2**95).to_bytes(12, "big")
            return bytes(key) + b"".join((part + _HALF).to_bytes(_WORD, "big") for part in value)
    if isinstance(value, str | bytes):
        return _bytes(value)
    return int(value + _HALF).to_bytes(_WORD, "big")


def _bytes(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _float_bytes(value: float) -> bytes:
    """Return the bytes of a double: NaN last, -0.0 before 0.0."""
    if value != value:
        return b"\xff" * _WORD
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    flipped = bits ^ (2**64 - 1) if bits >> 63 else bits | _HALF
    return int(flipped).to_bytes(_WORD, "big")


# --- reading ----------------------------------------------------------------------------------


def _read(data: bytes, at: int, type: SqlType) -> tuple[Datum, int]:
    """Return the value at `at`, and where it ends."""
    if data[at : at + 1] == _NULL:
        return None, at + 1
    at += 1
    element = type.element or _VECTORS.get(type.name)
    if element is not None:
        return read_items(data, at, element)
    if type.name in STRUCTURED:
        end = _end_of(data, at, type)
        return data[at:end], end
    match type.name:
        case "numeric":
            end = numeric_end(data, at)
            return _with_scale(numeric_of(data[at:end]), type), end
        case "number":
            return _read_number(data, at)
        case "bool":
            return data[at] == 1, at + 1
        case "float4" | "float8":
            return _float_of(data[at : at + _WORD]), at + _WORD
        case "interval":
            starts = range(at + 12, at + 12 + 3 * _WORD, _WORD)
            return tuple(_integer(data, start) for start in starts), at + 12 + 3 * _WORD
    if _is_of_bytes(type):
        return _read_bytes(data, at, type)
    return _integer(data, at), at + _WORD


def _is_of_bytes(type: SqlType) -> bool:
    """Return whether data of a scalar type are strings or bytes."""
    return _physical(type) in ("string", "binary")


def _physical(type: SqlType) -> str:
    return str(arrow_type(type))


def _integer(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _WORD], "big") - _HALF


def read_items(data: bytes, at: int, item: SqlType) -> tuple[tuple[Datum, ...], int]:
    """Return the values whose bytes begin at `at`, and where they end."""
    values: list[Datum] = []
    while data[at] != _END[0]:
        value, at = _read(data, at, item)
        values.append(value)
    return tuple(values), at + 1


def _read_bytes(data: bytes, at: int, type: SqlType) -> tuple[str | bytes, int]:
    end = at
    while True:
        end = data.index(b"\x00", end)
        if data[end + 1] == 0:
            break
        end += 2
    raw = data[at:end].replace(b"\x00\xff", b"\x00")
    return (raw.decode() if _physical(type) == "string" else raw), end + 2


def _float_of(data: bytes) -> float:
    bits = int.from_bytes(data, "big")
    if bits == 2**64 - 1:
        return float("nan")
    bits = bits ^ _HALF if bits >> 63 else bits ^ (2**64 - 1)
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    return float(value)


_NOT_FINITE = {"-Infinity": b"\x00", "Infinity": b"\x02", "NaN": b"\x03"}


def _number_bytes(value: Decimal) -> bytes:
    """Return the bytes of a number: they sort by the value, then by the display scale."""
    if not value.is_finite():
        return _NOT_FINITE[numbers.shown(value)]
    return b"\x01" + numeric_bytes(value) + numbers.scale_of(value).to_bytes(2, "big")


def _read_number(data: bytes, at: int) -> tuple[str, int]:
    for text, first in _NOT_FINITE.items():
        if data[at] == first[0]:
            return text, at + 1
    end = numeric_end(data, at + 1)
    scale = int.from_bytes(data[end : end + 2], "big")
    value = numbers.with_scale(Decimal(numeric_of(data[at + 1 : end])), scale)
    return numbers.shown(value), end + 2


def _with_scale(text: str, type: SqlType) -> str:
    """Return a numeric's text with the fractional digits that its type shows."""
    if type.trim or not type.scale:
        return text
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(type.scale, '0')}"


def _end_of(data: bytes, at: int, type: SqlType) -> int:
    """Return where the structured value at `at` ends."""
    if type.name == "shaped":
        _, at = read_items(data, at, item_of(type))
        return at + 1 + 8 * data[at]
    if type.name in CONTAINERS:
        item = item_of(type)
        while data[at] != _END[0]:
            if type.name == "map":
                _, at = _read(data, at, TEXT)
            _, at = _read(data, at, item)
        return at + 1
    for member in type.members:
        _, at = _read(data, at, member.type)
    return at
