"""Results: rows as Python's values, frames, and for libraries that read Arrow."""

from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from foreshore.embedded.result import TYPE, Result


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
