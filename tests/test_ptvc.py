"""The formalism holds of itself: on any timeline, a pTVC says what its TVC does."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.foreshore.timelines import Case, on_every_timeline
from tests.frontier import Antichain
from tests.ptvc import (
    INTEGERS,
    PTvc,
    Timeline,
    Update,
    apply,
    difference,
    join_frontiers,
    read,
    read_together,
    representative,
    updates_of,
)

DATA = st.data()
VERSIONS = st.dictionaries(st.sampled_from("abc"), st.integers(-2, 3).filter(bool))
NEVER: Antichain[Any] = Antichain.of()


def consolidated(updates: list[Update[str, Any]]) -> dict[tuple[str, Any], int]:
    counts: Counter[tuple[str, Any]] = Counter()
    for data, time, diff in updates:
        counts[data, time] += diff
    return {key: diff for key, diff in counts.items() if diff}


def between(
    updates: list[Update[str, Any]], lower: Antichain[Any], upper: Antichain[Any]
) -> list[Update[str, Any]]:
    """Return the updates at or beyond `lower` and not at or beyond `upper`."""
    return [u for u in updates if lower.less_equal(u[1]) and not upper.less_equal(u[1])]


def known(case: Case, updates: list[Update[str, Any]], upper: Antichain[Any]) -> PTvc[str, Any]:
    """Return what is known of a TVC up to `upper`."""
    tvc: PTvc[str, Any] = PTvc(case.timeline)
    tvc.append(upper, between(updates, tvc.upper, upper))
    return tvc


def contents(case: Case, tvc: PTvc[str, Any]) -> dict[Any, dict[str, int]]:
    return {time: tvc.read(time) for time in case.universe if tvc.readable(time)}


def later(case: Case, frontier: Antichain[Any], data: st.DataObject) -> Antichain[Any]:
    return join_frontiers(case.timeline, frontier, data.draw(case.frontiers))


def earlier_than(case: Case, tvc: PTvc[str, Any], data: st.DataObject) -> Antichain[Any]:
    """Draw a since that the collection may be given: not before its own, nor beyond its upper."""
    return later(case, tvc.since, data).meet(tvc.upper)


# --- versions and updates ------------------------------------------------------------------


@given(VERSIONS, VERSIONS)
def test_a_difference_leads_from_one_version_to_the_other(
    old: dict[str, int], new: dict[str, int]
) -> None:
    changes = difference(old, new)
    assert apply(old, changes.items()) == new
    assert changes.keys() == {data for data in "abc" if old.get(data, 0) != new.get(data, 0)}


@on_every_timeline
@given(DATA)
def test_the_order_of_updates_does_not_matter(case: Case, data: st.DataObject) -> None:
    updates = data.draw(case.updates)
    time = data.draw(case.times)
    assert read(data.draw(st.permutations(updates)), time) == read(updates, time)
    folded = [(datum, t, diff) for (datum, t), diff in consolidated(updates).items()]
    assert read(folded, time) == read(updates, time)


@on_every_timeline
@given(DATA)
def test_versions_and_updates_say_the_same(case: Case, data: st.DataObject) -> None:
    updates = data.draw(case.updates)
    versions = {time: read(updates, time) for time in case.universe}
    back = updates_of(versions)
    assert consolidated(back) == consolidated(updates)
    assert {time: read(back, time) for time in case.universe} == versions


@on_every_timeline
@given(DATA)
def test_any_function_of_time_has_its_updates(case: Case, data: st.DataObject) -> None:
    versions = {time: data.draw(VERSIONS) for time in case.universe[:9]}
    if all(case.timeline.meet(s, t) in versions for s in versions for t in versions):
        updates = updates_of(versions)
        assert {time: read(updates, time) for time in versions} == versions


# --- pTVCs ---------------------------------------------------------------------------------


@on_every_timeline
def test_the_empty_one_is_right_of_every_collection(case: Case) -> None:
    tvc: PTvc[str, Any] = PTvc(case.timeline)
    assert tvc.since == tvc.upper == Antichain.of(case.timeline.start)
    assert contents(case, tvc) == {}


@on_every_timeline
@given(DATA)
def test_whatever_is_done_what_can_be_read_is_right(case: Case, data: st.DataObject) -> None:
    updates = data.draw(case.updates)
    tvc: PTvc[str, Any] = PTvc(case.timeline)
    for _ in range(data.draw(st.integers(1, 6))):
        since, upper = tvc.since, tvc.upper
        if data.draw(st.booleans()):
            chosen = later(case, upper, data)
            tvc.append(chosen, between(updates, upper, chosen))
        else:
            tvc.compact(earlier_than(case, tvc, data))
        assert since <= tvc.since <= tvc.upper
        assert upper <= tvc.upper
        for time, found in contents(case, tvc).items():
            assert found == read(updates, time), time


@on_every_timeline
@given(DATA)
def test_an_append_changes_nothing_that_was_known(case: Case, data: st.DataObject) -> None:
    updates = data.draw(case.updates)
    tvc = known(case, updates, data.draw(case.frontiers))
    tvc.compact(earlier_than(case, tvc, data))
    since, before = tvc.since, contents(case, tvc)
    upper = later(case, tvc.upper, data)
    tvc.append(upper, between(updates, tvc.upper, upper))
    assert (tvc.since, tvc.upper) == (since, upper)
    assert before.items() <= contents(case, tvc).items()


@on_every_timeline
@given(DATA)
def test_two_appends_are_one(case: Case, data: st.DataObject) -> None:
    updates = data.draw(case.updates)
    middle = data.draw(case.frontiers)
    upper = later(case, middle, data)
    twice = known(case, updates, middle)
    twice.append(upper, between(updates, middle, upper))
    once = known(case, updates, upper)
    assert consolidated(twice.updates) == consolidated(once.updates)
    assert twice.upper == once.upper


@on_every_timeline
@given(DATA)
def test_an_append_of_another_interval_is_refused(case: Case, data: st.DataObject) -> None:
    tvc = known(case, data.draw(case.updates), data.draw(case.frontiers))
    upper, time = data.draw(case.frontiers), data.draw(case.times)
    before = dict(tvc.changes), tvc.upper
    fits = tvc.upper <= upper and tvc.upper.less_equal(time) and not upper.less_equal(time)
    if not fits:
        with pytest.raises(AssertionError):
            tvc.append(upper, [("a", time, 1)])
        assert (dict(tvc.changes), tvc.upper) == before


@on_every_timeline
@given(DATA)
def test_compaction_changes_nothing_that_can_still_be_read(case: Case, data: st.DataObject) -> None:
    tvc = known(case, data.draw(case.updates), data.draw(case.frontiers))
    before, updates = contents(case, tvc), tvc.updates
    tvc.compact(earlier_than(case, tvc, data))
    after = contents(case, tvc)
    assert after == {t: found for t, found in before.items() if tvc.since.less_equal(t)}
    assert len(tvc.updates) <= len(updates)
    if not tvc.since.elements:
        assert not tvc.updates
        return
    before_since = [u for u in updates if not tvc.since.less_equal(u[1])]
    moved = [(d, representative(case.timeline, t, tvc.since), diff) for d, t, diff in before_since]
    kept = [u for u in updates if tvc.since.less_equal(u[1])]  # as they were
    assert consolidated(moved + kept) == dict(tvc.changes)


@on_every_timeline
@given(DATA)
def test_compaction_composes(case: Case, data: st.DataObject) -> None:
    updates, upper = data.draw(case.updates), data.draw(case.frontiers)
    twice, once = known(case, updates, upper), known(case, updates, upper)
    twice.compact(earlier_than(case, twice, data))
    twice.compact(earlier_than(case, twice, data))
    once.compact(twice.since)
    assert twice.changes == once.changes
    once.compact(once.since)
    assert twice.changes == once.changes


@on_every_timeline
@given(DATA)
def test_append_and_compaction_commute(case: Case, data: st.DataObject) -> None:
    updates, middle = data.draw(case.updates), data.draw(case.frontiers)
    upper = later(case, middle, data)
    new = between(updates, middle, upper)
    first, last = known(case, updates, middle), known(case, updates, middle)
    since = earlier_than(case, first, data)
    first.compact(since)
    first.append(upper, new)
    last.append(upper, new)
    last.compact(since)
    if since.elements:
        assert consolidated(first.updates) == consolidated(last.updates)
    assert contents(case, first) == contents(case, last)


@on_every_timeline
@given(DATA)
def test_what_was_compacted_apart_merges_to_the_whole(case: Case, data: st.DataObject) -> None:
    updates, middle = data.draw(case.updates), data.draw(case.frontiers)
    upper = later(case, middle, data)
    whole = known(case, updates, upper)
    since = earlier_than(case, whole, data)
    whole.compact(since)
    pieces = []
    for lower, end in ((Antichain.of(case.timeline.start), middle), (middle, upper)):
        piece: PTvc[str, Any] = PTvc(case.timeline)
        piece.append(NEVER, between(updates, lower, end))
        piece.compact(since)
        pieces += piece.updates
    assert consolidated(pieces) == dict(whole.changes)


def test_a_collection_ends_unwritable_and_then_unreadable() -> None:
    tvc: PTvc[str, int] = PTvc(INTEGERS)
    tvc.append(Antichain.of(3), [("a", 1, 1)])
    with pytest.raises(AssertionError):
        tvc.compact(Antichain.of(4))  # of what is not yet known nothing can be forgotten
    tvc.append(Antichain.of(), [("b", 7, 1)])
    assert tvc.read(9) == {"a": 1, "b": 1}
    with pytest.raises(AssertionError):
        tvc.append(Antichain.of(), [("c", 8, 1)])
    tvc.compact(Antichain.of())
    assert tvc.updates == []
    assert not tvc.readable(9)


@given(DATA)
def test_timelines_of_the_same_times_are_two(data: st.DataObject) -> None:
    other = Timeline("kafka_offset", INTEGERS.start, INTEGERS.join, INTEGERS.meet)
    assert other != INTEGERS
    here, there = (
        known(Case(line, tuple(range(6))), [("a", 1, 1)], NEVER) for line in (INTEGERS, other)
    )
    time = data.draw(st.integers(0, 9))
    contents = {"a": 1} if time else {}
    assert read_together(INTEGERS, time, [here, here]) == [contents, contents]
    assert read_together(other, time, [there]) == [contents]
    for line in (INTEGERS, other):
        for mixed in ([here, there], [there, here]):
            with pytest.raises(ValueError, match="of timeline .* cannot be read at a time of"):
                read_together(line, time, mixed)
