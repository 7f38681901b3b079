"""Arrays of several dimensions are lists of lists in rows of Python, whatever their elements."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from foreshore.embedded.nested_arrays import TYPE
from foreshore.embedded.result import Result


def of_texts(type: str, *texts: str | None) -> list[Any]:
    field = pa.field("a", pa.string(), metadata={TYPE: f"{type}[]".encode()})
    result = Result(pa.table([pa.array(texts, pa.string())], schema=pa.schema([field])))
    assert list(result.df()["a"]) == [row[0] for row in result.fetchall()]
    return [row[0] for row in result.fetchall()]


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        ("integer", "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        ("bigint", "[0:1]={5,6}", [5, 6]),
        ("double precision", "{{1.5},{-0}}", [[1.5], [-0.0]]),
        ("numeric", "{{1.50,10}}", [[Decimal("1.5"), Decimal(10)]]),
        ("text", '{{"a b",NULL},{"NULL",""}}', [["a b", None], ["NULL", ""]]),
        ("boolean", "{{t},{f}}", [[True], [False]]),
        ("date", "{{2024-02-29}}", [[dt.date(2024, 2, 29)]]),
        (
            "timestamp without time zone",
            '{{"2024-01-01 01:02:03"}}',
            [[dt.datetime(2024, 1, 1, 1, 2, 3)]],
        ),
        ("jsonb", '{{"{\\"a\\": [1]}"}}', [[{"a": [1]}]]),
        (
            "uuid",
            "{{00000000-0000-0000-0000-0000000000ff}}",
            [["00000000-0000-0000-0000-0000000000ff"]],
        ),
        ("mood", "{{sad}}", [["sad"]]),
        ("integer", "{}", []),
    ],
)
def test_arrays_are_lists_of_lists(type: str, text: str, value: Any) -> None:
    assert of_texts(type, text, None, text) == [value, None, value]
