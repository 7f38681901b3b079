"""Changelogs: what they publish, keep and drop."""

import pyarrow as pa
import pytest

from foreshore.compute.changelog import KEPT_MS, Changelog, End
from foreshore.errors import DatabaseError, DivisionByZero
from foreshore.update import Timestamp


def updates(*times: int) -> pa.Table:
    columns = {"x": times, "__time": times, "__diff": [1] * len(times)}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def no_error(lower: Timestamp, upper: Timestamp) -> None:
    return None


def taken(log: Changelog, upper: Timestamp = 0) -> list[int]:
    """Return the values of all events that a subscriber at `upper` can take."""
    found: list[int] = []
    while (event := log.event(upper)) is not None:
        found += event.updates["x"].to_pylist()
        upper = event.upper
    return found


class Subscriber:
    def __init__(self, upper: Timestamp) -> None:
        self.upper = upper


@pytest.mark.parametrize("apart", [True, False])
def test_publish_after_an_error_adds_nothing(apart: bool) -> None:
    error = DivisionByZero("division by zero")

    def first(lower: Timestamp, upper: Timestamp) -> tuple[Timestamp, DatabaseError] | None:
        return (max(lower, 5), error) if lower < 7 and upper > 5 else None

    log = Changelog(0, first)
    windows: list[tuple[int, ...]] = [(0, 4, 1, 2), (4, 8, 4, 5, 7), (8, 12, 9)]
    if not apart:
        windows = [(0, 12, 1, 2, 4, 5, 7, 9), (12, 13, 12)]
    for lower, upper, *times in windows:
        log.publish(lower, upper, updates(*times))
    assert taken(log) == [1, 2, 4]
    assert log.frontier == 5
    assert log.end == End(5, error)


def test_event_stays_until_the_slowest_subscriber_has_taken_it() -> None:
    log = Changelog(0, no_error)
    slow, fast = Subscriber(0), Subscriber(11)
    log.subscribers |= {slow, fast}
    log.publish(0, 10, updates(3))
    log.publish(10, 20 + KEPT_MS, updates(11))
    assert taken(log) == [3, 11]
    slow.upper = 10
    log.publish(20 + KEPT_MS, 30 + KEPT_MS, updates(25 + KEPT_MS))
    assert log.has_dropped(9)
    assert not log.has_dropped(10)
    assert taken(log, 10) == [11, 25 + KEPT_MS]


def test_event_stays_for_new_subscribers_while_it_is_recent() -> None:
    log = Changelog(0, no_error)
    log.publish(0, 10, updates(3))
    log.publish(10, 20, updates(11))
    assert log.has_changes(0)
    assert log.event(5) is log.event(0)


def test_contents_are_no_changes_for_subscribers_before_them() -> None:
    log = Changelog(7, no_error, with_contents=True)
    assert log.has_contents(7)
    assert not log.has_contents(8)
    assert log.has_changes(7)
    assert not log.has_changes(6)


def test_part_of_event_is_none_if_it_is_all_of_it() -> None:
    log = Changelog(0, no_error)
    log.publish(0, 10, updates(3, 5, 8))
    event = log.event(0)
    assert event is not None
    assert event.part(0, 10) is None
    part = event.part(4, 8)
    assert part is not None
    assert part["x"].to_pylist() == [5]
