"""Where a query reads, case by case: (since, upper) of each input, read_ts, and the choice."""

import pytest

from foreshore.adapter.timestamp_selection import (
    BoundedStaleness,
    Interval,
    Isolation,
    isolation_of,
    select_timestamp,
)
from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.ids import GlobalId

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
def test_the_choice(
    intervals: list[tuple[int, int]], isolation: Isolation, read_ts: int, time: int, waits: bool
) -> None:
    chosen = select_timestamp(inputs(*intervals), isolation, read_ts)
    assert (chosen.time, chosen.waits) == (time, waits)


@pytest.mark.parametrize("intervals", [[(0, 11), (0, 7)], [(8, 11), (0, 8)], [(11, 20)]])
def test_bounded_staleness_does_not_wait(intervals: list[tuple[int, int]]) -> None:
    with pytest.raises(DatabaseError) as refused:
        select_timestamp(inputs(*intervals), STALE, 10)
    assert refused.value.sqlstate == "40001"


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
def test_what_a_level_means(level: str, isolation: Isolation) -> None:
    assert isolation_of(level) == isolation


@pytest.mark.parametrize("as_of", [3, 10])
def test_as_of_within_the_interval_is_taken(as_of: int) -> None:
    assert select_timestamp(inputs((3, 11)), STRICT, 10, as_of=as_of).time == as_of


@pytest.mark.parametrize("as_of", [2, 11])
def test_as_of_outside_names_the_interval(as_of: int) -> None:
    with pytest.raises(InvalidParameterValue) as refused:
        select_timestamp(inputs((3, 11)), STRICT, 10, as_of=as_of)
    assert refused.value.detail == "The inputs can be read from 3 to 10."


def test_a_subscription_may_wait_for_the_future_but_not_see_the_forgotten() -> None:
    assert select_timestamp(inputs((3, 11)), STRICT, 10, as_of=99, future=True).time == 99
    with pytest.raises(InvalidParameterValue):
        select_timestamp(inputs((3, 11)), STRICT, 10, as_of=2, future=True)


def test_at_least_only_pushes_forward() -> None:
    assert select_timestamp(inputs((0, 11)), STRICT, 10, at_least=4).time == 10
    assert select_timestamp(inputs((0, 11)), STRICT, 10, at_least=14).time == 14
