"""The states of a subscription and the transitions between them."""

import pyarrow as pa

from foreshore.compute.changelog import Changelog, End
from foreshore.compute.subscription_states import (
    Ended,
    Following,
    Reading,
    ReportProgress,
    Starting,
    TakeEvent,
    Wait,
    interrupted,
    joined,
    limited,
    next_step,
)
from foreshore.errors import DivisionByZero
from foreshore.update import Timestamp

ERROR = DivisionByZero("division by zero")


def log_from(frontier: Timestamp, *, with_contents: bool = False) -> Changelog:
    return Changelog(frontier, lambda *_: None, with_contents=with_contents)


def publish(log: Changelog, upper: Timestamp, *times: Timestamp) -> None:
    columns = {"x": times, "__time": times, "__diff": [1] * len(times)}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    log.publish(log.frontier, upper, table)


def test_joining_changelog_that_begins_with_contents_reads_nothing_else() -> None:
    log = log_from(5, with_contents=True)
    assert joined(Starting(5, snapshot=True), log) == Following(5)
    assert joined(Starting(5, snapshot=False), log) == Following(6)


def test_joining_later_reads_contents_if_there_is_a_snapshot() -> None:
    log = log_from(5, with_contents=True)
    assert joined(Starting(7, snapshot=True), log) == Reading(7, snapshot=True)
    assert joined(Starting(7, snapshot=False), log) == Following(8)


def test_joining_before_changelog_began_reads_missing_changes() -> None:
    assert joined(Starting(3, snapshot=False), log_from(5)) == Reading(3, snapshot=False)


def test_joining_changelog_that_failed_before_as_of_starts_again() -> None:
    log = log_from(5)
    log.fail(ERROR)
    starting = Starting(7, snapshot=True)
    assert joined(starting, log) == starting
    assert joined(Starting(4, snapshot=True), log) == Reading(4, snapshot=True)


def test_following_takes_event_and_stops_at_the_end() -> None:
    log = log_from(0)
    publish(log, 10, 3, 8)
    event = log.event(0)
    assert event is not None
    step = next_step(Following(1), log, End(5), progress=False)
    assert step == TakeEvent(event, 5, Following(5))
    assert next_step(Following(5), log, End(5), progress=False) == Ended()


def test_following_reports_progress_and_then_waits() -> None:
    log = log_from(4)
    assert next_step(Following(2), log, None, progress=True) == ReportProgress(Following(4))
    assert next_step(Following(4), log, None, progress=True) == Wait(frontier=True)
    assert next_step(Following(4), log, None, progress=False) == Wait(frontier=False)
    assert next_step(Following(4), log, End(9), progress=False) == Wait(frontier=True)


def test_following_a_failed_changelog_takes_its_events_before_the_error() -> None:
    log = log_from(0)
    publish(log, 10, 3)
    log.fail(ERROR)
    assert isinstance(next_step(Following(1), log, None, progress=False), TakeEvent)
    assert next_step(Following(10), log, None, progress=False) == Ended(ERROR)
    assert next_step(Following(10), log, End(10), progress=False) == Ended()


def test_following_reads_again_what_the_changelog_has_dropped() -> None:
    log = log_from(0)
    log._kept_from = 6
    step = next_step(Following(5), log, None, progress=False)
    assert step == Reading(4, snapshot=False)


def test_end_before_as_of_ends_only_a_starting_subscription() -> None:
    end = End(5, ERROR)
    assert limited(Starting(5, snapshot=True), end) == Ended(ERROR)
    assert limited(Starting(4, snapshot=True), end) == Starting(4, snapshot=True)
    assert limited(Following(4), end) == Following(4)


def test_interrupt_ends_a_subscription_that_does_not_follow_yet() -> None:
    assert interrupted(Starting(5, snapshot=True), ERROR) == Ended(ERROR)
    assert interrupted(Reading(5, snapshot=True), ERROR) == Ended(ERROR)
    assert interrupted(Following(5), ERROR) == Following(5)
