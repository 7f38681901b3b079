"""Rows as JSON: whatever is in them reads back, and shows PostgreSQL's text."""

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.output_style import OutputStyle
from foreshore.server.http import values
from foreshore.server.http.values import RowsAsJson, pieces
from foreshore.types import BOOL, FLOAT8, INT4, INT8, TEXT, ColumnType, RelationDesc, SqlType
from tests.effort import examples
from tests.server.http.serving import Http, over_environment

JSON = SqlType("json")
STYLE = OutputStyle()


def style(*, names: bool) -> OutputStyle:
    return STYLE


def decoded(types: Sequence[SqlType], batch: pa.RecordBatch, *, is_change: bool = False) -> Any:
    names = tuple(f"c{n}" for n in range(len(types)))
    desc = RelationDesc(names, tuple(map(ColumnType, types)))
    data = RowsAsJson(desc, style, is_change=is_change).piece(batch).joined()
    assert b"\n" not in data
    assert b"\r" not in data
    return json.loads(b"[" + data + b"]")


any_text = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows = st.lists(
    st.tuples(
        any_text,
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
        st.none() | st.floats(),
        st.none() | st.recursive(any_text, partial(st.lists, max_size=3), max_leaves=4),
    ),
    max_size=20,
)


@settings(max_examples=examples(200))
@given(rows, st.integers(0, 5))
def test_rows_read_back_from_any_slice(found: list[tuple[Any, ...]], begin: int) -> None:
    types = (TEXT, INT4, INT8, BOOL, FLOAT8, JSON)
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in types]
    columns[5] = [None if each is None else json.dumps(each, indent=1) for each in columns[5]]
    arrow = [pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.float64(), pa.string()]
    arrays = [pa.array(column, type) for column, type in zip(columns, arrow, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=list("abcdef")).slice(begin)
    got = decoded(types, batch)
    assert len(got) == len(found[begin:])
    for have, (text, four, eight, flag, real, tree) in zip(got, found[begin:], strict=True):
        assert have[:4] == [text, four, None if eight is None else str(eight), flag]
        if real is not None and not math.isfinite(real):
            assert have[4] in ("NaN", "Infinity", "-Infinity")
        else:
            assert have[4] == real
        assert have[5] == tree


def test_rows_without_columns_and_changes() -> None:
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert decoded((), nothing) == [[], []]
    count = pa.array([1, -2], pa.int64())
    only = pa.RecordBatch.from_arrays([count], names=["n"])
    assert decoded((INT8,), only, is_change=True) == [[1, []], [-2, []]]
    both = pa.RecordBatch.from_arrays([count, pa.array(["a", None])], names=["n", "t"])
    assert decoded((INT8, TEXT), both, is_change=True) == [[1, ["a"]], [-2, [None]]]


def test_wide_rows_are_encoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "PIECE_BYTES", 1000)
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 300] * 10)], names=["t"])
    assert [each.num_rows for each in pieces(batch)] == [3, 3, 3, 1]
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 3000] * 2)], names=["t"])
    assert [each.num_rows for each in pieces(batch)] == [1, 1]


LITERALS = (
    "DATE '2020-01-02'", "DATE 'infinity'", "TIME '01:02:03.5'", "TIMESTAMP '2020-01-02 03:04:05.678'",
    "TIMESTAMPTZ '0044-03-15 12:00:00 BC'", "INTERVAL '1 year -2 days 03:04'", "12345.678900::numeric(20, 8)",
    "'NaN'::numeric", "1e30::numeric", "'\\xdeadbeef'::bytea", "'a  '::char(5)", "ARRAY[[1, 2], [3, NULL]]",
    "ARRAY['a\"b', 'c\\d', NULL]", "ROW(1, 'a b', NULL)", "'192.0.2.1/24'::inet", "B'1011'", "int4range(1, 5)",
    "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid", "'$.a[*]'::jsonpath", "'1.50'::money", "'TIMETZ'::name",
    "'pg_class'::regclass", "'int4'::regtype", "1::oid", "'x'::\"char\"", "TIMETZ '01:02:03+05'",
)  # fmt: skip


def test_other_types_are_strings_of_the_text_of_the_port(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        query = f"SELECT {', '.join(LITERALS)}"
        (row,) = await http.rows(query)
        (texts,) = await http.rows(
            "SELECT " + ", ".join(f"({each})::text" for each in LITERALS if "char(5)" not in each)
        )
        padded = row.pop(LITERALS.index("'a  '::char(5)"))
        assert padded == "a    "
        assert row == texts
        many = await http.rows(
            "SELECT DATE '2020-01-01' + g, g::numeric / 8 FROM generate_series(0, 999) g"
        )
        assert many[999][0] == "2022-09-26"
        assert float(many[999][1]) == 999 / 8

    over_environment(tmp_path, go)
