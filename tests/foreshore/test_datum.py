"""Data to columns."""

import pytest

from foreshore.expr.datum import from_array, repeat
from foreshore.types import BOOL, FLOAT8, INT4, INTERVAL, NUMERIC, TEXT, Datum, SqlType, array_of


@pytest.mark.parametrize(
    ("datum", "type"),
    [
        (True, BOOL),
        (7, INT4),
        (0.5, FLOAT8),
        ("1.5", NUMERIC),
        ("a", TEXT),
        ((1, 2, 3), INTERVAL),
        ((1, None), array_of(INT4)),
        ((), array_of(TEXT)),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_value_is_repeated_any_number_of_times(datum: Datum, type: SqlType, rows: int) -> None:
    assert from_array(repeat(None, type, rows), type) == [None] * rows
    assert from_array(repeat(datum, type, rows), type) == [datum] * rows
