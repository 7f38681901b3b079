"""Text format, by column: format a whole Arrow column as `foreshore.text` formats single values.

Arrow and NumPy do the work. Some values they would format differently from PostgreSQL: years of
more than four digits, infinities, very large and very small doubles. Comparisons find these, and
`format_text` formats them one by one.
"""

from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import calendar
from foreshore.datum import from_array
from foreshore.numbers import numbers_of, shown
from foreshore.numeric_columns import unscaled_decimals
from foreshore.output_style import OutputStyle
from foreshore.text import format_text
from foreshore.types import NUMERIC_DIGITS, SqlType

_YEAR_1 = calendar.days_from_civil(1, 1, 1)
_YEAR_2037 = calendar.days_from_civil(2037, 1, 1)
_YEAR_10000 = calendar.days_from_civil(10_000, 1, 1)

_MOST_TABLED = 4  # digits behind the point up to which there is a table of their texts

Texts: TypeAlias = pa.Array  # of strings


def text_column(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    """Return the column's values in text format, as an Arrow array of strings."""
    return _COLUMNS.get(type.name, _one_by_one)(column, type, style)


def text_pieces(column: pa.Array, type: SqlType, style: OutputStyle) -> list[pa.Array]:
    """Return what gives the column's values in text format joined, as arrays of binary values.

    Where a value is NULL, all of them are.
    """
    pieces = None
    if type.name == "numeric":
        pieces = _number_pieces(column, type.trim)
    elif type.name == "timestamptz" and style.dates == "ISO":
        pieces = _utc_pieces(column, style)
    if pieces is None:
        pieces = [text_column(column, type, style)]
    return [each.cast(pa.binary()) for each in pieces]


def _utc_pieces(column: pa.Array, style: OutputStyle) -> list[pa.Array] | None:
    """Return the texts of times in UTC and their offsets; None if some need more, or a zone."""
    micros = column.view(pa.int64())
    if calendar.zone_named(style.zone) is not UTC or not len(micros):
        return None
    lowest, highest = pc.min_max(micros).values()
    if lowest.is_valid and not (
        lowest.as_py() >= (_YEAR_1 + 1) * calendar.DAY
        and highest.as_py() < (_YEAR_10000 - 1) * calendar.DAY
    ):
        return None
    offsets = pa.repeat(pa.scalar("+00"), len(micros))
    return [_trimmed(column.cast(pa.timestamp("us"))), _nulls_of(column, offsets)]


def _number_pieces(column: pa.Array, trim: bool) -> list[pa.Array] | None:
    """Return the texts of decimals up to the point, and from the point on; None if it is long."""
    places = column.type.scale
    unscaled = unscaled_decimals(column) if 0 < places <= _MOST_TABLED else None
    if unscaled is None:
        return None
    size = np.abs(unscaled)
    whole, part = np.divmod(size, 10**places)
    negative = unscaled < 0
    texts = pa.array(np.where(negative, -whole, whole)).cast(pa.string())
    below_one = negative & (whole == 0)
    if below_one.any():
        texts = pc.if_else(pa.array(below_one), "-0", texts)
    fractions = _fractions(places, trim).take(pa.array(part))
    return [_nulls_of(column, texts), _nulls_of(column, fractions)]


@lru_cache
def _fractions(places: int, trim: bool) -> pa.Array:
    """Return the texts of all fractions with so many digits, each with its point before it."""
    texts = [f".{number:0{places}}" for number in range(10**places)]
    return pa.array([text.rstrip("0").rstrip(".") for text in texts] if trim else texts)


def list_offsets(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Return the offsets of the lists in `column.flatten()`, which omits NULL lists."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _one_by_one(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    return pa.array(
        [None if v is None else format_text(v, type, style) for v in from_array(column, type)],
        pa.string(),
    )


def _patch(
    texts: Texts, column: pa.Array, right: pa.Array, type: SqlType, style: OutputStyle
) -> Texts:
    """Return `texts`, replaced by `format_text` where `right` is false (NULLs stay NULL)."""
    wrong = pc.invert(pc.fill_null(right, True))
    if not pc.any(wrong).as_py():
        return texts
    return pc.replace_with_mask(texts, wrong, _one_by_one(column.filter(wrong), type, style))


def _cast(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    return column.cast(pa.string())


def _as_is(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    return column


def _bool(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    return pc.if_else(column, "t", "f")


def _bpchar(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    return column if type.length is None else pc.utf8_rpad(column, type.length, " ")


def _float(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    if style.float_digits <= 0:
        return _one_by_one(column, type, style)
    size = pc.abs(column)
    limit = 1e9 if type.name == "float8" else 1e6
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, limit)), pc.equal(size, 0.0))
    return _patch(column.cast(pa.string()), column, plain, type, style)


def _numeric(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    scale = column.type.scale
    # Arrow formats small numbers with an exponent. So format the unscaled integer, then insert the
    # point.
    validity, data = column.buffers()
    whole = pa.Array.from_buffers(
        pa.decimal128(NUMERIC_DIGITS, 0), len(column), [validity, data],
        offset=column.offset,
    )  # fmt: skip
    digits = whole.cast(pa.string())
    if scale <= 0:
        return digits
    negative = pc.starts_with(digits, "-")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    fraction = pc.utf8_slice_codeunits(padded, -scale)
    if type.trim:
        fraction = pc.utf8_rtrim(fraction, "0")
        point = pc.if_else(pc.equal(fraction, ""), "", ".")
    else:
        point = pa.scalar(".")
    return pc.binary_join_element_wise(
        pc.if_else(negative, "-", ""),
        pc.utf8_slice_codeunits(padded, 0, -scale),
        point,
        fraction,
        pa.scalar(""),
    )


def _date(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    if style.dates != "ISO":
        return _one_by_one(column, type, style)
    days = column.view(pa.int32())
    plain = _between(days, _YEAR_1, _YEAR_10000)
    return _patch(column.cast(pa.string()), column, plain, type, style)


def _time(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    plain = pc.less(column.view(pa.int64()), calendar.DAY)
    return _patch(_trimmed(column), column, plain, type, style)


def _timestamp(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    if style.dates != "ISO":
        return _one_by_one(column, type, style)
    micros = column.view(pa.int64())
    plain = _between(micros, _YEAR_1 * calendar.DAY, _YEAR_10000 * calendar.DAY)
    return _patch(_trimmed(column), column, plain, type, style)


def _timestamptz(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    if style.dates != "ISO":
        return _one_by_one(column, type, style)
    micros = column.view(pa.int64())
    place = calendar.zone_named(style.zone)
    # Leave a day at either end, so that local times are in range too. Arrow knows a zone's rules
    # only as far as its table of transitions goes.
    end = _YEAR_2037 if isinstance(place, ZoneInfo) else _YEAR_10000
    plain = _between(micros, (_YEAR_1 + 1) * calendar.DAY, (end - 1) * calendar.DAY)
    if place is UTC:
        local = column.cast(pa.timestamp("us"))
        suffix: pa.Scalar | pa.Array = pa.scalar("+00")
    else:
        local, suffix = _in_zone(pc.if_else(plain, micros, 0), place)
    texts = pc.binary_join_element_wise(_trimmed(local), suffix, pa.scalar(""))
    return _patch(texts, column, plain, type, style)


def _in_zone(micros: pa.Array, place: tzinfo) -> tuple[pa.Array, pa.Array]:
    """Return the local timestamps and their offsets as text."""
    if isinstance(place, ZoneInfo):
        zoned = micros.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        local = pc.local_timestamp(zoned.cast(pa.timestamp("us", place.key)))
        offsets = pc.divide(pc.subtract(local.view(pa.int64()), micros), calendar.SECOND)
    else:
        offset = calendar.utc_offset(place, 0)
        local = pc.add(micros, offset * calendar.SECOND).cast(pa.timestamp("us"))
        offsets = pa.array(np.full(len(micros), offset))
    distinct = offsets.dictionary_encode()
    shown = [
        None if o is None else calendar.format_offset(o) for o in distinct.dictionary.to_pylist()
    ]
    return local, pa.array(shown, pa.string()).take(distinct.indices)


def _between(values: pa.Array, low: int, high: int) -> pa.Array:
    return pc.and_(pc.greater_equal(values, low), pc.less(values, high))


def _trimmed(column: pa.Array) -> Texts:
    """Return times or timestamps as text, without trailing zeros of the fraction."""
    return pc.utf8_rtrim(pc.utf8_rtrim(column.cast(pa.string()), "0"), ".")


def hex_texts(column: pa.Array) -> Texts:
    """Return the hexadecimal digits of each value."""
    column = pc.fill_null(column, b"")
    lengths = pc.binary_length(column).to_numpy()
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    start = np.frombuffer(column.buffers()[1], np.int32)[column.offset]
    data = memoryview(column.buffers()[2] or b"")[start : start + int(offsets[-1])]
    return pa.Array.from_buffers(
        pa.string(),
        len(column),
        [None, pa.py_buffer(offsets * 2), pa.py_buffer(data.hex().encode())],
    )


def _nulls_of(column: pa.Array, texts: Texts) -> Texts:
    return texts if column.null_count == 0 else pc.if_else(column.is_valid(), texts, None)


def _bytea(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    if style.bytes == "escape":
        return _one_by_one(column, type, style)
    texts = pc.binary_join_element_wise(pa.scalar("\\x"), hex_texts(column), pa.scalar(""))
    return _nulls_of(column, texts)


def _uuid(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    digits = hex_texts(column)
    parts = (
        pc.utf8_slice_codeunits(digits, a, b)
        for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    )
    return _nulls_of(column, pc.binary_join_element_wise(*parts, pa.scalar("-")))


def _array(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    assert type.element is not None, type
    texts = text_column(column.flatten(), type.element, style)
    quote = pc.or_(
        pc.match_substring_regex(texts, r'[{},"\\\s\x0b]'),
        pc.or_(pc.equal(texts, ""), pc.equal(pc.ascii_lower(texts), "null")),
    )
    if pc.any(quote).as_py():
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        quoted = pc.binary_join_element_wise('"', escaped, '"', "")
        texts = pc.if_else(quote, quoted, texts)
    lists = pa.ListArray.from_arrays(pa.array(list_offsets(column)), pc.fill_null(texts, "NULL"))
    inner = pc.binary_join(lists, ",")
    return _nulls_of(column, pc.binary_join_element_wise("{", inner, "}", ""))


def _number(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    texts = [None if value is None else shown(value) for value in numbers_of(column)]
    return pa.array(texts, pa.string())


def _enum(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    encoded = column.dictionary_encode()
    return _one_by_one(encoded.dictionary, type, style).take(encoded.indices)


def _vector(column: pa.Array, type: SqlType, style: OutputStyle) -> Texts:
    lists = pa.ListArray.from_arrays(
        pa.array(list_offsets(column)), column.flatten().cast(pa.string())
    )
    return _nulls_of(column, pc.binary_join(lists, " "))


_COLUMNS: dict[str, Callable[[pa.Array, SqlType, OutputStyle], Texts]] = {
    "bool": _bool,
    "bytea": _bytea,
    "bpchar": _bpchar,
    "float4": _float,
    "float8": _float,
    "numeric": _numeric,
    "number": _number,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "uuid": _uuid,
    "enum": _enum,
    "array": _array,
    "int2vector": _vector,
    "oidvector": _vector,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "mz_timestamp", "uint2", "uint4"), _cast),
    **dict.fromkeys(
        ("text", "varchar", "name", "char", "unknown", "void", "json", "jsonb", "jsonpath"), _as_is
    ),
}
