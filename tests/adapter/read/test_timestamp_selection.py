"""The time of a query, case by case: (since, upper) of each input, read_ts, and the choice."""

import pytest

from foreshore.adapter.transaction.timestamp_selection import (
    Interval,
    require_readable,
    select_timestamp,
)
from foreshore.errors import DatabaseError, InvalidParameterValue, NotYetKnown
from foreshore.ids import GlobalId
from foreshore.isolation import BoundedStaleness, Isolation, isolation_of
from foreshore.update import MAX_TIMESTAMP

STRICT: Isolation = "strict serializable"
LOOSE: Isolation = "serializable"
STALE: Isolation = BoundedStaleness(3)


def inputs(*intervals: tuple[int, int]) -> dict[GlobalId, Interval]:
    return {GlobalId(f"u{i}"): Interval(*each) for i, each in enumerate(intervals)}


@pytest.mark.parametrize(
    ("intervals", "isolation", "read_ts", "time", "waits"),
    [
        ([], STRICT, 10, 10, False),
        ([], LOOSE, 10, 10, False),
        ([(0, 11)], STRICT, 10, 10, False),
        ([(0, 11), (0, 5)], STRICT, 10, 10, True),
        ([(0, 11), (0, 5)], LOOSE, 10, 4, False),
        ([(0, 100)], LOOSE, 10, 10, False),
        ([(4, 11), (0, 3)], LOOSE, 10, 4, True),
        ([(12, 12)], STRICT, 10, 12, True),
        ([], STALE, 10, 10, False),
        ([(0, 11)], STALE, 10, 10, False),
        ([(0, 11), (0, 8)], STALE, 10, 7, False),
        ([(7, 11), (0, 8)], STALE, 10, 7, False),
    ],
)
def test_chosen_time_depends_on_level_and_inputs(
    intervals: list[tuple[int, int]], isolation: Isolation, read_ts: int, time: int, waits: bool
) -> None:
    chosen = select_timestamp(inputs(*intervals), isolation, read_ts)
    assert (chosen.time, chosen.waits) == (time, waits)


@pytest.mark.parametrize(
    ("intervals", "at_least", "message", "detail"),
    [
        (
            [(0, 11), (0, 7)],
            None,
            "no answer is at most 3 ms old, and none is waited for",
            '"u1" is known before 7; the newest time is 10.',
        ),
        (
            [(8, 11), (0, 8)],
            None,
            "there is no time at which all of these relations are known, and none is waited for",
            '"u1" is known before 8; the newest time is 10; "u0" is readable from 8 on.',
        ),
        (
            [(11, 20)],
            None,
            "there is no time at which all of these relations are known, and none is waited for",
            '"u0" is known before 20; the newest time is 10; "u0" is readable from 11 on.',
        ),
        (
            [(0, 11), (0, 9)],
            9,
            "no answer at 9 or later is known, and none is waited for",
            '"u1" is known before 9; the newest time is 10.',
        ),
        (
            [],
            14,
            "no answer at 14 or later is known, and none is waited for",
            "The newest time is 10.",
        ),
    ],
)
def test_bounded_staleness_fails_and_names_late_input(
    intervals: list[tuple[int, int]], at_least: int | None, message: str, detail: str
) -> None:
    with pytest.raises(DatabaseError) as refused:
        select_timestamp(inputs(*intervals), STALE, 10, at_least=at_least)
    assert refused.value.sqlstate == "40001"
    assert (refused.value.message, refused.value.detail) == (message, detail)


@pytest.mark.parametrize(
    ("intervals", "isolation", "detail"),
    [
        ([(0, 11), (5, 6)], STALE, None),
        ([(0, 11), (5, 5)], STALE, 'It reads at 5; "u1" is known before 5.'),
        ([(0, 11), (5, 5)], LOOSE, None),
        ([(0, 11), (5, 5)], STRICT, None),
        ([(6, 11), (0, 5)], STALE, 'It reads at 5; "u0" is readable from 6 on.'),
        ([(6, 11)], LOOSE, 'It reads at 5; "u0" is readable from 6 on.'),
        ([], STALE, None),
    ],
)
def test_later_read_at_transaction_time_is_exact_or_refused(
    intervals: list[tuple[int, int]], isolation: Isolation, detail: str | None
) -> None:
    if detail is None:
        require_readable(inputs(*intervals), isolation, 5, str)
        return
    with pytest.raises(DatabaseError) as refused:
        require_readable(inputs(*intervals), isolation, 5, str)
    assert (refused.value.sqlstate, refused.value.detail) == ("40001", detail)


@pytest.mark.parametrize(
    ("level", "isolation"),
    [
        ("strict serializable", STRICT),
        ("serializable", LOOSE),
        ("read committed", STRICT),
        ("bounded staleness 1500ms", BoundedStaleness(1500)),
        ("bounded staleness 2min", BoundedStaleness(120_000)),
    ],
)
def test_isolation_level_from_setting(level: str, isolation: Isolation) -> None:
    assert isolation_of(level) == isolation


@pytest.mark.parametrize(
    ("intervals", "as_of", "waits"),
    [
        ([(3, 11)], 3, False),
        ([(3, 11)], 10, False),
        ([(3, 11)], 11, True),
        ([(3, 11), (0, 7)], 7, True),
        ([(3, 11)], MAX_TIMESTAMP - 1, True),
        ([(3, MAX_TIMESTAMP)], 99, False),
        ([], 99, False),
    ],
)
@pytest.mark.parametrize("isolation", [STRICT, LOOSE, STALE])
def test_as_of_is_used_and_waits_for_future_time(
    intervals: list[tuple[int, int]], as_of: int, waits: bool, isolation: Isolation
) -> None:
    chosen = select_timestamp(inputs(*intervals), isolation, 10, as_of=as_of)
    assert (chosen.time, chosen.waits) == (as_of, waits)


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({GlobalId("u1"): Interval(3, 11)}, "The inputs can be read from 3 on."),
        ({GlobalId("u1"): Interval(3, 11, altered=2)}, "The inputs can be read from 3 on."),
        (
            {GlobalId("u1"): Interval(1, 11), GlobalId("u2"): Interval(3, 11, altered=3)},
            "The inputs can be read from 3 on, when a table among them was altered.",
        ),
    ],
)
def test_as_of_before_since_names_readable_time_and_reason(
    given: dict[GlobalId, Interval], detail: str
) -> None:
    with pytest.raises(InvalidParameterValue, match="cannot read as of 2") as refused:
        select_timestamp(given, STRICT, 10, as_of=2)
    assert refused.value.detail == detail


def test_as_of_at_least_only_moves_forward() -> None:
    assert select_timestamp(inputs((0, 11)), STRICT, 10, at_least=4).time == 10
    chosen = select_timestamp(inputs((0, 11)), STRICT, 10, at_least=14)
    assert (chosen.time, chosen.waits) == (14, True)


SKIPPED = {
    GlobalId("u0"): Interval(0, 11),
    GlobalId("u1"): Interval(2, 12, skipped=((4, 6), (6, 8))),
}


@pytest.mark.parametrize(
    ("upper", "isolation", "time", "waits"),
    [
        (11, STRICT, 10, False),
        (11, LOOSE, 10, False),
        (6, LOOSE, 8, True),  # at 5 the other one cannot be read
        (4, LOOSE, 3, False),
        (9, STALE, 8, False),
    ],
)
def test_skipped_times_are_not_chosen(
    upper: int, isolation: Isolation, time: int, waits: bool
) -> None:
    inputs = {**SKIPPED, GlobalId("u0"): Interval(0, upper)}
    chosen = select_timestamp(inputs, isolation, 10)
    assert (chosen.time, chosen.waits) == (time, waits)


def test_skipped_times_are_refused() -> None:
    assert select_timestamp(SKIPPED, STRICT, 10, as_of=3).time == 3
    assert select_timestamp(SKIPPED, STRICT, 10, as_of=8).time == 8
    with pytest.raises(InvalidParameterValue, match="cannot read as of 5") as refused:
        select_timestamp(SKIPPED, STRICT, 10, as_of=5)
    assert "It can be read at 8." in str(refused.value.detail)
    with pytest.raises(DatabaseError, match="could not serialize access"):
        require_readable(SKIPPED, STRICT, 7, str)
    require_readable(SKIPPED, STRICT, 3, str)
    with pytest.raises(NotYetKnown):  # bounded staleness waits for none
        select_timestamp({**SKIPPED, GlobalId("u0"): Interval(0, 8)}, STALE, 9)
