"""pg_column_size and mz_row_size: the bytes of a value as PostgreSQL stores it, and of a row.

Sizes are PostgreSQL's for types of a fixed length, text, bytea, bit strings, numeric, and arrays of
these. Of other types (jsonb, ranges, records) the size is that of the form they have here, with the
four bytes of PostgreSQL's header.
"""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.bits import padded_bytes
from foreshore.expr.functions.function import Outcome, Signature, declare
from foreshore.expr.functions.number import rows_of
from foreshore.types import INT4, TYPES, SqlType

_HEADER = 4  # of a value of no fixed length
_ARRAY_HEADER, _EMPTY_ARRAY = 24, 16  # of one dimension, of none
_GROUP = 4  # decimal digits in a digit of numeric
_SHORT_SCALE, _SHORT_WEIGHT = 63, range(-64, 64)  # of numerics with the short header


def numeric_size(value: Decimal) -> int:
    """Return the bytes of a numeric: its digits of base 10,000 without zeros around them."""
    header = _HEADER + 2
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not any(digits):
        return header
    text = "".join(map(str, digits))
    last = (exponent + len(text) - len(text.rstrip("0"))) // _GROUP
    weight = (exponent + len(text.lstrip("0")) - 1) // _GROUP
    if -exponent > _SHORT_SCALE or weight not in _SHORT_WEIGHT:
        header += 2
    return header + 2 * (weight - last + 1)


def _sizes(type: SqlType, values: pa.Array) -> pa.Array:
    """Return the size of each value, NULL for NULL."""
    if type.element is not None:
        return _array_sizes(type.element, values)
    fixed = TYPES[type.name].length
    if fixed > 0:
        return pc.if_else(values.is_valid(), pa.scalar(fixed, pa.int32()), None)
    if type.name in ("numeric", "number"):
        sizes = rows_of(numeric_size)(Signature((type,), INT4), values)
        return sizes[0] if isinstance(sizes, tuple) else sizes
    if type.name in ("bit", "varbit"):
        sizes = (None if v is None else _bit_size(v) for v in values.to_pylist())
        return pa.array(sizes, pa.int32())
    return pc.add(pc.binary_length(values), _HEADER).cast(pa.int32())


def _bit_size(datum: bytes) -> int:
    """Return the bytes of a bit string: the header, the number of bits, and the bits."""
    return 2 * _HEADER + len(padded_bytes(datum)[1])


def _array_sizes(element: SqlType, values: pa.Array) -> pa.Array:
    align = 8 if TYPES[element.name].length % 8 == 0 else 4
    if TYPES[element.name].length in (1, 2):
        align = TYPES[element.name].length
    items = pc.fill_null(_sizes(element, values.flatten()), 0).to_pylist()
    sizes: list[int | None] = []
    at = 0
    for row in values.to_pylist():
        if not row:
            sizes.append(None if row is None else _EMPTY_ARRAY)
            continue
        size = _ARRAY_HEADER
        if any(each is None for each in row):
            size = _aligned(size + (len(row) + 7) // 8, 8)
        for each in items[at : at + len(row)]:
            size += _aligned(each, align)
        at += len(row)
        sizes.append(size)
    return pa.array(sizes, pa.int32())


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


def _column_size(types: Signature, values: pa.Array) -> Outcome:
    return _sizes(types.args[0], values)


def _row_size(types: Signature, rows: pa.Array) -> Outcome:
    return pc.binary_length(rows).cast(pa.int32())


declare("pg_column_size", "any", "int4", _column_size)
declare("mz_row_size", "anyrecord", "int4", _row_size)
