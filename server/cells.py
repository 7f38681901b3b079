"""Cells: encode one value of a DataRow, preceded by its length, as the column encoders do.

Results of a few rows use these. There a call into Arrow for each column costs more than the values.
"""

from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any, TypeAlias

from foreshore import calendar
from foreshore.bits import padded_bytes
from foreshore.errors import UndefinedFunction
from foreshore.float_text import format_float8
from foreshore.network import address_of
from foreshore.number_text import OID_NAMES
from foreshore.numbers import number
from foreshore.output_style import OutputStyle
from foreshore.ranges import (
    BOUNDS,
    MULTIRANGES,
    Range,
    lower_bound,
    range_of,
    ranges_of,
    upper_bound,
)
from foreshore.server.binary_values import EPOCH_DAYS, EPOCH_MICROS, number_bytes, numeric_bytes
from foreshore.shaped import shaped_of
from foreshore.single_bytes import byte_of
from foreshore.structured import values_of
from foreshore.text import format_text
from foreshore.types import BIT_TYPES, INT2, OID, RANGE_TYPES, SqlType, item_of, oid_of
from foreshore.zoned_times import zoned_time_of

Cell: TypeAlias = Callable[[Any, OutputStyle], bytes]  # of a datum that is not None

_LENGTH = Struct("!i")
_OID = Struct("!I")
_ZONED_TIME = Struct("!iqi").pack
_NULL = b"\xff\xff\xff\xff"
_INTEGER_NAMES = frozenset(("int2", "int4", "int8", "oid", "mz_timestamp", "uint2", "uint4"))
_STRING_NAMES = ("text", "varchar", "name", "char", "unknown", "void", "json", "jsonb", "jsonpath")


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def text_cell(type: SqlType) -> Cell:
    """Return the function that encodes a value of `type` as text."""
    name = type.name
    if name in _INTEGER_NAMES:
        return _text_integer
    if name == "numeric" and not type.trim:
        return _text_decimal
    if name in _STRING_NAMES:
        return _text_string
    if name == "bool":
        return _text_bool
    if name == "float8":
        return _text_float8

    def cell(value: Any, style: OutputStyle) -> bytes:
        return _sized(format_text(value, type, style).encode())

    return cell


def _text_integer(value: int, style: OutputStyle) -> bytes:
    data = str(value).encode()
    return _LENGTH.pack(len(data)) + data


def _text_decimal(value: Decimal | str, style: OutputStyle) -> bytes:
    # A datum is a text with the scale of its type, what Arrow returns is a decimal.
    data = (value if isinstance(value, str) else format(value, "f")).encode()
    return _LENGTH.pack(len(data)) + data


def _text_string(value: str, style: OutputStyle) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def _text_bool(value: bool, style: OutputStyle) -> bytes:
    return b"\0\0\0\x01t" if value else b"\0\0\0\x01f"


def _text_float8(value: float, style: OutputStyle) -> bytes:
    return _sized(format_float8(value, style.float_digits).encode())


def binary_cell(type: SqlType) -> Cell:
    """Return the function that encodes a value of `type` in binary."""
    cell = _BINARY.get(type.name)
    if cell is not None:
        return cell
    match type.name:
        case "number":
            return lambda value, style: _sized(number_bytes(number(value)))
        case "numeric":
            scale = None if type.trim else type.scale
            return lambda value, style: _sized(numeric_bytes(Decimal(value), scale))
        case "bpchar":
            width = type.length or 0
            return lambda value, style: _sized(value.ljust(width).encode())
        case "enum":
            return lambda value, style: _sized(format_text(value, type, style).encode())
        case "inet" | "cidr":
            is_cidr = type.name == "cidr"
            return lambda value, style: _sized(_address(value, is_cidr=is_cidr))
        case name if name in RANGE_TYPES:
            return _range_cell(name)
        case "record":
            return _record_cell(type)
        case "shaped":
            return _shaped_cell(type)
        case "array":
            assert type.element is not None, type
            return _array_cell(type.element, 1)
        case "int2vector":
            return _array_cell(INT2, 0)
        case "oidvector":
            return _array_cell(OID, 0)
        case _:
            raise UndefinedFunction(f"no binary output function available for type {type}")


def _bits(value: bytes, style: OutputStyle) -> bytes:
    length, data = padded_bytes(value)
    return _sized(_LENGTH.pack(length) + data)


def _address(value: bytes, *, is_cidr: bool) -> bytes:
    address = address_of(value)
    octets = address.octets
    family = 2 if address.family == 4 else 3
    return bytes([family, address.bits, is_cidr, len(octets)]) + octets


_EMPTY, _LOWER_INC, _UPPER_INC, _LOWER_INF, _UPPER_INF = 1, 2, 4, 8, 16


def _range_cell(name: str) -> Cell:
    """Return the function that encodes ranges, or multiranges, in binary."""
    kind = MULTIRANGES.get(name, name)
    element = binary_cell(BOUNDS[kind])

    def one(range: Range | None, style: OutputStyle) -> bytes:
        if range is None:
            return _sized(bytes([_EMPTY]))
        low, high = lower_bound(range, kind), upper_bound(range, kind)
        flags = _LOWER_INF if low is None else _LOWER_INC * low.inclusive
        flags |= _UPPER_INF if high is None else _UPPER_INC * high.inclusive
        bounds = (element(bound.value, style) for bound in (low, high) if bound is not None)
        return _sized(bytes([flags]) + b"".join(bounds))

    def several(value: Any, style: OutputStyle) -> bytes:
        ranges = ranges_of(value, kind)
        parts = b"".join(one(range, style) for range in ranges)
        return _sized(_LENGTH.pack(len(ranges)) + parts)

    if kind != name:
        return several
    return lambda value, style: one(range_of(value, kind), style)


def _array_cell(element: SqlType, lower_bound: int) -> Cell:
    inner = binary_cell(element)
    oid = oid_of(element)
    empty = _sized(Struct("!iiI").pack(0, 0, oid))
    header = Struct("!iiIii")

    def cell(value: Any, style: OutputStyle) -> bytes:
        if not value:
            return empty
        items = [_NULL if item is None else inner(item, style) for item in value]
        has_null = any(item is None for item in value)
        return _sized(header.pack(1, has_null, oid, len(items), lower_bound) + b"".join(items))

    return cell


def _record_cell(type: SqlType) -> Cell:
    """Return the function that encodes records: for each column its type, length and value."""
    cells = [(oid_of(member.type), binary_cell(member.type)) for member in type.members]
    count = _LENGTH.pack(len(cells))

    def cell(value: Any, style: OutputStyle) -> bytes:
        columns = zip(cells, values_of(value, type), strict=True)
        parts = [
            _OID.pack(oid) + (_NULL if column is None else inner(column, style))
            for (oid, inner), column in columns
        ]
        return _sized(count + b"".join(parts))

    return cell


def _shaped_cell(type: SqlType) -> Cell:
    """Return the function that encodes arrays of any shape."""
    element = item_of(type)
    inner, oid = binary_cell(element), oid_of(element)

    def cell(value: Any, style: OutputStyle) -> bytes:
        array = shaped_of(value, type)
        header = Struct("!iiI").pack(array.dimensions, None in array.items, oid)
        bounds = b"".join(
            Struct("!ii").pack(length, low)
            for length, low in zip(array.lengths, array.lowest, strict=True)
        )
        items = [_NULL if item is None else inner(item, style) for item in array.items]
        return _sized(header + bounds + b"".join(items))

    return cell


def _packer(form: str) -> Cell:
    pack = Struct(f"!i{form}").pack
    size = Struct(f"!{form}").size
    return lambda value, style: pack(size, value)


_INT4 = Struct("!ii").pack
_INT8 = Struct("!iq").pack
_INTERVAL = Struct("!iqii").pack


def _date(value: int, style: OutputStyle) -> bytes:
    finite = calendar.DATE_MINUS_INFINITY < value < calendar.DATE_INFINITY
    return _INT4(4, value - EPOCH_DAYS if finite else value)


def _timestamp(value: int, style: OutputStyle) -> bytes:
    finite = calendar.TIMESTAMP_MINUS_INFINITY < value < calendar.TIMESTAMP_INFINITY
    return _INT8(8, value - EPOCH_MICROS if finite else value)


def _interval(value: tuple[int, int, int], style: OutputStyle) -> bytes:
    months, days, micros = value
    return _INTERVAL(16, micros, days, months)


def _zoned_time(value: bytes, style: OutputStyle) -> bytes:
    micros, offset = zoned_time_of(value)
    return _ZONED_TIME(12, micros, -offset)  # PostgreSQL counts westwards


_BINARY: dict[str, Cell] = {
    "bool": lambda value, style: b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0",
    "bytea": lambda value, style: _sized(value),
    "macaddr": lambda value, style: _sized(value),
    **dict.fromkeys(BIT_TYPES, _bits),
    "uuid": lambda value, style: _sized(value),
    **dict.fromkeys(("jsonb", "jsonpath"), lambda value, style: _sized(b"\x01" + value.encode())),
    "void": lambda value, style: b"\0\0\0\0",
    "int2": _packer("h"),
    "int4": _packer("i"),
    "int8": _packer("q"),
    "mz_timestamp": _packer("q"),
    "money": _packer("q"),
    "timetz": _zoned_time,
    "uint8": lambda value, style: _sized(value),
    "uint2": _packer("H"),
    "uint4": _packer("I"),
    "float4": _packer("f"),
    "float8": _packer("d"),
    "date": _date,
    "time": _packer("q"),
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "interval": _interval,
    **dict.fromkeys(OID_NAMES, _packer("I")),
    **dict.fromkeys(("text", "varchar", "name", "unknown", "json"), _text_string),
    "char": lambda value, style: _sized(bytes((byte_of(value),))),
}
