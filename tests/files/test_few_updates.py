"""A few updates as tuples are what columns would hold, and come back from the log as they were."""

import sys
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.few_updates import MOST_BYTES, MOST_ROWS, decoded, few_updates, together
from foreshore.storage.consolidate import canonical_nans
from foreshore.table_rows import Row, TableRows, columns_of_rows, updates_at
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    JSONB,
    NUMBER,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMPTZ,
    ColumnType,
    RelationDesc,
    SqlType,
    array_of,
    numeric,
)
from foreshore.update import encode_schema, update_schema
from tests.effort import examples
from tests.harness import ROOT

sys.path.append(str(ROOT / "docs" / "open"))
from foreshore_files import message_of


def integers(bits: int) -> st.SearchStrategy[int]:
    """Return integers of so many bits, their extremes among them."""
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT2: integers(16),
    INT4: integers(32),
    INT8: integers(64),
    FLOAT8: st.floats(),
    TEXT: st.text(),
    JSONB: st.sampled_from(["{}", '{"a": 1}']),
    BYTEA: st.binary(),
    DATE: integers(32),
    TIME_OF_DAY: st.integers(0, 86_400_000_000),
    TIMESTAMPTZ: integers(64),
    numeric(10, 2): st.decimals(-99_999_999, 99_999_999, places=2).map(str),
    numeric(38, 0): integers(120).map(str),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[RelationDesc, list[Row]]:
    """Return a table's columns, and rows of it."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), max_size=5))
    desc = RelationDesc(tuple(f"c{i}" for i in range(len(types))), tuple(map(ColumnType, types)))
    row = st.tuples(*(st.none() | VALUES[type] for type in types))
    return desc, draw(st.lists(row, min_size=1, max_size=5))


def in_columns(desc: RelationDesc, rows: list[Row], time: int) -> pa.Table:
    """Return insertions in the columns that statements over many rows make."""
    columns = [canonical_nans(each) for each in columns_of_rows(rows, desc.columns)]
    columns += [pa.array([value] * len(rows), pa.int64()) for value in (time, 1)]
    return pa.Table.from_arrays(columns, schema=update_schema(desc.stored_schema()))


@settings(max_examples=examples(300))
@given(tables(), st.integers(0, 2**62))
def test_tuples_are_the_columns_also_when_read_back(
    table: tuple[RelationDesc, list[Row]], time: int
) -> None:
    desc, rows = table
    few = few_updates(update_schema(desc.stored_schema()), time, rows, [1] * len(rows))
    has_nan = any(value != value for row in rows for value in row)
    assert (few is None) is has_nan
    if few is None:
        return
    expected = in_columns(desc, rows, time)
    assert few.table.equals(expected)
    again = decoded(few.schema, time, few.encoded, few.diffs)
    assert again.table.equals(expected)
    assert together([few, again]).equals(pa.concat_tables([expected, expected]).combine_chunks())
    message = message_of(
        encode_schema(few.schema), [list(row) for row in rows], time, [1] * len(rows)
    )
    read = pa.ipc.read_record_batch(pa.py_buffer(message), few.schema)
    assert pa.Table.from_batches([read]).equals(expected)


def test_what_is_not_plain_is_left_to_columns() -> None:
    def few(type: SqlType, value: Any, count: int = 1) -> object:
        desc = RelationDesc(("c",), (ColumnType(type),))
        return few_updates(update_schema(desc.stored_schema()), 1, [(value,)] * count, [1] * count)

    for type, value in (
        (NUMBER, "1"),
        (array_of(INT4), (1,)),
        (INT2, 2**15),
        (INT4, True),
        (TEXT, "\ud800"),
        (numeric(4, 2), "1.234"),
        (numeric(38, 30), "123456789"),
    ):
        assert few(type, value) is None, (type, value)
    assert few(INT4, 1, MOST_ROWS) is not None
    assert few(INT4, 1, MOST_ROWS + 1) is None


def test_many_rows_of_statements_become_columns() -> None:
    desc = RelationDesc(("c",), (ColumnType(INT4),))
    rows = TableRows(desc, [(1,)] * (MOST_ROWS + 1))
    assert isinstance(updates_at([rows], 5), pa.Table)


def test_long_updates_become_columns() -> None:
    """The events of a group have a length of 32 bits, and many statements may be in a group."""
    desc = RelationDesc(("t",), (ColumnType(TEXT, True),))
    for length, is_few in ((MOST_BYTES // 2, True), (MOST_BYTES, False)):
        updates = updates_at([TableRows(desc, [("x" * length,)])], 1)
        assert isinstance(updates, pa.Table) is not is_few
