"""Values read one at a time are those of their columns; updates those that an arrangement has."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.arrange.row_reader import PointReader, reader_of
from foreshore.datum import from_array, to_array
from foreshore.types import INT4, TEXT, ColumnType, SqlType
from foreshore.update import update_schema
from tests.effort import examples
from tests.server.test_codec import VALUES

SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.string())])


@pytest.mark.parametrize(("type", "values"), VALUES, ids=[str(type) for type, _ in VALUES])
def test_values_equal_those_of_the_column(type: SqlType, values: st.SearchStrategy[Any]) -> None:
    @settings(max_examples=examples(30))
    @given(st.lists(st.none() | values, max_size=12), st.integers(0, 3), st.booleans())
    def hold(data: list[Any], start: int, some_null: bool) -> None:
        if not some_null:
            data = [each for each in data if each is not None]
        column = to_array(data, type).slice(start)
        read = reader_of(column, type)
        assert repr([read(at) for at in range(len(column))]) == repr(from_array(column, type))

    hold()


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.none() | st.text(max_size=3)), max_size=6),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_updates_under_a_hash_are_those_of_the_arrangement(
    windows: list[list[tuple[int, str | None]]], spilled: int
) -> None:
    arrangement = Arrangement("a", SCHEMA, [INT4], lambda rows: [rows.column(0)], 0)
    reader = PointReader(arrangement, [ColumnType(INT4), ColumnType(TEXT)])
    for time, rows in enumerate(windows, 1):
        keys, texts = [row[0] for row in rows], [row[1] for row in rows]
        columns = [to_array(keys, INT4), to_array(texts, TEXT)]
        numbers = [pa.array([time] * len(rows), pa.int64()), pa.array([1] * len(rows), pa.int64())]
        table = pa.Table.from_arrays([*columns, *numbers], schema=update_schema(SCHEMA))
        arrangement.insert(table, time + 1)
        if time % 4 == spilled and arrangement.tail:
            arrangement._spill()
        arrangement.maintain()
        for key in range(5):
            hash = int(hash_columns([pa.array([key], pa.int32())], [INT4], 1)[0])
            expected = [
                (tuple(row.values()), *numbers)
                for part in arrangement.under(hash)
                for row, *numbers in zip(
                    part.rows.to_pylist(),
                    part.row_hashes.tolist(),
                    part.times.tolist(),
                    part.diffs.tolist(),
                    strict=True,
                )
            ]
            found = [tuple(each) for each in reader.under(hash)]
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            if len(expected) > 1:
                with pytest.raises(TooManyRows):
                    reader.under(hash, len(expected) - 1)
