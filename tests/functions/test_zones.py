"""Offsets of whole columns equal those of Python's `zoneinfo` for each row."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore import calendar
from foreshore.expr.functions.temporal import zone_of
from foreshore.expr.functions.zones import local_offsets, utc_offsets
from tests.zones import CHANGES, EPOCH, local_of, micros_of, moment_of, moments, zones


@given(zones, st.lists(moments, min_size=1, max_size=6))
def test_column_offsets_equal_zoneinfo(name: str, ats: list[datetime]) -> None:
    zone, ours = ZoneInfo(name), calendar.zone_named(name)
    column = np.array([micros_of(at) for at in ats])
    assert datetimes(column + utc_offsets(ours, column)) == [local_of(zone, at) for at in ats]
    assert datetimes(column - local_offsets(ours, column)) == [moment_of(zone, at) for at in ats]


def datetimes(column: Any) -> list[datetime]:
    return [EPOCH + timedelta(microseconds=micros) for micros in column.tolist()]


@pytest.mark.parametrize(
    ("name", "hours"),
    [("<+02>-02", 2), ("<-03>+03", -3), ("-3", 3), ("+05:30", -5.5), ("CET", 1), ("pst", -8)],
)
def test_fixed_zone_has_one_offset(name: str, hours: float) -> None:
    found = utc_offsets(zone_of(name), np.array([micros_of(at) for at in CHANGES]))
    assert set(found.tolist()) == {hours * 3600e6}
