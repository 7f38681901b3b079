"""Lists of lists in files and Arrow streams are arrays of several dimensions."""

from typing import Any

import pyarrow as pa
import pytest

from foreshore.output_style import OutputStyle
from foreshore.storage.lake.columns import WrongValue, from_file, type_of_file
from foreshore.text import format_text
from foreshore.types import FLOAT8, INT4, INT8, TEXT, SqlType, array_of, numeric, shaped_array

MATRIX = pa.list_(pa.list_(pa.int64()))
ROWS: list[Any] = [[[1, 2], [3, None]], None, [], [[]], [[5]]]
TEXTS = ["{{1,2},{3,NULL}}", None, "{}", "{}", "{{5}}"]


def texts(column: pa.Array, type: SqlType) -> list[str | None]:
    return [
        None if datum is None else format_text(datum, type, OutputStyle())
        for datum in column.to_pylist()
    ]


@pytest.mark.parametrize("element", [INT4, INT8, TEXT, FLOAT8])
@pytest.mark.parametrize("lists", [pa.list_, pa.large_list])
def test_lists_of_lists_are_arrays_of_several_dimensions(lists: Any, element: SqlType) -> None:
    type = shaped_array(element)
    column = pa.array(ROWS, lists(lists(pa.int64())))
    assert texts(from_file("a", column, type), type) == TEXTS
    part = pa.concat_arrays([column, column]).slice(3, 4)  # part of a longer column
    assert texts(from_file("a", part, type), type) == (TEXTS + TEXTS)[3:7]


def test_types_of_nested_lists() -> None:
    assert type_of_file("a", MATRIX)[0] == shaped_array(INT8)
    assert type_of_file("a", pa.list_(MATRIX))[0] == shaped_array(INT8)
    assert type_of_file("a", pa.list_(pa.int64()))[0] == array_of(INT8)


@pytest.mark.parametrize(
    ("column", "type", "found"),
    [
        (pa.array([[[[1]], [[2]]]]), shaped_array(INT4), ["{{{1}},{{2}}}"]),
        (pa.array([[["a", "b c"]]]), shaped_array(TEXT), ['{{a,"b c"}}']),
        (pa.array([[1, 2], None]), shaped_array(INT8), ["{1,2}", None]),
        (pa.array([[1, 2], []]), shaped_array(INT4), ["{1,2}", "{}"]),
        (pa.array(["{{1,2}}"]), shaped_array(INT4), ["{{1,2}}"]),
        (pa.array([[[1.25]]]), shaped_array(numeric(5, 1)), ["{{1.3}}"]),
    ],
)
def test_columns_of_files_become_arrays_of_any_shape(
    column: pa.Array, type: SqlType, found: list[str | None]
) -> None:
    assert texts(from_file("a", column, type), type) == found


@pytest.mark.parametrize(
    ("column", "type", "sqlstate", "row"),
    [
        (pa.array([[[1]], [[1, 2], [3]]]), shaped_array(INT4), "2202E", 1),
        (pa.array([[[1]], [None, [3]]]), shaped_array(INT4), "2202E", 1),
        (pa.array([[[1]]]), array_of(INT4), "0A000", 0),
        (pa.array([None, [[2**40]]]), shaped_array(INT4), "22003", 1),
        (pa.array([[[[[[[[1]]]]]]]]), shaped_array(INT4), "54000", 0),
    ],
)
def test_lists_that_are_no_arrays_tell_their_row(
    column: pa.Array, type: SqlType, sqlstate: str, row: int
) -> None:
    with pytest.raises(WrongValue) as raised:
        from_file("a", column, type)
    assert (raised.value.error.sqlstate, raised.value.row) == (sqlstate, row)
