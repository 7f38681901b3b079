"""Arguments: decode the values of a Bind message, text or binary, to datums of the given types."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from io import BytesIO
from math import prod
from struct import Struct, error
from typing import Any

import numpy as np

from foreshore import numbers
from foreshore.array_text import ShapeNotSupported
from foreshore.bits import checked, stored_bits
from foreshore.calendar import DATE_LEAST, DATE_MOST, TIMESTAMP_LEAST, TIMESTAMP_MOST
from foreshore.errors import (
    DataError,
    DatatypeMismatch,
    DatetimeFieldOverflow,
    FeatureNotSupported,
    ProtocolViolation,
    UndefinedFunction,
)
from foreshore.json_text import canonical_json, written_json
from foreshore.network import Address, stored_address
from foreshore.number_text import OID_NAMES, numeric_text
from foreshore.object_names import parse_argument
from foreshore.ranges import (
    BOUNDS,
    MULTIRANGES,
    Bound,
    Range,
    make_range,
    stored,
    stored_ranges,
    union,
)
from foreshore.server.binary_values import EPOCH_DAYS, EPOCH_MICROS, NEGATIVE
from foreshore.server.client_encoding import ClientEncoding
from foreshore.server.message import PIECE, Bind, Bytes, decode_text
from foreshore.shaped import (
    EMPTY,
    MAX_DIMENSIONS,
    Shaped,
    has_shape,
    stored_shaped,
    too_many_dimensions,
)
from foreshore.single_bytes import datum_of_byte
from foreshore.structured import stored as stored_values
from foreshore.text import limit_length, parse_text, truncate_name
from foreshore.types import Datum, SqlType, item_of, oid_of, shaped_array
from foreshore.zoned_times import stored_zoned_time


class InvalidBinaryRepresentation(DataError):
    """The bytes are not a value of the type."""

    sqlstate = "22P03"


def arguments(
    bind: Bind, types: Sequence[SqlType], zone: str, encoding: ClientEncoding | None = None
) -> list[Datum]:
    """Return the message's values as datums; None is the encoding UTF8.

    A name given for a reg* type stays text, which the session looks up. Raises DataError if a value
    is invalid for its type, and ProtocolViolation if there are too few or too many values.
    """
    values, formats = bind.values, bind.formats
    if len(values) != len(types):
        raise ProtocolViolation(
            f"bind message supplies {len(values)} parameters, but prepared statement"
            f' "{bind.statement}" requires {len(types)}'
        )
    if not values:
        return []
    if len(formats) > 1 and len(formats) != len(values):
        raise ProtocolViolation(
            f"bind message has {len(formats)} parameter formats but {len(values)} parameters"
        )
    if len(formats) <= 1:
        formats = (formats[0] if formats else 0,) * len(values)
    if encoding is not None:
        values = [
            None if value is None else encoding.argument(value, type, format)
            for value, type, format in zip(values, types, formats, strict=True)
        ]
    return [
        None if value is None else _argument(value, type, format, zone, number)
        for number, (value, type, format) in enumerate(zip(values, types, formats, strict=True), 1)
    ]


def with_shapes(bind: Bind, types: Sequence[SqlType]) -> list[SqlType]:
    """Return types of parameters, of arrays of any shape where the message's value has one."""
    formats = bind.formats if len(bind.formats) > 1 else (*bind.formats, 0)[:1] * len(types)
    return [
        shaped_array(type.element)
        if type.element is not None and value is not None and _has_shape(value, format)
        else type
        for value, type, format in zip(bind.values, types, formats, strict=True)
    ]


def _has_shape(value: Bytes, format: int) -> bool:
    return (
        has_shape(decode_text(value)) if format == 0 else value[:4] != _ONE or value[16:20] != _ONE
    )


Decode = Callable[[bytes], Datum]

_DIGITS = {"int2": 4, "int4": 9, "int8": 18}  # so many are surely in range


def decoder(type: SqlType, format: int, zone: Callable[[], str]) -> Decode:
    """Return the function that decodes a short argument of `type` in text (0) or binary (1)."""
    if format == 1:
        return binary_decoder(type, " in bind parameter")
    most = _DIGITS.get(type.name)
    if most is None:
        return lambda value: _from_text(value, type, zone())

    def integer(value: bytes) -> Datum:
        if len(value) <= most and value.isdigit():
            return int(value)
        return _from_text(value, type, zone())

    return integer


def _argument(value: Bytes, type: SqlType, format: int, zone: str, number: int) -> Datum:
    if format == 0:
        return _from_text(value, type, zone)
    if format != 1:
        raise ProtocolViolation(f"unsupported format code: {format}", sqlstate="22023")
    return decode_binary(value, type, f" in bind parameter {number}")


def decode_binary(value: Bytes, type: SqlType, where: str = "") -> Datum:
    """Decode a datum in binary format; errors say `where` it is."""
    return binary_decoder(type, where)(value)


def binary_decoder(type: SqlType, where: str) -> Callable[[Bytes], Datum]:
    """Return the function that decodes data of `type` in binary format."""
    decode_one = _BINARY.get(type.name)

    def decode(value: Bytes) -> Datum:
        if decode_one is None:
            raise UndefinedFunction(f"no binary input function available for type {type}")
        try:
            return decode_one(value, type)
        except (error, IndexError):
            raise InvalidBinaryRepresentation(f"incorrect binary data format{where}") from None

    return decode


def _from_text(value: Bytes, type: SqlType, zone: str) -> Datum:
    return parse_argument(decode_text(value), type, zone=zone)


def _unpacker(form: str) -> Callable[[Bytes, SqlType], Any]:
    unpack = Struct(f"!{form}").unpack

    def decode(value: Bytes, type: SqlType) -> Any:
        return unpack(value)[0]

    return decode


def _bool(value: Bytes, type: SqlType) -> bool:
    if len(value) != 1:
        raise IndexError
    return value != b"\0"


def _string(value: Bytes, type: SqlType) -> str:
    text = decode_text(value)
    if "\0" in text:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    match type.name:
        case "varchar":
            return limit_length(text, type)
        case "bpchar":
            return limit_length(text, type).rstrip(" ")
        case "name":
            return truncate_name(text)
        case _:
            return text


def _single_byte(value: Bytes, type: SqlType) -> str:
    if len(value) != 1:
        raise IndexError
    return datum_of_byte(value[0])


def _bytes(value: Bytes, type: SqlType) -> bytes:
    copy = BytesIO()
    for at in range(0, len(value), PIECE):  # other threads can run in between
        copy.write(value[at : at + PIECE])
    return copy.getvalue()


def _uuid(value: Bytes, type: SqlType) -> bytes:
    if len(value) != 16:
        raise IndexError
    return bytes(value)


def _jsonb(value: Bytes, type: SqlType) -> str:
    if value[0] != 1:
        raise InvalidBinaryRepresentation(f"unsupported jsonb version number {value[0]}")
    return canonical_json(decode_text(value[1:]))


def _bits(value: Bytes, type: SqlType) -> bytes:
    count, data = int.from_bytes(value[:4], "big"), bytes(value[4:])
    if count > 8 * len(data) or len(data) != (count + 7) // 8:
        raise IndexError
    bits = format(int.from_bytes(data, "big"), f"0{8 * len(data)}b")[:count] if count else ""
    return stored_bits(checked(bits, type))


def _jsonpath(value: Bytes, type: SqlType) -> Datum:
    if value[0] != 1:
        raise InvalidBinaryRepresentation(f"unsupported jsonpath version number {value[0]}")
    return parse_text(decode_text(value[1:]), type)


_INT4 = Struct("!i")
_INT8 = Struct("!q")


def _date(value: Bytes, type: SqlType) -> int:
    days: int = _INT4.unpack(value)[0]
    if abs(days) >= 2**31 - 1:
        return days
    if not DATE_LEAST <= days + EPOCH_DAYS <= DATE_MOST:
        raise DatetimeFieldOverflow("date out of range")
    return days + EPOCH_DAYS


def _time(value: Bytes, type: SqlType) -> int:
    micros: int = _INT8.unpack(value)[0]
    if not 0 <= micros <= 86_400_000_000:
        raise DatetimeFieldOverflow("time out of range")
    return micros


def _zoned_time(value: Bytes, type: SqlType) -> bytes:
    micros = _time(value[:8], type)
    (west,) = _INT4.unpack(value[8:])
    if abs(west) >= 16 * 3600:
        raise DataError("time zone displacement out of range", sqlstate="22009")
    return stored_zoned_time(micros, -west)


def _timestamp(value: Bytes, type: SqlType) -> int:
    micros: int = _INT8.unpack(value)[0]
    if micros in (2**63 - 1, -(2**63)):
        return micros
    if not TIMESTAMP_LEAST <= micros + EPOCH_MICROS <= TIMESTAMP_MOST:
        raise DatetimeFieldOverflow("timestamp out of range")
    return micros + EPOCH_MICROS


_INTERVAL = Struct("!qii")


def _interval(value: Bytes, type: SqlType) -> tuple[int, int, int]:
    micros, days, months = _INTERVAL.unpack(value)
    return months, days, micros


_NUMERIC = Struct("!HhHH")


def _numeric(value: Bytes, type: SqlType) -> str:
    count, weight, sign, scale = _NUMERIC.unpack_from(value)
    if sign in (0xC000, 0xD000, 0xF000) and type.name == "number":
        return {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]
    if sign in (0xC000, 0xD000, 0xF000):
        word = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]
        raise FeatureNotSupported(f'the numeric value "{word}" is not supported')
    if sign not in (0, NEGATIVE):
        raise InvalidBinaryRepresentation('invalid sign in external "numeric" value')
    if scale > 0x3FFF:
        raise InvalidBinaryRepresentation('invalid scale in external "numeric" value')
    digits = Struct(f"!{count}H").unpack(value[8:])
    if any(digit > 9999 for digit in digits):
        raise InvalidBinaryRepresentation('invalid digit in external "numeric" value')
    unscaled = "".join(f"{digit:04}" for digit in digits) or "0"
    text = f"{'-' if sign else ''}{unscaled}E{4 * (weight - count + 1)}"
    if type.name == "number":  # of which the scale cuts digits off, as in PostgreSQL
        return numbers.shown(numbers.cut_to(numbers.bounded(Decimal(text)), scale))
    return numeric_text(Decimal(text), type)


def _mac(value: Bytes, type: SqlType) -> bytes:
    if len(value) != 6:
        raise IndexError
    return bytes(value)


def _address(value: Bytes, type: SqlType) -> bytes:
    family, bits, _, size = value[:4]
    if family not in (2, 3):
        raise InvalidBinaryRepresentation(f'invalid address family in external "{type.name}" value')
    address = Address(4 if family == 2 else 6, bits, int.from_bytes(value[4:], "big"))
    if bits > address.size:
        raise InvalidBinaryRepresentation(f'invalid bits in external "{type.name}" value')
    if size != len(value) - 4 or 8 * size != address.size:
        raise InvalidBinaryRepresentation(f'invalid length in external "{type.name}" value')
    if type.name == "cidr" and address.network != address:
        raise InvalidBinaryRepresentation(
            'invalid external "cidr" value', detail="Value has bits set to right of mask."
        )
    return stored_address(address)


def _range(value: Bytes, type: SqlType) -> bytes:
    return stored(_one_range(value, type.name))


def _multirange(value: Bytes, type: SqlType) -> bytes:
    (count,) = _INT4.unpack_from(value)
    found: list[Range] = []
    at = 4
    for _ in range(count):
        (length,) = _INT4.unpack_from(value, at)
        one = _one_range(_part(value, at + 4, length), MULTIRANGES[type.name])
        found += [] if one is None else [one]
        at += 4 + length
    if at != len(value):
        raise IndexError
    return stored_ranges(union(found))


def _one_range(value: Bytes, kind: str) -> Range | None:
    flags, at = value[0], 1
    if flags & 1:
        return None
    bounds: list[Bound | None] = []
    for infinite, inclusive in ((8, 2), (16, 4)):
        if flags & infinite:
            bounds.append(None)
            continue
        (length,) = _INT4.unpack_from(value, at)
        datum = decode_binary(_part(value, at + 4, length), BOUNDS[kind])
        bounds.append(Bound(datum, bool(flags & inclusive)))
        at += 4 + length
    if at != len(value):
        raise IndexError
    return make_range(bounds[0], bounds[1], kind)


def _part(value: Bytes, at: int, length: int) -> Bytes:
    if length < 0 or at + length > len(value):
        raise IndexError
    return value[at : at + length]


_DIMENSIONS = Struct("!iiI")
_BOUNDS = Struct("!ii")
_ONE = b"\0\0\0\1"
_TYPE_AND_LENGTH = Struct("!Ii")


def _array(value: Bytes, type: SqlType) -> tuple[Datum, ...]:
    assert type.element is not None, type
    dimensions = _dimensions(value, type.element)
    if dimensions == 0:
        return ()
    if dimensions != 1 or value[16:20] != _ONE:
        raise ShapeNotSupported
    count, _ = _BOUNDS.unpack_from(value, 12)
    return _items(value, count, 20, type.element)


def _shaped(value: Bytes, type: SqlType) -> bytes:
    """Return an array of any shape: length and lowest subscript of each dimension, and elements."""
    element = item_of(type)
    dimensions = _dimensions(value, element)
    if not 0 <= dimensions <= MAX_DIMENSIONS:
        if dimensions > 0:
            raise too_many_dimensions(dimensions)
        raise InvalidBinaryRepresentation(f"invalid number of dimensions: {dimensions}")
    bounds = [_BOUNDS.unpack_from(value, 12 + 8 * i) for i in range(dimensions)]
    lengths = tuple(length for length, _ in bounds)
    if any(length < 0 or low + length > 2**31 - 1 for length, low in bounds):
        raise InvalidBinaryRepresentation("invalid array bounds")
    count = prod(lengths) if lengths else 0
    if not count:
        return stored_shaped(EMPTY, type)
    if 4 * count > len(value):
        raise IndexError
    items = _items(value, count, 12 + 8 * dimensions, element)
    return stored_shaped(Shaped(items, lengths, tuple(low for _, low in bounds)), type)


def _dimensions(value: Bytes, element: SqlType) -> int:
    """Return how many dimensions an array of such elements has."""
    dimensions, flags, oid = _DIMENSIONS.unpack_from(value)
    if flags not in (0, 1):
        raise InvalidBinaryRepresentation(f"invalid array flags: {flags}")
    if oid != oid_of(element):
        raise DataError("wrong element type", sqlstate="42804")
    if dimensions == 0 and len(value) != 12:
        raise IndexError
    found: int = dimensions
    return found


def _items(value: Bytes, count: int, at: int, element: SqlType) -> tuple[Datum, ...]:
    """Return the elements of an array, the first of which is at `at`."""
    decode = _BINARY.get(element.name)
    if decode is None:
        raise UndefinedFunction(f"no binary input function available for type {element}")
    if (number := _NUMBERS.get(element.name)) is not None:
        items_at_once = _numbers(value, count, at, number)
        if items_at_once is not None:
            return items_at_once
    items: list[Datum] = []
    for _ in range(count):
        length = _INT4.unpack_from(value, at)[0]
        at += 4
        if length == -1:
            items.append(None)
            continue
        if length < 0 or at + length > len(value):
            raise IndexError
        items.append(decode(value[at : at + length], element))
        at += length
    if at != len(value):
        raise IndexError
    return tuple(items)


def _record(value: Bytes, type: SqlType) -> bytes:
    """Return a composite value: for each column its type, its length and its bytes."""
    if not type.members:
        raise FeatureNotSupported("input of anonymous composite types is not implemented")
    (count,) = _INT4.unpack_from(value)
    if count != len(type.members):
        raise DatatypeMismatch(f"wrong number of columns: {count}, expected {len(type.members)}")
    at, values = 4, list[Datum]()
    for number, member in enumerate(type.members, 1):
        oid, length = _TYPE_AND_LENGTH.unpack_from(value, at)
        at += _TYPE_AND_LENGTH.size
        if oid != (expected := oid_of(member.type)):
            raise DatatypeMismatch(
                f"binary data has type {oid} instead of expected {expected} ({member.type}) in"
                f" record column {number}"
            )
        if length < -1 or at + length > len(value):
            raise IndexError
        if length == -1:
            values.append(None)
            continue
        values.append(decode_binary(value[at : at + length], member.type))
        at += length
    if at != len(value):
        raise IndexError
    return stored_values(values, type)


_NUMBERS: dict[str, np.dtype[Any]] = {
    "int2": np.dtype(">i2"),
    "int4": np.dtype(">i4"),
    "int8": np.dtype(">i8"),
    "float8": np.dtype(">f8"),
}


def _numbers(value: Bytes, count: int, at: int, number: np.dtype[Any]) -> tuple[Datum, ...] | None:
    """Return the elements of an array of numbers; None if one is NULL, or has another length."""
    if count <= 0 or len(value) != at + count * (4 + number.itemsize):
        return None
    items = np.frombuffer(value, np.dtype([("length", ">i4"), ("number", number)]), count, at)
    if (items["length"] != number.itemsize).any():
        return None
    return tuple(items["number"].tolist())


_BINARY: dict[str, Callable[[Bytes, SqlType], Datum]] = {
    "bool": _bool,
    "bytea": _bytes,
    "uuid": _uuid,
    "enum": lambda value, type: parse_text(decode_text(value), type),
    "json": lambda value, type: written_json(decode_text(value)),
    "jsonb": _jsonb,
    "jsonpath": _jsonpath,
    "bit": _bits,
    "varbit": _bits,
    "int2": _unpacker("h"),
    "int4": _unpacker("i"),
    "int8": _unpacker("q"),
    "float4": _unpacker("f"),
    "float8": _unpacker("d"),
    "numeric": _numeric,
    "number": _numeric,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "interval": _interval,
    "inet": _address,
    "cidr": _address,
    "macaddr": _mac,
    "array": _array,
    "shaped": _shaped,
    "record": _record,
    **dict.fromkeys(BOUNDS, _range),
    **dict.fromkeys(MULTIRANGES, _multirange),
    "mz_timestamp": _unpacker("q"),
    "money": _unpacker("q"),
    "timetz": _zoned_time,
    **dict.fromkeys(OID_NAMES, _unpacker("I")),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "unknown"), _string),
    "char": _single_byte,
}
