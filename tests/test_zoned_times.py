"""Stored forms of timetz and money: they keep values, sort as PostgreSQL's do, and are sent."""

from itertools import product

import pytest

from foreshore.errors import DataError
from foreshore.money import MOST_CENTS, money_text, parse_money
from foreshore.output_style import OutputStyle
from foreshore.server.cells import binary_cell
from foreshore.server.parameters import _BINARY
from foreshore.types import MONEY, TIMETZ
from foreshore.zoned_times import stored_zoned_time, zoned_time_of

TIMES = list(
    product((0, 1, 36_000_000_000, 86_400_000_000), (-57_599, -3600, -1, 0, 1, 19_800, 57_599))
)


def test_zoned_times_are_read_and_sent_as_they_were() -> None:
    for micros, offset in TIMES:
        datum = stored_zoned_time(micros, offset)
        assert zoned_time_of(datum) == (micros, offset)
        sent = binary_cell(TIMETZ)(datum, OutputStyle())
        assert sent[4:] == micros.to_bytes(8, "big") + (-offset).to_bytes(4, "big", signed=True)
        assert _BINARY["timetz"](memoryview(sent)[4:], TIMETZ) == datum


def test_zoned_times_sort_by_utc_and_then_by_the_offset_westwards() -> None:
    ordered = sorted(TIMES, key=lambda time: (time[0] - time[1] * 1_000_000, -time[1]))
    assert sorted(stored_zoned_time(*time) for time in TIMES) == [
        stored_zoned_time(*time) for time in ordered
    ]


def test_money_is_read_back_from_its_text_and_from_binary() -> None:
    for cents in (0, 1, -1, 99, 100, -123_456_789, MOST_CENTS, -MOST_CENTS - 1):
        assert parse_money(money_text(cents)) == cents
        sent = binary_cell(MONEY)(cents, OutputStyle())
        assert _BINARY["money"](memoryview(sent)[4:], MONEY) == cents


def test_an_offset_of_sixteen_hours_in_binary_is_an_error() -> None:
    with pytest.raises(DataError, match="displacement"):
        _BINARY["timetz"](memoryview(bytes(8) + (57_600).to_bytes(4, "big")), TIMETZ)
