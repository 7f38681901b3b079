"""Numerics without a declared scale in Arrow, each value as it is.

A value is a decimal(38, 20), or, where that cannot hold it (NaN, infinity, more digits), a text.
So the type of a column does not depend on its values.
"""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import NumericValueOutOfRange
from foreshore.list_items import items_of, with_items
from foreshore.numbers import numbers_of, shown

UNSCALED = pa.decimal128(38, 20)
EXACT_NUMERIC = pa.struct([("value", UNSCALED), ("text", pa.string())])


def exact_numeric_column(column: pa.Array) -> pa.Array:
    """Return a column of numbers (`numbers.py`) as EXACT_NUMERIC."""
    value = pc.struct_field(column, "value")
    rest = pc.fill_null(pc.binary_length(pc.struct_field(column, "rest")), 0)
    if not pc.max(rest).as_py():
        texts = pa.nulls(len(column), pa.string())
    else:
        beyond = pc.greater(rest, 0)
        others = iter(numbers_of(column.filter(beyond)))
        found = [_text(next(others)) if each else None for each in beyond.to_pylist()]
        texts = pa.array(found, pa.string())
        value = pc.if_else(beyond, None, value)
    fields = list(EXACT_NUMERIC)
    return pa.StructArray.from_arrays([value, texts], fields=fields, mask=column.is_null())


def _text(value: Decimal | None) -> str:
    assert value is not None
    return shown(value)


def decimals(column: pa.ChunkedArray | pa.Array) -> list[Decimal | None]:
    """Return the values of a column of EXACT_NUMERIC, those of `value` with its 20 digits."""
    found: list[Decimal | None] = pc.struct_field(column, "value").to_pylist()
    texts = pc.struct_field(column, "text")
    if texts.null_count < len(texts):
        for place, text in enumerate(texts.to_pylist()):
            if text is not None:
                found[place] = Decimal(text)
    return found


def floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of EXACT_NUMERIC as float64, which has NaN and infinity."""
    values = pc.struct_field(column, "value").cast(pa.float64())
    texts = pc.struct_field(column, "text")
    if texts.null_count == len(texts):
        return values
    others = pa.array([None if t is None else float(t) for t in texts.to_pylist()], pa.float64())
    return pc.coalesce(values, others)


def has_exact_numeric(type: pa.DataType) -> bool:
    """Whether a type is EXACT_NUMERIC, or a list of it."""
    while pa.types.is_list(type):
        type = type.value_type
    return bool(type == EXACT_NUMERIC)


def as_decimals(table: pa.Table) -> pa.Table:
    """Return a table with decimals in place of EXACT_NUMERIC, also in lists.

    Raises NumericValueOutOfRange, which names the column, if a value is none.
    """
    for place, field in enumerate(table.schema):
        if has_exact_numeric(field.type):
            chunks = [_decimals(field.name, chunk) for chunk in table.column(place).chunks]
            type = _decimals(field.name, pa.array([], field.type)).type
            column = pa.chunked_array(chunks, type)
            table = table.set_column(place, field.with_type(type), column)
    return table


def _decimals(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return with_items(column, _decimals(name, items_of(column)))
    _check_fits(name, pc.struct_field(column, "text"))
    return pc.struct_field(column, "value")


def _check_fits(name: str, texts: Any) -> None:
    if texts.null_count == len(texts):
        return
    first = texts.drop_null()[0].as_py()
    has = "has a value of more digits" if first[-1].isdigit() else f"has {first}"
    raise NumericValueOutOfRange(
        f'column "{name}" {has}, which Arrow\'s decimal(38, 20) cannot hold',
        hint="Cast it in the query, to float8 or text; rows as tuples and df() have it as it is.",
    )
