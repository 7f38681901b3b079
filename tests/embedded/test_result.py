"""Results: rows as Python's values, frames, and for libraries that read Arrow."""

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from foreshore.embedded.nested_arrays import TYPE
from foreshore.embedded.result import Result
from foreshore.errors import DatabaseError


def of(name: str, array: Any, sql_type: str) -> tuple[pa.Field, pa.Array]:
    array = pa.array(array) if isinstance(array, list) else array
    return pa.field(name, array.type, metadata={TYPE: sql_type.encode()}), array


def result(*columns: tuple[pa.Field, pa.Array]) -> Result:
    arrays = [array for _, array in columns]
    return Result(pa.Table.from_arrays(arrays, schema=pa.schema([each for each, _ in columns])))


WIDE = pa.array([Decimal("3.75"), Decimal("100"), None], pa.decimal128(38, 20))


def test_rows_are_fetched_one_after_the_other() -> None:
    rows = result(of("a", [1, 2, 3, 4, 5], "integer"))
    assert rows.fetchone() == (1,)
    assert rows.fetchmany(2) == [(2,), (3,)]
    assert rows.fetchall() == [(4,), (5,)]
    assert list(rows) == [(1,), (2,), (3,), (4,), (5,)]
    assert rows.scalar() == 1
    assert [rows.fetchone(), rows.fetchone(), rows.fetchone()] == [(4,), (5,), None]
    assert rows.fetchall() == rows.fetchmany(10) == []


def test_numerics_have_the_digits_that_they_need() -> None:
    scaled = pa.array([Decimal("1.50"), Decimal("2.00"), None])
    rows = result(of("x", WIDE, "numeric"), of("y", scaled, "numeric"))
    assert [str(x) for x, _ in rows] == ["3.75", "100", "None"]
    assert [str(y) for _, y in rows] == ["1.50", "2.00", "None"]
    frame = rows.df()
    assert dict(frame.dtypes) == {"x": "float64", "y": "float64"}
    assert rows.df(exact=True)["y"][0] == Decimal("1.50")
    assert frame["x"].sum() == 103.75


def test_columns_are_described() -> None:
    rows = result(of("a", [1, None], "bigint"), of("b", ["x", "y"], "text"))
    assert (rows.columns, rows.types, rows.shape) == (["a", "b"], ["bigint", "text"], (2, 2))
    assert [each[:2] for each in rows.description] == [("a", "bigint"), ("b", "text")]
    assert Result(pa.table({"n": [1]})).types == ["int64"]
    assert rows.fetchnumpy()["b"].tolist() == ["x", "y"]


def test_libraries_read_a_result_as_arrow() -> None:
    rows = result(of("a", [1, 2], "bigint"))
    assert pa.table(rows).to_pylist() == [{"a": 1}, {"a": 2}]
    assert duckdb.sql("SELECT sum(a) FROM rows").fetchall() == [(3,)]
    pd.testing.assert_frame_equal(rows.to_df(), rows.fetchdf())
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(rows).rows() == [(1,), (2,)]


MONTHS = pa.MonthDayNano([1, 2, 3_000])
HUGE = pa.MonthDayNano([0, 2**31 - 1, 0])


def test_intervals_are_timedeltas_unless_they_have_months() -> None:
    given = [pa.MonthDayNano([0, -1, 5_000]), MONTHS, HUGE, None]
    type = pa.month_day_nano_interval()
    rows = result(
        of("a", pa.array(given, type), "interval"),
        of("b", pa.array([given[:2], None, [], [None]], pa.list_(type)), "interval[]"),
    )
    day = timedelta(days=-1, microseconds=5)
    assert [a for a, _ in rows] == [day, MONTHS, HUGE, None]
    assert [b for _, b in rows] == [[day, MONTHS], None, [], [None]]
    assert rows.scalar() == day


JSON_VALUES: list[tuple[str | None, Any]] = [
    (None, None),
    ("null", None),
    ("true", True),
    ('"null"', "null"),
    ('{"a": [1, 2.5, {"b": null}]}', {"a": [1, 2.5, {"b": None}]}),
    ("[]", []),
    ("12345678901234567890", 12345678901234567890),
    ("1.10", 1.1),
    ("1.5e400", Decimal("1.5e400")),
    ("1e-400", Decimal("1e-400")),
    ("1e9999999999999999999", math.inf),
    ("1.5e3", 1500.0),
    ("-0.0", -0.0),
    ("0.30000000000000004", 0.1 + 0.2),
    ("0.30000000000000000000", 0.3),
    ("0.300000000000000001", Decimal("0.300000000000000001")),
    ("12345678901234567890.5", Decimal("12345678901234567890.5")),
    ("9" * 5_000, Decimal("9" * 5_000)),
]


def test_json_is_python_objects_in_rows_and_arrows_type_in_arrow() -> None:
    items = pa.array([text for text, _ in JSON_VALUES], pa.string()).cast(pa.json_(pa.string()))
    lists = pa.ListArray.from_arrays(range(len(items) + 1), items)
    rows = result(of("a", items, "jsonb"), of("b", lists, "jsonb[]"))
    expected = [value for _, value in JSON_VALUES]
    assert [a for a, _ in rows] == expected
    assert [type(a) for a, _ in rows] == list(map(type, expected))
    assert [b for _, b in rows] == [[value] for value in expected]
    assert rows.df()["a"].tolist() == expected
    assert rows.arrow().schema.field("a").type == pa.json_(pa.string())
    pytest.importorskip("polars")
    assert rows.pl()["a"].to_list() == [text for text, _ in JSON_VALUES]


def test_json_that_python_cannot_read_is_an_error_of_the_database() -> None:
    items = pa.array(["[" * 100_000 + "]" * 100_000]).cast(pa.json_(pa.string()))
    rows = result(of("a", items, "jsonb"))
    with pytest.raises(DatabaseError, match="nested too deeply") as raised:
        rows.fetchall()
    assert raised.value.sqlstate == "54001"


EDGES: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([2**31 - 1, -(2**31), 0, None], pa.date32()), ["infinity", "-infinity", date(1970, 1, 1), None]),
    (pa.array([40_000_000], pa.date32()), ["111486-04-13"]),
    (pa.array([2**63 - 1, 0], pa.timestamp("us")), ["infinity", datetime(1970, 1, 1)]),
    (pa.array([-(2**63)], pa.timestamp("us", "UTC")), ["-infinity"]),
    (pa.array([86_400_000_000, 1, None]).view(pa.time64("us")), ["24:00:00", time(0, 0, 0, 1), None]),
    (pa.ListArray.from_arrays([0, 1], pa.array([2**31 - 1], pa.date32())), [["infinity"]]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected"), EDGES)
def test_dates_and_times_that_python_has_not_are_texts(
    array: pa.Array, expected: list[Any]
) -> None:
    rows = result(of("a", array, "date"), of("n", list(range(len(array))), "integer"))
    assert [row[0] for row in rows] == expected
    assert "row" in repr(rows)
    assert len(rows.df()) == len(expected)
