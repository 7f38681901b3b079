"""Datums round-trip through columns."""

from decimal import Decimal

import pyarrow as pa
import pytest

from foreshore import datum as module
from foreshore.datum import from_array, repeat, to_array
from foreshore.expr.functions import arrays
from foreshore.expr.functions.function import Signature
from foreshore.python_functions.values import to_python
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    INTERVAL,
    NUMERIC,
    TEXT,
    Datum,
    SqlType,
    array_of,
    arrow_type,
)


@pytest.mark.parametrize(
    ("datum", "type"),
    [
        (True, BOOL),
        (7, INT4),
        (0.5, FLOAT8),
        ("1.5", NUMERIC),
        ("a", TEXT),
        ((1, 2, 3), INTERVAL),
        ((1, None), array_of(INT4)),
        ((), array_of(TEXT)),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_value_is_repeated_any_number_of_times(datum: Datum, type: SqlType, rows: int) -> None:
    assert from_array(repeat(None, type, rows), type) == [None] * rows
    assert from_array(repeat(datum, type, rows), type) == [datum] * rows


@pytest.mark.parametrize("name", ["int2", "int4", "int8", "date", "time", "timestamp"])
@pytest.mark.parametrize("nulls", [False, True])
def test_integers_of_any_width_come_back_from_a_column(name: str, nulls: bool) -> None:
    type = SqlType(name)
    width = arrow_type(type).bit_width
    ends: list[Datum] = [0, 1, 86_399] if name == "time" else [-(2 ** (width - 1)), 0, 1, -1]
    data = [*ends, None] if nulls else ends
    column = to_array(data, type)
    column.validate(full=True)
    assert column.type == arrow_type(type)
    assert column.null_count == nulls
    assert from_array(column, type) == data
    assert from_array(to_array([], type), type) == []
    with pytest.raises((OverflowError, pa.ArrowInvalid)):
        to_array([2 ** (width - 1)], type)


LISTS: list[tuple[str | None, ...] | None] = [("1.5", "2"), None, (), ("3", None, "4"), ("5",)]


@pytest.mark.parametrize("begin", range(len(LISTS) + 1))
@pytest.mark.parametrize("end", range(len(LISTS) + 1))
def test_part_of_a_column_of_lists_is_read_without_the_rest(
    begin: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up takes one row of a table of any length."""
    type = array_of(NUMERIC)
    column, part = to_array(LISTS, type), LISTS[begin:end]
    slice = column.slice(begin, max(0, end - begin))
    read: list[object] = []
    real = module.numeric_datum

    def counted(value: Decimal, type: SqlType) -> str:
        read.append(value)
        return real(value, type)

    monkeypatch.setattr(module, "numeric_datum", counted)
    assert from_array(slice, type) == part
    assert len(read) == sum(item is not None for each in part for item in each or ())
    texts = to_array(LISTS, array_of(TEXT)).slice(begin, max(0, end - begin))
    assert to_python(texts, "text[]") == [None if each is None else list(each) for each in part]
    joined = arrays._to_string(
        Signature((array_of(TEXT), TEXT), TEXT), texts, to_array([","] * len(part), TEXT)
    )
    assert from_array(joined, TEXT) == [
        None if each is None else ",".join(filter(None, each)) for each in part
    ]
