"""Text forms of single values: PostgreSQL's input and output functions.

    >>> parse_text("1 day 02:03", INTERVAL)
    (0, 1, 7380000000)
    >>> format_text((0, 1, 7380000000), INTERVAL)
    '1 day 02:03:00'

`parse_text` is PostgreSQL's input function of the type, applies modifiers, and raises PostgreSQL's
errors. Text too long for varchar(n) is an error, as in assignments (explicit casts cut it).
`format_text` is the output function; casts to text differ only for bool (`true`, not `t`). Casts,
unknown literals, text parameters and COPY all use these functions, and code that encodes whole
columns must agree with them.

The names accepted for reg* types are resolved elsewhere; only numbers are parsed here.
"""

import re
from collections.abc import Callable

from foreshore import bits, calendar, jsonpath
from foreshore.array_text import SPACES, quote_element, split_array
from foreshore.date_styles import styled_date, styled_timestamp
from foreshore.datetime_text import parse_datetime, parse_zoned_time
from foreshore.enum_labels import label_of
from foreshore.errors import (
    DataError,
    DatetimeFieldOverflow,
    FeatureNotSupported,
    InvalidParameterValue,
    InvalidTextRepresentation,
    StringDataRightTruncation,
)
from foreshore.float_text import format_float4, format_float8
from foreshore.input_errors import invalid_syntax
from foreshore.interval_fields import truncated
from foreshore.interval_styles import STYLES as INTERVAL_STYLES
from foreshore.interval_text import parse_interval
from foreshore.json_text import canonical_json, written_json
from foreshore.money import money_text, parse_money
from foreshore.network import address_of, address_text, mac_text, parse_address, parse_mac
from foreshore.number_text import (
    INTEGERS,
    OID_NAMES,
    format_number,
    format_numeric,
    parse_float,
    parse_integer,
    parse_mz_timestamp,
    parse_number,
    parse_numeric,
    parse_oid,
)
from foreshore.output_style import OutputStyle
from foreshore.range_text import format_multirange, format_range, parse_multirange, parse_range
from foreshore.ranges import BOUNDS, MULTIRANGES, range_of, ranges_of, stored, stored_ranges
from foreshore.shaped import format_shaped, parse_shaped, shaped_of, stored_shaped
from foreshore.single_bytes import parse_byte
from foreshore.structured import pairs_of, stored_map, values_of
from foreshore.structured import stored as stored_values
from foreshore.structured_text import (
    join_list,
    join_map,
    join_record,
    split_list,
    split_map,
    split_record,
    syntax_error,
)
from foreshore.types import (
    BIT_TYPES,
    CONTAINERS,
    INT2,
    OID,
    RANGE_TYPES,
    REG_NAMES,
    UNSIGNED,
    Datum,
    SqlType,
    item_of,
)
from foreshore.unsigned import format_unsigned, parse_unsigned
from foreshore.zoned_times import stored_zoned_time, zoned_time_text

_UUID = re.compile(r"\{?(?:[0-9a-fA-F]{4}-?){8}\}?\Z")
_BOOLS = {
    word[:length]: value
    for word, shortest, value in (
        ("true", 1, True),
        ("false", 1, False),
        ("yes", 1, True),
        ("no", 1, False),
        ("on", 2, True),
        ("off", 2, False),
        ("1", 1, True),
        ("0", 1, False),
    )
    for length in range(shortest, len(word) + 1)
}


def parse_text(text: str, type: SqlType, *, zone: str = "UTC", now: int | None = None) -> Datum:
    """Return the datum for `text` as a value of `type`.

    `zone` is the session's time zone; `now`, the transaction's time in microseconds, is used for
    words such as `today`. Raises a DataError.
    """
    return _PARSERS[type.name](text, type, zone, now)


_DEFAULT_STYLE = OutputStyle()


def format_text(datum: Datum, type: SqlType, style: OutputStyle = _DEFAULT_STYLE) -> str:
    """Return the text of `datum`, which is not None, as PostgreSQL displays a value of `type`."""
    return _FORMATTERS[type.name](datum, type, style)


# --- bool ------------------------------------------------------------------------------------


def _parse_bool(text: str, type: SqlType, zone: str, now: int | None) -> bool:
    value = _BOOLS.get(text.strip(SPACES).lower())
    if value is None:
        raise invalid_syntax(type, text)
    return value


# --- strings and bytes ------------------------------------------------------------------------


def _parse_string(text: str, type: SqlType, zone: str, now: int | None) -> str:
    if "\x00" in text:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    match type.name:
        case "varchar":
            return limit_length(text, type)
        case "bpchar":
            return limit_length(text, type).rstrip(" ")
        case "name":
            return truncate_name(text)
        case "char":
            return parse_byte(text)
        case _:
            return text


def limit_length(text: str, type: SqlType) -> str:
    """Return `text` within the declared length; only trailing blanks may be cut off."""
    if type.length is None or len(text) <= type.length:
        return text
    if text[type.length :].strip(" "):
        raise StringDataRightTruncation(
            f"value too long for type {_sized(type)}",
        )
    return text[: type.length]


def _sized(type: SqlType) -> str:
    return f"{type}({type.length})"


def truncate_name(text: str) -> str:
    """Return `text` cut to a name's maximum of 63 bytes, at a character boundary."""
    return text.encode()[:63].decode(errors="ignore")


def _format_string(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, str), datum
    if type.name == "bpchar" and type.length is not None:
        return datum.ljust(type.length)
    return datum


def _parse_bytea(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    if text.startswith("\\x"):
        digits = re.sub(f"[{SPACES}]", "", text[2:])
        for digit in digits:
            if digit not in "0123456789abcdefABCDEF":
                raise InvalidParameterValue(f'invalid hexadecimal digit: "{digit}"')
        if len(digits) % 2:
            raise InvalidParameterValue("invalid hexadecimal data: odd number of digits")
        return bytes.fromhex(digits)
    if "\\" not in text:
        return text.encode()
    out = bytearray()
    for match in re.finditer(rb"\\\\|\\([0-3][0-7]{2})|([^\\]+)|(\\)", text.encode()):
        octal, plain, bad = match.groups()
        if bad:
            raise InvalidTextRepresentation("invalid input syntax for type bytea")
        out += bytes([int(octal, 8)]) if octal else plain or b"\\"
    return bytes(out)


def _format_bytea(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    return escaped_bytes(datum) if style.bytes == "escape" else "\\x" + datum.hex()


def escaped_bytes(data: bytes) -> str:
    r"""Return bytes with those that are no printable ASCII as `\ooo`, and `\\`."""
    return "".join(
        "\\\\" if byte == 92 else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        for byte in data
    )


def _parse_uuid(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    if not _UUID.match(text) or text.startswith("{") != text.endswith("}") or text.endswith("-"):
        raise invalid_syntax(type, text)
    return bytes.fromhex(re.sub(r"[{}-]", "", text))


def _format_uuid(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    digits = datum.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _parse_json(text: str, type: SqlType, zone: str, now: int | None) -> str:
    return written_json(text)


def _parse_enum(text: str, type: SqlType, zone: str, now: int | None) -> str:
    assert type.defined is not None, type
    try:
        return type.defined.values[type.defined.labels.index(text)]
    except ValueError:
        raise InvalidTextRepresentation(f'invalid input value for enum {type}: "{text}"') from None


def _format_enum(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, str), datum
    values = () if type.defined is None else type.defined.values
    if type.defined is None or datum not in values:  # the type was altered since it was planned
        return label_of(datum)
    return type.defined.labels[values.index(datum)]


def _parse_jsonb(text: str, type: SqlType, zone: str, now: int | None) -> str:
    return canonical_json(text)


# --- dates and times --------------------------------------------------------------------------


def _parse_temporal(text: str, type: SqlType, zone: str, now: int | None) -> int:
    match type.name:
        case "date" | "time" | "timestamp" | "timestamptz":
            value = parse_datetime(text, type.name, calendar.zone_named(zone), now)
            if type.length is None:
                return value
            if type.name == "time":
                return round_micros(value, type.length)
            return round_timestamp(value, type.length, text)
        case _:
            raise AssertionError(type)


def round_timestamp(micros: int, digits: int, text: str) -> int:
    """Return a timestamp with at most `digits` digits of a second.

    PostgreSQL rounds the time since 2000, halves away from it. Raises DatetimeFieldOverflow.
    """
    if not calendar.TIMESTAMP_LEAST <= micros <= calendar.TIMESTAMP_MOST:
        return micros
    rounded = round_micros(micros - calendar.EPOCH_2000, digits) + calendar.EPOCH_2000
    if rounded > calendar.TIMESTAMP_MOST:
        raise DatetimeFieldOverflow(f'timestamp out of range: "{text}"')
    return rounded


def round_micros(micros: int, digits: int) -> int:
    """Return `micros` with at most `digits` digits of a second, halves away from zero."""
    unit: int = 10 ** (6 - min(digits, 6))
    if unit == 1 or abs(micros) >= 2**63 - 1:
        return micros
    rounded = (abs(micros) + unit // 2) // unit * unit
    return -rounded if micros < 0 else rounded


def _parse_zoned_time(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    micros, offset = parse_zoned_time(text, calendar.zone_named(zone), now)
    if type.length is not None:
        micros = round_micros(micros, type.length)
    return stored_zoned_time(micros, offset)


def _format_zoned_time(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    return zoned_time_text(datum)


def _parse_interval(text: str, type: SqlType, zone: str, now: int | None) -> tuple[int, int, int]:
    months, days, micros = parse_interval(text, type.fields)
    if type.fields is not None:
        months, days, micros = map(int, truncated(type.fields, months, days, micros))
    return months, days, micros if type.length is None else round_micros(micros, type.length)


def _format_temporal(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    match type.name, datum:
        case "date", int():
            return styled_date(datum, style.dates)
        case "time", int():
            return calendar.format_time(datum)
        case "timestamp", int():
            return styled_timestamp(datum, style.dates)
        case "timestamptz", int():
            return styled_timestamp(datum, style.dates, calendar.zone_named(style.zone))
        case "interval", (int(months), int(days), int(micros)):
            return INTERVAL_STYLES[style.intervals](months, days, micros)
        case _:
            raise AssertionError((type, datum))


# --- arrays -----------------------------------------------------------------------------------


def _parse_array(text: str, type: SqlType, zone: str, now: int | None) -> tuple[Datum, ...]:
    assert type.element is not None, type
    parse = _PARSERS[type.element.name]
    element = type.element
    return tuple(
        None if item is None else parse(item, element, zone, now) for item in split_array(text)
    )


def _format_array(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert type.element is not None, type
    assert isinstance(datum, tuple | list), datum
    show = _FORMATTERS[type.element.name]
    element = type.element
    return (
        "{"
        + ",".join(
            "NULL" if item is None else quote_element(show(item, element, style)) for item in datum
        )
        + "}"
    )


def _parse_vector(text: str, type: SqlType, zone: str, now: int | None) -> tuple[Datum, ...]:
    parse, element = (parse_integer, INT2) if type.name == "int2vector" else (parse_oid, OID)
    return tuple(parse(word, element, zone, now) for word in text.split())


def _format_vector(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, tuple | list), datum
    return " ".join(map(str, datum))


# --- network addresses ------------------------------------------------------------------------


def _parse_address(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    return parse_address(text, type.name)


def _format_address(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    return address_text(address_of(datum), masked=type.name == "cidr")


def _format_mac(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    return mac_text(datum)


def _format_money(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, int), datum
    return money_text(datum)


# --- ranges -----------------------------------------------------------------------------------


def _parse_range(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    kind = MULTIRANGES.get(type.name, type.name)
    element = BOUNDS[kind]
    parse = _PARSERS[element.name]

    def read(bound: str) -> Datum:
        return parse(bound, element, zone, now)

    if kind != type.name:
        return stored_ranges(parse_multirange(text, kind, read))
    return stored(parse_range(text, kind, read))


def _format_range(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    kind = MULTIRANGES.get(type.name, type.name)
    element = BOUNDS[kind]
    show = _FORMATTERS[element.name]

    def shown(bound: Datum) -> str:
        return show(bound, element, style)

    if kind != type.name:
        return format_multirange(ranges_of(datum, kind), kind, shown)
    return format_range(range_of(datum, kind), kind, shown)


# --- records, lists and maps --------------------------------------------------------------------


def _parse_record(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    if not type.members:
        raise FeatureNotSupported("input of anonymous composite types is not implemented")
    texts = split_record(text, len(type.members))
    values = [
        None if item is None else parse_text(item, member.type, zone=zone, now=now)
        for item, member in zip(texts, type.members, strict=True)
    ]
    return stored_values(values, type)


def _parse_container(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    item = item_of(type)
    nested = item.name in CONTAINERS or item.element is not None

    def read(part: str | None) -> Datum:
        if part is None:
            return None
        try:
            return parse_text(part, item, zone=zone, now=now)
        except DataError as fault:
            raise syntax_error(type.name, fault.message, text) from None

    if type.name == "list":
        return stored_values([read(part) for part in split_list(text, nested=nested)], type)
    return stored_map({key: read(part) for key, part in split_map(text, nested=nested)}, type)


def _parse_shaped(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    item = item_of(type)
    array = parse_shaped(text, lambda part: parse_text(part, item, zone=zone, now=now))
    return stored_shaped(array, type)


def _format_shaped(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    item = item_of(type)
    return format_shaped(shaped_of(datum, type), lambda value: format_text(value, item, style))


def _format_structured(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum

    def show(value: Datum, of: SqlType) -> str | None:
        return None if value is None else format_text(value, of, style)

    if type.name == "record":
        values = values_of(datum, type)
        return join_record(show(v, m.type) for v, m in zip(values, type.members, strict=True))
    item = item_of(type)
    nested = item.name in CONTAINERS or item.element is not None
    if type.name == "list":
        return join_list([show(v, item) for v in values_of(datum, type)], nested=nested)
    pairs = pairs_of(datum, type)
    return join_map(((key, show(v, item)) for key, v in pairs.items()), nested=nested)


# --- the table --------------------------------------------------------------------------------

_Parser = Callable[[str, SqlType, str, int | None], Datum]
_Formatter = Callable[[Datum, SqlType, OutputStyle], str]


def _format_str(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    return str(datum)


def _format_reg(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, int), datum
    return str(datum) if style.names is None else style.names.name_of(type, datum)


def _format_bool(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    return "t" if datum else "f"


def _format_float8_datum(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, float | int), datum
    return format_float8(float(datum), style.float_digits)


def _format_float4_datum(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, float | int), datum
    return format_float4(float(datum), style.float_digits)


def _parse_bits(text: str, type: SqlType, zone: str, now: int | None) -> bytes:
    return bits.stored_bits(bits.checked(bits.parse_bits(text), type))


def _format_bits(datum: Datum, type: SqlType, style: OutputStyle) -> str:
    assert isinstance(datum, bytes), datum
    return bits.bits_of(datum)


def _parse_jsonpath(text: str, type: SqlType, zone: str, now: int | None) -> str:
    return jsonpath.shown(jsonpath.parse(text))


_STRINGS = ("text", "varchar", "bpchar", "name", "char", "unknown", "void")
_TEMPORAL = ("date", "time", "timestamp", "timestamptz")

_PARSERS: dict[str, _Parser] = {
    "bool": _parse_bool,
    "float4": parse_float,
    "float8": parse_float,
    "numeric": parse_numeric,
    "number": parse_number,
    "bytea": _parse_bytea,
    "uuid": _parse_uuid,
    "json": _parse_json,
    "jsonpath": _parse_jsonpath,
    "jsonb": _parse_jsonb,
    "enum": _parse_enum,
    "interval": _parse_interval,
    "timetz": _parse_zoned_time,
    "money": lambda text, type, zone, now: parse_money(text),
    "mz_timestamp": parse_mz_timestamp,
    "inet": _parse_address,
    "cidr": _parse_address,
    **dict.fromkeys(BIT_TYPES, _parse_bits),
    "macaddr": lambda text, type, zone, now: parse_mac(text),
    "array": _parse_array,
    **dict.fromkeys(UNSIGNED, parse_unsigned),
    "record": _parse_record,
    "shaped": _parse_shaped,
    **dict.fromkeys(CONTAINERS, _parse_container),
    **dict.fromkeys(RANGE_TYPES, _parse_range),
    "int2vector": _parse_vector,
    "oidvector": _parse_vector,
    **dict.fromkeys(INTEGERS, parse_integer),
    **dict.fromkeys(OID_NAMES, parse_oid),
    **dict.fromkeys(_STRINGS, _parse_string),
    **dict.fromkeys(_TEMPORAL, _parse_temporal),
}
_FORMATTERS: dict[str, _Formatter] = {
    "bool": _format_bool,
    "float4": _format_float4_datum,
    "float8": _format_float8_datum,
    "numeric": format_numeric,
    "number": format_number,
    "bytea": _format_bytea,
    "uuid": _format_uuid,
    "interval": _format_temporal,
    "timetz": _format_zoned_time,
    "money": _format_money,
    "enum": _format_enum,
    "inet": _format_address,
    "cidr": _format_address,
    "macaddr": _format_mac,
    **dict.fromkeys(BIT_TYPES, _format_bits),
    "array": _format_array,
    **dict.fromkeys(UNSIGNED, format_unsigned),
    **dict.fromkeys(("record", *CONTAINERS), _format_structured),
    "shaped": _format_shaped,
    **dict.fromkeys(RANGE_TYPES, _format_range),
    "int2vector": _format_vector,
    "oidvector": _format_vector,
    **dict.fromkeys(("json", "jsonb", "jsonpath", "mz_timestamp", *INTEGERS), _format_str),
    **dict.fromkeys(OID_NAMES, _format_str),
    **dict.fromkeys(REG_NAMES, _format_reg),
    **dict.fromkeys(_STRINGS, _format_string),
    **dict.fromkeys(_TEMPORAL, _format_temporal),
}
