"""Rows of a table are the same as tuples and as columns, whichever form they came in."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.few_updates import FewUpdates
from foreshore.rows import count, counted, negated, repeated, split_diffs, table_of
from foreshore.table_rows import Row, TableRows, updates_at
from foreshore.types import BOOL, INT4, TEXT, ColumnType, RelationDesc, numeric
from foreshore.update import DIFF, TIME
from tests.effort import examples

TYPES = (INT4, TEXT, BOOL, numeric(10, 2))
DESC = RelationDesc(("a", "b", "c", "d"), tuple(map(ColumnType, TYPES)))

rows = st.lists(
    st.tuples(
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from(["", "x", "long enough to matter"]),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["0.00", "1.25", "-3.50"]),
    ),
    max_size=8,
)


@settings(max_examples=examples(100))
@given(rows)
def test_columns_made_of_tuples_give_the_same_tuples(tuples: list[Row]) -> None:
    came = TableRows(DESC, tuples)
    again = TableRows.of_table(DESC, came.table)
    assert again.num_rows == came.num_rows == again.count == len(tuples)
    assert [list(map(str, row)) for row in again.tuples] == [list(map(str, row)) for row in tuples]
    assert list(again.diffs) == [1] * len(tuples)


@settings(max_examples=examples(100))
@given(rows)
def test_deleted_rows_are_the_same_in_both_forms(tuples: list[Row]) -> None:
    by_tuples = TableRows(DESC, tuples).deleted()
    by_columns = TableRows.of_table(DESC, TableRows(DESC, tuples).table).deleted()
    assert by_tuples.are_tuples
    assert not by_columns.are_tuples
    assert by_tuples.count == by_columns.count == -len(tuples)
    assert by_tuples.table.equals(by_columns.table)


def test_updates_of_several_parts_are_at_one_time() -> None:
    first = TableRows(DESC, [(1, "a", True, None)])
    second = first.deleted()
    few = updates_at([first, second], 7)
    assert isinstance(few, FewUpdates)
    updates = few.table
    assert updates[TIME].to_pylist() == [7, 7]
    assert updates[DIFF].to_pylist() == [1, -1]
    assert updates.schema.names == ["a", "b", "c", "d", TIME, DIFF]


def test_rows_without_columns_are_counted() -> None:
    none = RelationDesc((), ())
    assert TableRows(none, [(), ()]).table.num_rows == 2
    assert list(TableRows.of_table(none, table_of([], pa.array([1, 1]))).tuples) == [(), ()]


def test_multiplicities_are_split_repeated_and_negated() -> None:
    table = table_of([pa.array(["a", "b", "c"])], pa.array([2, 0, 1]))
    assert count(table) == 3
    (column,), diffs = split_diffs(repeated(table))
    assert column.to_pylist() == ["a", "a", "c"]
    assert diffs.to_pylist() == [1, 1, 1]
    assert negated(table)[DIFF].to_pylist() == [-2, 0, -1]
    assert counted(pa.table({"k": [5, 6]}))[DIFF].to_pylist() == [1, 1]
