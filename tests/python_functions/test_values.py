"""Values pass to Python and back unchanged; what does not fit is an error of its row."""

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.datum import to_array
from foreshore.python_functions.definition import kind_of, sent_type
from foreshore.python_functions.values import Interval, Wrong, from_python, to_python
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMBER,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    arrow_type,
)
from foreshore.types import (
    UUID as UUID_TYPE,
)
from tests.effort import examples

_DATA: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT2: st.integers(-(1 << 15), (1 << 15) - 1),
    INT4: st.integers(-(1 << 31), (1 << 31) - 1),
    INT8: st.integers(-(1 << 63), (1 << 63) - 1),
    FLOAT4: st.floats(width=32, allow_nan=False),
    FLOAT8: st.floats(allow_nan=False),
    TEXT: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    BYTEA: st.binary(),
    DATE: st.integers(-719_162, 2_932_896),
    TIME_OF_DAY: st.integers(0, 86_399_999_999),
    TIMESTAMP: st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    TIMESTAMPTZ: st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    INTERVAL: st.tuples(
        st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(-(1 << 62), 1 << 62)
    ),
}


@pytest.mark.parametrize("type", _DATA, ids=str)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_value_sent_to_python_comes_back_unchanged(type: SqlType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | _DATA[type], max_size=5))
    array = to_array(values, type)
    kind = kind_of(type)
    back, errors = from_python(to_python(array, kind), kind, array.type)
    assert not errors
    assert back.equals(array)
    lists = data.draw(st.lists(st.none() | st.just(tuple(values)), max_size=3))
    nested = to_array(lists, array_of(type))
    back, errors = from_python(to_python(nested, f"{kind}[]"), f"{kind}[]", nested.type)
    assert not errors
    assert back.to_pylist() == nested.to_pylist()


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (NUMBER, Decimal("1.10"), "1.10"),
        (NUMBER, 3, "3"),
        (NUMBER, 0.1, "0.1"),
        (UUID_TYPE, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (JSONB, {"a": [1, None]}, '{"a": [1, null]}'),
    ],
)
def test_value_sent_as_text_is_written_as_sql_reads_it(
    type: SqlType, value: Any, text: str
) -> None:
    arrow = arrow_type(sent_type(type))
    array, errors = from_python([value, None], kind_of(type), arrow)
    assert not errors
    assert array.to_pylist() == [text, None]
    again = to_python(array, kind_of(type))[0]
    assert again == value or type == NUMBER


@pytest.mark.parametrize(
    ("type", "value", "state"),
    [
        (INT2, 1 << 15, "22003"),
        (INT4, 2147483648, "22003"),
        (INT8, 1 << 63, "22003"),
        (INT4, "1", "42804"),
        (INT4, 1.5, "42804"),
        (INT4, Decimal("Infinity"), "38000 OverflowError"),
        (array_of(INT4), (1 // n for n in (1, 0)), "38000 ZeroDivisionError"),
        (FLOAT8, "1", "42804"),
        (FLOAT8, 10**400, "22003"),
        (FLOAT4, 1e39, "22003"),
        (TEXT, 1, "42804"),
        (TEXT, "a\0b", "22021"),
        (TEXT, "\ud800", "22021"),
        (BOOL, 1, "42804"),
        (BYTEA, "x", "42804"),
        (DATE, datetime.datetime(2024, 1, 1), "42804"),
        (TIMESTAMP, datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "42804"),
        (TIMESTAMPTZ, datetime.datetime(2024, 1, 1), "42804"),
        (INTERVAL, (1 << 31, 0, 0), "22008"),
        (NUMBER, "1", "42804"),
        (UUID_TYPE, "x", "42804"),
        (JSONB, {1, 2}, "22P02"),
        (JSONB, float("nan"), "22P02"),
        (array_of(INT4), [1, "x"], "42804"),
        (array_of(INT4), "12", "42804"),
        (array_of(INT4), 7, "42804"),
    ],
)
def test_result_that_does_not_fit_is_error_of_its_row(
    type: SqlType, value: Any, state: str
) -> None:
    array, errors = from_python([None, value], kind_of(type), arrow_type(sent_type(type)))
    assert array.to_pylist() == [None, None]
    assert [*errors] == [1]
    assert errors[1].startswith(state)


def test_numbers_of_other_types_are_taken_where_they_are_exact() -> None:
    assert from_python([True, 2.0, Decimal(3)], "int4", pa.int32())[0].to_pylist() == [1, 2, 3]
    assert from_python([1, Decimal("2.5")], "float8", pa.float64())[0].to_pylist() == [1.0, 2.5]
    delta = datetime.timedelta(days=1, seconds=2)
    (interval,) = from_python([delta], "interval", arrow_type(INTERVAL))[0].to_pylist()
    assert tuple(interval.values()) == Interval(0, 1, 2_000_000)


def test_document_that_python_cannot_read_is_error_of_its_row() -> None:
    found = to_python(pa.array([f"[{'1' * 5000}]", "[1]"]), "json")
    assert isinstance(found[0], Wrong)
    assert str(found[0]) == "22003 json out of range for Python"
    assert found[1] == [1]


def test_end_of_day_is_error_of_its_row() -> None:
    found = to_python(to_array([86_400_000_000, 0], TIME_OF_DAY), "time")
    assert isinstance(found[0], Wrong)
    assert found[1] == datetime.time(0)


def test_infinite_date_is_error_of_its_row() -> None:
    found = to_python(to_array([(1 << 31) - 1, 0], DATE), "date")
    assert isinstance(found[0], Wrong)
    assert found[1] == datetime.date(1970, 1, 1)
