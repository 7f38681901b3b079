"""Text to values, by column: parse a column of texts to the same values as `parse_text`.

Nearly all texts of a bulk load are in a plain form of their type, which a regular expression
matches. Arrow parses these as PostgreSQL does. `parse_text` parses the others, each distinct text
once. Often the column's bytes show that all its texts are plain, without the regular expression:
numbers without a letter, or times of the same shape as the first.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import to_array
from foreshore.text import parse_text
from foreshore.types import NUMERIC_DIGITS, SqlType, arrow_type

_DATE = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIMESTAMP = rf"{_DATE}[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?"
_UTC = r"(?:Z|\+00(?::?00)?)"


def parse_column(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    """Parse texts to values of `type`; raises the errors of `parse_text`."""
    read = _COLUMNS.get(type.name)
    return _distinct(texts, type, zone) if read is None else read(texts, type, zone)


def _distinct(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    encoded = texts.dictionary_encode()
    values = [parse_text(text, type, zone=zone) for text in encoded.dictionary.to_pylist()]
    return to_array(values, type).take(encoded.indices)


Read = Callable[[pa.Array], pa.Array]
Octets: TypeAlias = npt.NDArray[np.uint8]


def _plainly(
    texts: pa.Array, pattern: str, type: SqlType, zone: str, cast: Read, *, sure: bool = False
) -> pa.Array:
    """Parse the texts that match `pattern` by `cast`, and the others by `parse_text`.

    `sure` says that for each text of the column `cast` agrees with PostgreSQL or fails.
    """
    if sure:
        with suppress(pa.ArrowInvalid):  # the code below finds the text that is wrong
            return cast(texts)
    plain = pc.fill_null(pc.match_substring_regex(texts, f"^(?:{pattern})$"), True)
    try:
        if pc.all(plain).as_py() is not False:
            return cast(texts)
        values = cast(pc.if_else(plain, texts, None))
    except pa.ArrowInvalid:  # February 30, or an integer that is too large
        return _distinct(texts, type, zone)
    others = pc.invert(plain)
    return pc.replace_with_mask(values, others, _distinct(texts.filter(others), type, zone))


def _octets(texts: pa.Array) -> Octets:
    """Return the concatenated bytes of all texts."""
    _, offsets, data = texts.buffers()
    if data is None:
        return np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int32)
    start, end = starts[texts.offset], starts[texts.offset + len(texts)]
    return np.frombuffer(data, np.uint8)[start:end]


def _is_number(texts: pa.Array, longest: int = 30) -> bool:
    """Whether no text has a letter (hexadecimal, exponent) or more than `longest` bytes."""
    octets = _octets(texts)
    if octets.max(initial=0) > ord("9"):
        return False
    return (pc.max(pc.binary_length(texts)).as_py() or 0) <= longest


def _is_like_the_first(texts: pa.Array, pattern: re.Pattern[str]) -> bool:
    """Whether the first text matches `pattern`, of dates, and all others have its shape.

    They have its length, digits where it has digits, and its bytes elsewhere and in the pattern's
    group, if there is one. No year is before 1000, which excludes the year 0000.
    """
    octets = _octets(texts)
    count = len(texts) - texts.null_count
    length, rest = divmod(len(octets), count or 1)
    lengths = pc.min_max(pc.binary_length(texts))
    if not count or rest or lengths["min"].as_py() != lengths["max"].as_py():
        return False
    first = pattern.fullmatch(octets[:length].tobytes().decode(errors="replace"))
    if first is None:
        return False
    low, high = octets[:length].copy(), octets[:length].copy()
    digits = (low >= ord("0")) & (low <= ord("9"))
    digits[first.start(1) if pattern.groups and first[1] else length :] = False
    low[digits], high[digits] = ord("0"), ord("9")
    low[0] = ord("1")
    least, greatest = _extremes(octets, length)
    return bool((least >= low).all() and (greatest <= high).all())


def _extremes(octets: Octets, length: int) -> tuple[Octets, Octets]:
    """Return the least and the greatest byte at each position of texts of `length` bytes."""
    together = 64 * length  # NumPy is fast on long rows, so put several texts in one
    whole = len(octets) - len(octets) % together
    least, greatest = octets[whole:].reshape(-1, length), octets[whole:].reshape(-1, length)
    if whole:
        grid = octets[:whole].reshape(-1, together)
        least = np.concatenate((least, grid.min(axis=0).reshape(-1, length)))
        greatest = np.concatenate((greatest, grid.max(axis=0).reshape(-1, length)))
    return least.min(axis=0), greatest.max(axis=0)


def _integer(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    def cast(texts: pa.Array) -> pa.Array:
        return texts.cast(arrow_type(type))

    return _plainly(texts, r"-?\d{1,19}", type, zone, cast, sure=_is_number(texts))


def _float(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    def cast(texts: pa.Array) -> pa.Array:
        return texts.cast(arrow_type(type))

    pattern = r"-?\d{1,30}(?:\.\d{1,30})?"
    return _plainly(texts, pattern, type, zone, cast, sure=_is_number(texts))


def _numeric(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    assert type.scale is not None, type
    precision = NUMERIC_DIGITS if type.length is None else type.length
    whole = precision - type.scale
    if whole < 1:
        return _distinct(texts, type, zone)

    def cast(texts: pa.Array) -> pa.Array:
        return texts.cast(arrow_type(type))

    pattern = rf"-?\d{{1,{whole}}}" + (rf"(?:\.\d{{1,{type.scale}}})?" if type.scale else "")
    # Arrow accepts some numbers with too many digits before the point.
    return _plainly(texts, pattern, type, zone, cast, sure=_is_number(texts, whole))


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
    sure = _is_like_the_first(texts, re.compile(_DATE))
    return _plainly(texts, _DATE, type, zone, lambda t: t.cast(pa.date32()), sure=sure)


def _timestamp(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    if type.length is not None and type.length < 6:
        return _distinct(texts, type, zone)

    def cast(texts: pa.Array) -> pa.Array:
        return texts.cast(pa.timestamp("us"))

    sure = _is_like_the_first(texts, re.compile(_TIMESTAMP))
    return _plainly(texts, _TIMESTAMP, type, zone, cast, sure=sure)


def _timestamptz(texts: pa.Array, type: SqlType, zone: str) -> pa.Array:
    if type.length is not None and type.length < 6:
        return _distinct(texts, type, zone)
    shape = re.compile(f"{_TIMESTAMP}({_UTC})")
    if _is_like_the_first(texts, shape):
        with suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp("us", "UTC"))

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
