"""to_char, to_number, to_timestamp and to_date take any template and any value.

A row ends with a value or with an error of PostgreSQL's, and neither depends on the rows beside it.
"""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.datum import from_array, to_array
from foreshore.expr.functions.function import BY_KEY
from foreshore.expr.functions.registry import signature
from foreshore.expr.functions.resolve import resolve
from foreshore.expr.ir import Call, Column
from foreshore.numbers import column_of
from foreshore.types import (
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    NUMBER,
    TEXT,
    TIMESTAMP,
    SqlType,
)
from tests.effort import examples

ANY = ("", " ", "  ", "\u20ac", "\u0661", '"x"', '"', "\\", "-", ".", ",", "/")
NUMBERS = (
    *"9 0 D G S MI PL SG PR RN rn TH th V EEEE FM L B SP 9999 0000 9.99".split(),
    "9" * 40, *ANY,
)  # fmt: skip
TIMES = (
    *"YYYY YYY YY Y Y,YYY IYYY IYY IY I MM MON Mon mon MONTH Month DD DDD D ID IDDD HH HH12".split(),
    *"HH24 MI SS MS US SSSS SSSSS AM PM a.m. B.C. AD bc TZ tz TZH TZM OF J Q RM rm WW IW W CC".split(),
    *"FM FX TH th SP TM FF1 FF3 FF6 9".split(), *ANY,
)  # fmt: skip
READ_NUMBERS = (
    *"1 -1 +1 1.5 1,234.5 <12> -0.0 12- 1e5 99999999999999999999 abc 12TH".split(),
    "1" * 400, f"0.{'1' * 40}", *ANY,
)  # fmt: skip
READ_TIMES = (
    *"2024-01-02 20240102 2024 0001 -1 12:30:45.678 24:00 99 999999 0 AM pm a.m. bc +05".split(),
    *"-12:30 UTC CET XII 2460000 5874897 jan january Q4 53 366 999999999999999999999".split(),
    "4713 BC", "1 Jan 2024", "feb 30", "1" * 50, *ANY,
)  # fmt: skip
SHOWN: dict[SqlType, tuple[Any, ...]] = {
    INT4: (0, 12, -1, 4000, 2**31 - 1, -(2**31)),
    INT8: (0, 10**15, 2**63 - 1, -(2**63)),
    FLOAT4: (0.0, 1.5, math.nan, math.inf, 3.4e38),
    FLOAT8: (0.0, -1.005, math.nan, math.inf, -math.inf, 1e308, 5e-324),
    NUMBER: tuple(
        map(Decimal, ("0", "-1.5", "NaN", "Infinity", "-Infinity", "1e-300", "1" * 5000))
    ),
    TIMESTAMP: (0, -210_866_803_200_000_000, 2**63 - 2, 2**63 - 1, -(2**63)),
}
FUNCTIONS = {"to_number": (NUMBERS, READ_NUMBERS)}
FUNCTIONS |= dict.fromkeys(("to_timestamp", "to_date"), (TIMES, READ_TIMES))


def _called(name: str, type: SqlType, rows: list[tuple[Any, str]]) -> list[tuple[Any, Any]]:
    """Return the value and the error of each row."""
    found = resolve(name, (type, TEXT))
    values = [value for value, _ in rows]
    first = column_of(values) if type == NUMBER else to_array(values, found.arg_types[0])
    args = tuple(Column(i, each) for i, each in enumerate(found.arg_types))
    call = Call(found.key, args, found.result)
    texts = pa.array([template for _, template in rows], pa.string())
    outcome = BY_KEY[found.key].kernel(signature(call), first, texts)
    column, errors = outcome if isinstance(outcome, tuple) else (outcome, None)
    messages = [None] * len(rows) if errors is None else errors.to_pylist()
    return list(zip(from_array(column, found.result), messages, strict=True))


def _check(name: str, type: SqlType, rows: list[tuple[Any, str]]) -> None:
    found = _called(name, type, rows)
    for row, (value, error) in zip(rows, found, strict=True):
        assert error is None or not error.startswith("XX"), (row, error)
        assert error is None or value is None, row
        assert repr(_called(name, type, [row])) == repr([(value, error)]), row


def _texts(parts: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=6).map("".join)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=examples(100))
@given(st.data())
def test_reading_by_a_template_gives_a_value_or_an_error(name: str, data: st.DataObject) -> None:
    templates, values = FUNCTIONS[name]
    row = st.tuples(_texts(values), _texts(templates))
    _check(name, TEXT, data.draw(st.lists(row, min_size=1, max_size=5)))


@pytest.mark.parametrize("type", SHOWN, ids=str)
@settings(max_examples=examples(50))
@given(st.data())
def test_writing_by_a_template_gives_a_value_or_an_error(
    type: SqlType, data: st.DataObject
) -> None:
    templates = TIMES if type == TIMESTAMP else NUMBERS
    row = st.tuples(st.sampled_from(SHOWN[type]), _texts(templates))
    _check("to_char", type, data.draw(st.lists(row, min_size=1, max_size=5)))


def test_a_text_that_ends_before_the_hours_of_a_zone_is_no_number() -> None:
    for text in ("  ", " ", "", "+"):
        ((_, error),) = _called("to_timestamp", TEXT, [(text, "TZH")])
        assert error == '22007 invalid value "" for "TZH"' or text == "", text


def test_a_number_with_too_many_digits_is_out_of_range() -> None:
    for text in ("1" * 50, f"0.{'1' * 60}"):
        (found,) = _called("to_number", TEXT, [(text, f"{'9' * 50}.{'9' * 70}")])
        assert found == (None, "22003 numeric field overflow")
