"""Tails: what is heard of a collection with errors."""

import pyarrow as pa
import pytest

from foreshore.adapter.subscribe.changelog import Tail
from foreshore.errors import DatabaseError, DivisionByZero
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


def updates(*times: int) -> pa.Table:
    columns = {"x": times, "__time": times, "__diff": [1] * len(times)}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def heard(tail: Tail) -> list[int]:
    """Return the values of all that can be taken."""
    found: list[int] = []
    for number in range(tail.next):
        event = tail.event(number)
        assert event is not None
        found += event.updates["x"].to_pylist()
    return found


@pytest.mark.parametrize("apart", [True, False])
def test_nothing_is_heard_behind_an_error(apart: bool) -> None:
    error = DivisionByZero("division by zero")

    def first(lower: Timestamp, upper: Timestamp) -> tuple[Timestamp, DatabaseError] | None:
        return (max(lower, 5), error) if lower < 7 and upper > 5 else None

    tail = Tail(GlobalId("u1"), 0, first)
    windows: list[tuple[int, ...]] = [(0, 4, 1, 2), (4, 8, 4, 5, 7), (8, 12, 9)]
    if not apart:
        windows = [(0, 12, 1, 2, 4, 5, 7, 9), (12, 13, 12)]
    for lower, upper, *times in windows:
        tail.publish(lower, upper, updates(*times))
    assert heard(tail) == [1, 2, 4]
    assert tail.frontier == 5
    assert tail.failure is error
