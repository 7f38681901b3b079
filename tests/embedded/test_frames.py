import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from foreshore.embedded.frames import Frame, frame_of, frame_of_files, stream_of, unrounded
from foreshore.embedded.result import Result
from foreshore.errors import DatatypeMismatch, FeatureNotSupported, UndefinedFile
from foreshore.exact_numeric import UNSCALED

TABLE = pa.table({"a": [1, 2], "b": ["x", None]})


async def sent(frame: Frame) -> pa.Table:
    async def run(work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)

    data = b"".join([part async for part in stream_of(frame, run)])
    return pa.ipc.open_stream(data).read_all()


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_pandas(),
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        TABLE.to_pylist(),
        {"a": [1, 2], "b": ["x", None]},
        Result(TABLE),
        dataset.dataset(TABLE),
        dataset.dataset(TABLE).scanner(),
        TABLE.to_pandas().set_index("a"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_of_many_kinds_are_sent(data: Any) -> None:
    frame = frame_of(data)
    assert frame.definition() == '"a" bigint, "b" text'
    assert asyncio.run(sent(frame)).to_pylist() == TABLE.to_pylist()


def test_frames_of_polars_are_sent() -> None:
    polars = pytest.importorskip("polars")
    frame = frame_of(polars.DataFrame({"a": [1, 2], "b": ["x", None]}))
    assert frame.definition() == '"a" bigint, "b" text'
    assert asyncio.run(sent(frame)).to_pylist() == TABLE.to_pylist()


def test_columns_of_pandas_get_their_types() -> None:
    data = pd.DataFrame(
        {
            "c": pd.Categorical(["x", "y"]),
            "t": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "z": pd.to_datetime(["2020-01-01", "2020-01-02"], utc=True),
            "d": pd.to_timedelta(["1s", "2s"]),
            "l": [[1], [2]],
            "f": [1.5, None],
        }
    )
    assert frame_of(data).definition() == (
        '"c" text, "t" timestamp, "z" timestamptz, "d" interval, "l" bigint[], "f" double precision'
    )


def test_what_is_no_rows_is_refused() -> None:
    with pytest.raises(FeatureNotSupported, match="rows of type int"):
        frame_of(5)
    frame = frame_of(pa.table({"s": [{"a": 1}]}))
    with pytest.raises(FeatureNotSupported, match='column "s"'):
        frame.definition()


def test_files_are_found_by_name_directory_and_pattern(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    for name in ("d/a.parquet", "d/e/b.parquet"):
        pq.write_table(TABLE, tmp_path / name)
    places: list[Any] = [
        tmp_path / "d",
        tmp_path / "d" / "**" / "*.parquet",
        [tmp_path / "d" / "a.parquet", str(tmp_path / "d" / "e")],
    ]
    for place in places:
        frame = frame_of_files(place, "parquet")
        assert asyncio.run(sent(frame)).num_rows == 4
    with pytest.raises(UndefinedFile, match="nothing"):
        frame_of_files(tmp_path / "nothing*.parquet", "parquet")


def test_result_shows_itself_as_a_table() -> None:
    result = Result(pa.table({"name": ["ann", None, "x\ny"], "n": [1, 22, 333]}), "COPY 3")
    assert repr(result).splitlines() == [
        "name | n",
        "-----+----",
        "ann  | 1",
        "NULL | 22",
        "x\\ny | 333",
        "(3 rows)",
    ]
    assert "<td>ann</td>" in result._repr_html_()
    assert repr(Result(pa.table({}), "CREATE TABLE")) == "CREATE TABLE"
    assert repr(Result(pa.table({"n": range(30)}))).endswith("(30 rows, 20 shown)")
    assert result.fetchall() == [("ann", 1), (None, 22), ("x\ny", 333)]
    assert (result.fetchone(), result.scalar(), len(result)) == (("ann", 1), "ann", 3)
    assert list(result.df()["n"]) == [1, 22, 333]


def test_lazy_frames_and_series_are_sent() -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [1, 2, 3], "b": ["x", None, "z"]}).filter(polars.col("a") < 3)
    assert asyncio.run(sent(frame_of(lazy))).to_pylist() == TABLE.to_pylist()
    for series in (pd.Series([1, 2], name="a"), polars.Series("a", [1, 2])):
        assert asyncio.run(sent(frame_of(series))).to_pylist() == [{"a": 1}, {"a": 2}]


def test_index_of_pandas_is_sent_if_it_has_a_name() -> None:
    sums = pd.DataFrame({"k": ["x", "x", "y"], "n": [1, 2, 3]}).groupby("k").sum()
    assert frame_of(sums).definition() == '"k" text, "n" bigint'
    assert frame_of(sums.rename_axis(None)).definition() == '"n" bigint'
    index = pd.MultiIndex.from_tuples([("x", 1)], names=["k", None])
    partly = frame_of(pd.DataFrame({"n": [1]}, index=index))
    assert partly.definition() == '"k" text, "n" bigint'
    assert frame_of(pd.DataFrame([[1, 2.5]])).definition() == '"0" bigint, "1" double precision'


def test_column_of_several_types_is_an_error_that_names_it() -> None:
    with pytest.raises(DatatypeMismatch, match='column "d"') as raised:
        frame_of(pd.DataFrame({"d": [1, "a"]}))
    assert "astype(str)" in (raised.value.hint or "")
    with pytest.raises(FeatureNotSupported) as refused:
        frame_of(pd.DataFrame({"d": [{"a": 1}]})).definition()
    assert "json.dumps" in (refused.value.hint or "")


def test_keys_of_later_dicts_are_columns() -> None:
    found = asyncio.run(sent(frame_of([{"a": 1}, {"a": 2, "b": "x"}])))
    assert found.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_numbers_that_a_table_would_round_are_errors() -> None:
    table = pa.schema({"n": pa.int64(), "p": pa.decimal128(4, 1), "u": UNSCALED})
    for data in (
        {"n": [4.0, None], "p": [Decimal("2.50")], "u": [Decimal("1.5")]},
        {"u": [Decimal(1) / 3]},
        {"other": [1.5]},
    ):
        columns = [{name: values} for name, values in data.items()]
        for each in columns:
            rows = frame_of(each)
            assert asyncio.run(sent(unrounded(rows, table))).to_pydict() == each
    wrong: list[dict[str, Any]] = [
        {"n": [1.0, 1.5]},
        {"n": [Decimal("1.5")]},
        {"p": [Decimal("2.55")]},
    ]
    for each in wrong:
        with pytest.raises(DatatypeMismatch, match="column"):
            asyncio.run(sent(unrounded(frame_of(each), table)))
