"""What is wrong with a frame or a file is said in words of the database, never in Arrow's."""

import gzip
import io
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.csv_quotes import ends_in_quotes
from foreshore.embedded.frames import frame_of, frame_of_files, unrounded
from foreshore.embedded.literals import literal, quoted_name, with_parameters
from foreshore.errors import DatabaseError
from tests.effort import examples

FOREIGN = re.compile(
    r"ArrowInvalid|pyarrow|Invalid:|Could not convert|tried to convert|Casting from|Rescaling|inferring"
    r"|Error creating dataset|magic bytes|CSV parse|too large to convert|not iterable|dtype|codec",
    re.IGNORECASE,
)


def check(run: Callable[[], Any], code: str, message: str) -> None:
    with pytest.raises(DatabaseError) as raised:
        run()
    error = raised.value
    said = f"{error.message} {error.detail}"
    assert (error.sqlstate, message in said) == (code, True), said
    for text in (error.message, error.detail, error.hint):
        assert text is None or FOREIGN.search(text) is None, text


FRAMES: dict[str, tuple[Any, str, str]] = {
    "types": ({"a": [1, "x"]}, "42804", 'column "a" has values of types int and str'),
    "types of rows": ([{"a": 1}, {"a": "x"}], "42804", 'column "a" has values of types'),
    "pandas": (pd.DataFrame({"a": [1, "x"]}), "42804", 'column "a" has values of types'),
    "categories": (pd.DataFrame({"a": pd.Categorical([1, "x"])}), "42804", 'column "a" has'),
    "object": ({"a": [object()]}, "42804", "values of type object, which SQL has not"),
    "complex": ({"a": np.array([1j])}, "42804", "which SQL has not"),
    "big": ({"a": [2**70]}, "42804", "integers beyond 64 bits"),
    "big in pandas": (pd.DataFrame({"a": [2**70]}), "42804", "integers beyond 64 bits"),
    "surrogate": ({"a": ["\ud800"]}, "22021", "not valid UTF8"),
    "lengths": ({"a": [1, 2], "b": ["x"]}, "22023", "columns have 1 and 2 rows"),
    "scalar": ({"a": 5}, "22023", 'column "a" is of type int, and must be a list'),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "42701", "specified more than once"),
    "rows": ([{"a": 1}, 2], "0A000", "rows of type list"),
    "nothing": (None, "0A000", "rows of type NoneType"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_has_no_rows_is_explained(name: str) -> None:
    data, code, message = FRAMES[name]
    check(lambda: frame_of(data), code, message)


@pytest.mark.parametrize(
    ("values", "type", "message"),
    [
        (pa.array([1.0, 2.0, 2.5]), pa.int32(), 'column "a": 2.5 is not an integer'),
        (pa.array([1.0, float("nan")]), pa.int32(), "nan is not an integer"),
        (pa.array([Decimal("1.25")]), pa.decimal128(38, 1), "1.25 is not a number of 1 decimals"),
    ],
)
def test_a_number_that_would_be_rounded_is_named(
    values: pa.Array, type: pa.DataType, message: str
) -> None:
    frame = unrounded(frame_of({"a": values}), pa.schema({"a": type}))
    check(lambda: list(frame.batches), "42804", message)


def _cut(folder: Path) -> Path:
    pq.write_table(pa.table({"a": range(1000)}), folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-20])
    return folder / "cut.parquet"


def _mixed(folder: Path) -> Path:
    pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), folder / "b.parquet")
    return folder


def _text(name: str, text: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(text)
        return folder / name

    return write


FILES: dict[str, tuple[str, Callable[[Path], Path], str, str]] = {
    "no parquet": ("parquet", _text("g.parquet", b"hello"), "22P04", "not a readable parquet"),
    "no bytes": ("parquet", _text("z.parquet", b""), "22P04", "not a readable parquet"),
    "cut off": ("parquet", _cut, "22P04", "not a readable parquet"),
    "two types": ("parquet", _mixed, "42804", 'column "a" is of type string in file'),
    "ragged": ("csv", _text("r.csv", b"a,b\n1\n1,2,3\n"), "22P04", "not a readable csv"),
    "ragged late": (
        "csv",
        _text("r.csv", b"a,b\n" + b"1,2\n" * 400_000 + b"1,2,3\n"),
        "22P04",
        "Row 400002 has 3",
    ),
    "ragged and packed": (
        "csv",
        _text("r.csv.gz", gzip.compress(b"a,b\n1,2\n1,2,3\n")),
        "22P04",
        "Row 3 has 3",
    ),
    "two of one name": ("csv", _text("d.csv", b"a,a\n1,2\n"), "22P04", 'several columns "a"'),
    **{
        f"no UTF8 {name}": (
            "csv",
            _text("u.csv", text),
            "22021",
            f'"UTF8": 0xff It is in line {line},',
        )
        for name, text, line in (
            ("in a value", b"a,b\n1,x\n2,\xff\n", 3),
            ("in a name", b"a,b\xff\n1,x\n", 1),
            ("late", b"a,b\n" + "1,é\n".encode() * 400_000 + b"1,\xff\n", 400_002),
            ("cut off", b"a,b\n1,x\xff", 2),
        )
    },
    "no UTF8 and packed": ("csv", _text("u.csv.gz", gzip.compress(b"a\n\xff\n")), "22021", "0xff"),
    "open quote packed": (
        "csv",
        _text("q.csv.gz", gzip.compress(b'a,b\n1,"x\n2,y\n')),
        "22P04",
        "unterminated",
    ),
    "no lines": ("csv", _text("e.csv", b""), "22P04", "not a readable csv"),
    "late": ("csv", _text("t.csv", b"a\n" + b"1\n" * 900_000 + b"x\n"), "22P04", 'value "x"'),
    **{
        f"open quote {text!r}": ("csv", _text("q.csv", text), "22P04", "unterminated CSV quoted")
        for text in (
            b'a,b\n1,"x\n',
            b'a,b\n1,"x',
            b'a,b\n1,"x\n2,y\n',
            b'a\n"',
            b'a\n"x\r\ny\r\n',
            b'a,b\n1,"x ""y\n',
            b'a,b\n1,"x""',
            b'a,b\n1,"2',
            b'a,b\nx,"',
            b"a\n" + b"1\n" * 900_000 + b'"2',
        )
    },
    "gone": ("csv", lambda folder: folder / "x.csv", "58P01", "No such file or directory"),
}


@given(st.text('a",\n\r', max_size=12), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_open_quote_is_found_wherever_parts_end(text: str, size: int) -> None:
    state = "begin"
    for letter in text:
        if state == "quoted":
            state = "closing" if letter == '"' else state
        elif state == "closing" and letter == '"':
            state = "quoted"
        elif letter in ",\r\n":
            state = "begin"
        else:
            state = "quoted" if letter == '"' and state == "begin" else "plain"
    assert ends_in_quotes(io.BytesIO(text.encode()), size) == (state == "quoted")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    format, write, code, message = FILES[name]
    path = write(tmp_path)
    check(lambda: list(frame_of_files(path, format).batches), code, message)


@pytest.mark.parametrize(
    "text",
    [
        b'a,b\n1,"x"\n', b'a,b\n1,"x"', b'a,b\n1,"x\n2,y"\n', b'a,b\n1,5" x\n', b'a,b\n1,x"\n',
        b'a,b\n1,""\n', b'a,b\n1,""""', b'a,b\n1,"x"""', b'a,b\n1,","', b'a,b\n1,"2"\n',
        b'a,b\n1,\n', b'a,b\n', b'a,b\n1,"a,""b"\n',
    ],
)  # fmt: skip
def test_quotes_that_are_closed_or_within_a_field_are_read(tmp_path: Path, text: bytes) -> None:
    path = _text("q.csv", text)(tmp_path)
    found = [row for batch in frame_of_files(path, "csv").batches for row in batch.to_pylist()]
    assert found == csv.read_csv(path).to_pylist()


@pytest.mark.parametrize(
    "run",
    [
        lambda text: with_parameters(f"SELECT '{text}'", ()),
        lambda text: with_parameters("SELECT $1", [text]),
        literal,
        quoted_name,
    ],
)
@pytest.mark.parametrize("text", ["a\0", "\ud800", "x\udfff"])
def test_texts_that_the_wire_cannot_carry_are_refused(run: Any, text: str) -> None:
    check(lambda: run(text), "22021", 'invalid byte sequence for encoding "UTF8": 0x')


def test_a_dict_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = value
    check(lambda: literal(value), "22023", "contains itself")
