"""What is wrong with Arrow's values, and with files, is said in our own words."""

import io
import json

import duckdb
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from foreshore.arrow_errors import describe_arrow_error, describe_file_error

MORE_DIGITS = "it has a value with more digits than microseconds have"


def cast(value: int, type: pa.DataType, target: pa.DataType) -> None:
    pa.array([value], type).cast(target)


def validated(value: int, type: pa.DataType) -> None:
    array = pa.array([value], pa.int64()).view(type)
    pa.RecordBatch.from_arrays([array], names=["a"]).validate(full=True)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: cast(1, pa.timestamp("ns"), pa.timestamp("us")), MORE_DIGITS),
        (lambda: cast(1, pa.duration("ns"), pa.duration("us")), MORE_DIGITS),
        (lambda: cast(2**60, pa.timestamp("s"), pa.timestamp("us")), "it has a value out of range"),
        (lambda: cast(2**40, pa.int64(), pa.int32()), "it has a value out of range"),
        (lambda: validated(-5, pa.time64("us")), "column 1 has a time out of range"),
        (lambda: validated(86_400_001, pa.date64()), "column 1 has a date with a part of a day"),
        (lambda: b"\xff".decode(), "it has text that is not valid UTF8"),
        (lambda: pa.array([1]).cast(pa.struct([])), "it has a type that is not supported"),
    ],
)
def test_a_wrong_value_is_described(run: object, expected: str) -> None:
    assert callable(run)
    with pytest.raises((pa.ArrowException, UnicodeDecodeError)) as raised:
        run()
    assert describe_arrow_error(raised.value) == expected


def read_csv(text: bytes, *, threads: bool = False) -> None:
    convert = csv.ConvertOptions(column_types={"a": pa.string()})
    csv.read_csv(io.BytesIO(text), csv.ReadOptions(use_threads=threads), convert_options=convert)


GOOD = json.dumps({"a": 1})


def read_json(lines: list[str], path: str) -> None:
    with open(path, "w") as file:
        file.write("\n".join(lines))
    duckdb.sql(f"SELECT * FROM read_json('{path}', format = 'newline_delimited')").fetchall()


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda _: read_csv(b"a\n1\n2,3\n"), "row 3 has 2 columns, and must have 1"),
        (lambda _: read_csv(b"a\n\xe9\n"), "row 2 is not valid UTF8"),
        (lambda _: read_csv(b"a\n1,2\n", threads=True), "a row has 2 columns, and must have 1"),
        (lambda _: read_csv(b""), "it is empty"),
        (lambda _: pq.read_table(io.BytesIO(b"")), "it is empty"),
        (lambda _: pq.read_table(io.BytesIO(b"hello")), "it is damaged, or of another format"),
        (lambda p: read_json([GOOD, '{"a" 1}', GOOD], p), "it has malformed JSON"),
    ],
)
def test_a_wrong_file_is_described(run: object, expected: str, tmp_path: object) -> None:
    assert callable(run)
    with pytest.raises((pa.ArrowException, duckdb.Error)) as raised:
        run(f"{tmp_path}/a.json")
    assert describe_file_error(raised.value) == expected
