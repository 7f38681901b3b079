"""Text to values, by column: a column of texts to the values that `parse_text` reads in them.

Texts in a type's plain form, which nearly all of a bulk load are, are read by Arrow; a regular
expression says which these are, and is narrow enough that Arrow then reads what PostgreSQL would.
All others are read by `parse_text`, each distinct one once.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.datum import to_array
from foreshore.text import parse_text
from foreshore.types import NUMERIC_DIGITS, SqlType, arrow_type

_DATE = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIMESTAMP = rf"{_DATE}[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?"
_UTC = r"(?:Z|\+00(?::?00)?)"


def parse_column(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    """Return the values of `type` that the texts stand for; raises what `parse_text` raises."""
    read = _COLUMNS.get(type.name)
    return _distinct(texts, type, zone) if read is None else read(texts, type, zone)


def _distinct(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    encoded = texts.dictionary_encode()
    values = [parse_text(text, type, zone=zone) for text in encoded.dictionary.to_pylist()]
    return to_array(values, type).take(encoded.indices)


def _plainly(
    texts: pa.Array, pattern: str, type: SqlType, zone: str, cast: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Return the values, those of texts that match `pattern` read by `cast`."""
    plain = pc.fill_null(pc.match_substring_regex(texts, f"^(?:{pattern})$"), True)
    try:
        if pc.all(plain).as_py() is not False:
            return cast(texts)
        values = cast(pc.if_else(plain, texts, None))
    except pa.ArrowInvalid:  # a day that its month does not have, an integer that is too large
        return _distinct(texts, type, zone)
    others = pc.invert(plain)
    return pc.replace_with_mask(values, others, _distinct(texts.filter(others), type, zone))


def _integer(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    return _plainly(texts, r"-?\d{1,19}", type, zone, lambda t: t.cast(arrow_type(type)))


def _float(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    pattern = r"-?\d{1,30}(?:\.\d{1,30})?"
    return _plainly(texts, pattern, type, zone, lambda t: t.cast(arrow_type(type)))


def _numeric(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    assert type.scale is not None, type
    precision = NUMERIC_DIGITS if type.length is None else type.length
    whole = precision - type.scale
    if whole < 1:
        return _distinct(texts, type, zone)
    pattern = rf"-?\d{{1,{whole}}}" + (rf"(?:\.\d{{1,{type.scale}}})?" if type.scale else "")
    return _plainly(texts, pattern, type, zone, lambda t: t.cast(arrow_type(type)))


def _bool(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    return _plainly(texts, "[tf]", type, zone, lambda t: pc.equal(t, "t"))


def _text(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    return texts


def _limited(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    if type.length is not None:
        longest = pc.max(pc.utf8_length(texts)).as_py()
        if longest is not None and longest > type.length:
            return _distinct(texts, type, zone)
    return pc.utf8_rtrim(texts, " ") if type.name == "bpchar" else texts


def _date(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    return _plainly(texts, _DATE, type, zone, lambda t: t.cast(pa.date32()))


def _timestamp(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    if type.length is not None and type.length < 6:
        return _distinct(texts, type, zone)
    return _plainly(texts, _TIMESTAMP, type, zone, lambda t: t.cast(pa.timestamp("us")))


def _timestamptz(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    if type.length is not None and type.length < 6:
        return _distinct(texts, type, zone)

    def cast(plain: pa.Array) -> pa.Array:
        local = pc.replace_substring_regex(plain, f"{_UTC}$", "")
        return local.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))

    suffix = f"{_UTC}?" if zone.upper() in ("UTC", "GMT") else _UTC
    return _plainly(texts, _TIMESTAMP + suffix, type, zone, cast)


_COLUMNS: dict[str, Callable[[pa.Array, SqlType, str], pa.Array]] = {
    "bool": _bool,
    "numeric": _numeric,
    "bpchar": _limited,
    "varchar": _limited,
    "text": _text,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    **dict.fromkeys(("int2", "int4", "int8"), _integer),
    **dict.fromkeys(("float4", "float8"), _float),
}
