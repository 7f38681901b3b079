"""Text forms equal PostgreSQL 15's recorded answers (`text.json`: type, input, outcome)."""

import json
import math
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.errors import DatabaseError, InvalidTextRepresentation
from foreshore.output_style import OutputStyle
from foreshore.text import format_text, parse_text
from foreshore.types import (
    CHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNSIGNED,
    VARCHAR,
    SqlType,
    array_of,
    numeric,
)

RECORDED = json.loads((Path(__file__).parent / "text.json").read_text())


def type_named(name: str) -> SqlType:
    if name.endswith("[]"):
        return array_of(type_named(name[:-2]))
    if (sized := re.match(r"(\w+)\((\d+)(?:,(\d+))?\)", name)) is not None:
        if sized[1] == "numeric":
            return numeric(int(sized[2]), int(sized[3]))
        return SqlType(sized[1], int(sized[2]))
    return {'"char"': CHAR, "numeric": NUMERIC}.get(name) or SqlType(name)


def outcome(text: str, type: SqlType) -> str:
    try:
        return "= " + format_text(parse_text(text, type), type)
    except DatabaseError as error:
        extra = [part for part in (error.detail, error.hint) if part]
        return " | ".join([f"! {error.sqlstate} {error.message}", *extra])


@pytest.mark.parametrize("name", sorted({name for name, _, _ in RECORDED}))
def test_values_are_read_and_shown_as_postgresql_does(name: str) -> None:
    cases = [(text, wanted) for of, text, wanted in RECORDED if of == name]
    assert [(text, outcome(text, type_named(name))) for text, _ in cases] == cases


@given(st.floats(allow_nan=False))
def test_shown_doubles_read_back(value: float) -> None:
    assert parse_text(format_text(value, FLOAT8), FLOAT8) == value


@given(st.floats(width=32, allow_nan=False))
def test_shown_singles_read_back(value: float) -> None:
    assert parse_text(format_text(value, FLOAT4), FLOAT4) == value


def test_shown_float_does_not_rely_on_rounding_to_even() -> None:
    assert format_text(1e23, FLOAT8) == "9.999999999999999e+22"
    assert format_text(60000002048.0, FLOAT4) == "6.0000002e+10"


@given(st.integers(-(2**51), 2**60))
def test_shown_timestamps_read_back(micros: int) -> None:
    assert parse_text(format_text(micros, TIMESTAMP), TIMESTAMP) == micros
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        shown = format_text(micros, TIMESTAMPTZ, OutputStyle(zone))
        assert parse_text(shown, TIMESTAMPTZ, zone="Europe/Berlin") == micros


@given(st.integers(-2_440_588, 2_145_042_905))
def test_shown_dates_read_back(days: int) -> None:
    assert parse_text(format_text(days, DATE), DATE) == days


@given(st.tuples(*(st.integers(-bound, bound) for bound in (2**31 - 1, 2**31 - 1, 2**62))))
def test_shown_intervals_read_back(value: tuple[int, int, int]) -> None:
    assert parse_text(format_text(value, INTERVAL), INTERVAL) == value


@given(st.lists(st.none() | st.text().filter(lambda text: "\x00" not in text)))
def test_shown_arrays_read_back(values: list[str | None]) -> None:
    type = array_of(TEXT)
    assert parse_text(format_text(tuple(values), type), type) == tuple(values)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text().filter(lambda text: "\x00" not in text),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\n"), inner),
)


@given(json_values)
def test_json_round_trips(value: object) -> None:
    canonical = parse_text(json.dumps(value), JSONB)
    assert isinstance(canonical, str)
    assert json.loads(canonical) == value
    assert parse_text(canonical, JSONB) == canonical


def test_skipped_and_repeated_local_times_use_smaller_offset() -> None:
    zone = "America/New_York"
    shown = [
        format_text(parse_text(text, TIMESTAMPTZ, zone=zone), TIMESTAMPTZ)
        for text in ("2013-03-10 02:30", "2013-11-03 01:30")
    ]
    assert shown == ["2013-03-10 07:30:00+00", "2013-11-03 06:30:00+00"]


def test_date_words_use_transaction_time() -> None:
    now = 1_700_000_000_123_456
    assert parse_text("now", TIMESTAMPTZ, now=now) == now
    assert parse_text("today", DATE, zone="Asia/Tokyo", now=now) == now // 86_400_000_000 + 1
    with pytest.raises(DatabaseError, match="not supported"):
        parse_text("now", TIMESTAMPTZ)


def test_assignment_does_not_truncate_text() -> None:
    with pytest.raises(DatabaseError) as caught:
        parse_text("abcd", SqlType("varchar", 3))
    assert caught.value.sqlstate == "22001"
    assert caught.value.message == "value too long for type character varying(3)"
    assert parse_text("abc   ", SqlType("varchar", 3)) == "abc"
    assert parse_text("abcd", VARCHAR) == "abcd"


def test_numerics_beyond_precision_are_refused() -> None:
    for text in ("1e-21", "1e30", "0.123456789012345678901"):
        with pytest.raises(DatabaseError, match="numeric field overflow"):
            parse_text(text, NUMERIC)
    assert parse_text("0.50", NUMERIC) == "0.5"


def test_nan_has_one_bit_pattern() -> None:
    value = parse_text("nan", FLOAT8)
    assert isinstance(value, float)
    assert math.isnan(value)
    assert struct.pack("!d", value) == b"\x7f\xf8" + b"\0" * 6


@pytest.mark.parametrize("name", sorted(UNSIGNED))
def test_unsigned_integers_of_any_length_are_read(name: str) -> None:
    assert parse_text("+" + "0" * 5000 + "7", SqlType(name)) == parse_text("7", SqlType(name))
    for digits in ("9" * 5000, "1" + "0" * 20):
        with pytest.raises(InvalidTextRepresentation) as raised:
            parse_text(digits, SqlType(name))
        assert raised.value.sqlstate == "22003"


def test_days_of_a_year_are_read() -> None:
    for text, date in [
        ("2020.366", "2020-12-31"),
        ("2019.366", "2020-01-01"),
        ("2019-366", "2020-01-01"),
        ("012.001", "0012-01-01"),
    ]:
        assert format_text(parse_text(text, DATE), DATE) == date
    for text in ("2019.367", "2020-367", "2020.000", "99.001", "12.345"):
        with pytest.raises(DatabaseError, match="invalid input syntax"):
            parse_text(text, DATE)
