"""The errors of a view are known at all times, whatever ends in between."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.controller import error_log
from foreshore.compute.controller.error_log import ErrorLog, NothingKept, Steps
from foreshore.compute.controller.error_policy import ErrorPolicy
from foreshore.compute.engine import ERRORS, output_schema
from foreshore.errors import CollectionCorrupted, InternalError
from foreshore.ids import GlobalId
from tests.compute.runtime.harness import id_

VIEW = id_("u1")
Change = tuple[str, int, int]


def errors(*changes: Change) -> pa.Table:
    columns = zip(*changes, strict=True) if changes else ([], [], [])
    return pa.table([list(column) for column in columns], schema=output_schema(ERRORS))


@dataclass
class Store:
    """Stores the steps of one view; new ones may appear only on request."""

    steps: dict[int, str | None] = field(default_factory=dict)
    writes: int = 0
    corruption: CollectionCorrupted | None = None

    def load(self, id: GlobalId) -> Steps:
        assert id == VIEW
        if self.corruption is not None:
            raise self.corruption
        return dict(self.steps)

    async def store(self, id: GlobalId, times: Collection[int], steps: Steps) -> None:
        assert id == VIEW
        assert set(steps) <= set(times)
        self.writes += 1
        for time in times:
            self.steps.pop(time, None)
        self.steps.update(steps)

    async def settled(self, id: GlobalId) -> None:
        assert id == VIEW


def least(changes: Collection[Change], time: int) -> str | None:
    """Return the least error at a time, according to the model."""
    counts: Counter[str] = Counter()
    for text, at, diff in changes:
        if at <= time:
            counts[text] += diff
    return min((text for text, count in counts.items() if count > 0), default=None)


def first(changes: Collection[Change], lower: int, upper: int) -> tuple[int, str] | None:
    """Return the first time in [lower, upper) with errors and the least one, by the model."""
    found = ((time, least(changes, time)) for time in range(lower, upper))
    return next(((time, text) for time, text in found if text is not None), None)


def at(log: ErrorLog, time: int) -> str | None:
    """Return the least error at `time`."""
    found = log.first(time, time + 1)
    return None if found is None else found[1]


def contents(changes: Collection[Change], as_of: int) -> pa.Table:
    """Return the errors as of a time, as a dataflow that starts there reports them."""
    counts: Counter[str] = Counter()
    for text, at, diff in changes:
        if at <= as_of:
            counts[text] += diff
    return errors(*((text, as_of, count) for text, count in counts.items() if count))


def window(changes: Collection[Change], lower: int, upper: int) -> pa.Table:
    return errors(*(each for each in changes if lower <= each[1] < upper))


def test_errors_are_known_at_each_time() -> None:
    log = ErrorLog(VIEW, 3, NothingKept())
    log.add(3, 4, errors(("22012 early", 3, 1)), initial=False)
    assert log.upper is None  # earlier errors are not known yet
    log.add(0, 4, errors(("22012 x", 3, 1), ("22003 a", 3, 2)), initial=True)
    log.add(0, 4, errors(("22012 x", 3, 1)), initial=True)  # from another replica
    log.add(4, 8, errors(("22003 a", 5, -2), ("22012 x", 7, -1)), initial=False)
    assert [at(log, t) for t in (2, 3, 5, 7)] == [None, "22003 a", "22012 x", None]
    assert log.first(0, 3) is None
    assert log.first(4, 20) == (4, "22003 a")
    for n in range(100):
        log.add(8 + n, 9 + n, errors(("22012 y", 8 + n, 1 if n % 2 == 0 else -1)), initial=False)
    log.compact(lambda: 100)
    assert [at(log, t) for t in (106, 107)] == ["22012 y", None]
    assert len(log._times) < 20


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Draw histories of errors, which are removed only if present."""
    there: list[str] = []
    changes = []
    for time in sorted(draw(st.lists(st.integers(1, 40), max_size=16))):
        if draw(st.booleans()) and there:
            gone = there.pop(draw(st.integers(0, len(there) - 1)))
            changes.append((gone, time, -1))
        else:
            text = draw(st.sampled_from(["22003 a", "22012 b", "22P02 c"]))
            there.append(text)
            changes.append((text, time, 1))
    return changes


@dataclass(frozen=True)
class Life:
    """A dataflow: it starts `back` before the shard's upper and reports in these windows."""

    back: int
    windows: list[int]
    compacts: list[int]  # compactions after each window, by distance; 0: none
    ends_ahead: bool  # its last steps are stored, but the shard does not advance past them


@given(
    histories(),
    st.integers(0, 4),
    st.lists(
        st.builds(
            Life,
            st.integers(1, 6),
            st.lists(st.integers(1, 6), max_size=4),
            st.lists(st.integers(0, 5), min_size=4, max_size=4),
            st.booleans(),
        ),
        max_size=5,
    ),
)
def test_errors_outlive_dataflow(changes: list[Change], made: int, lives: list[Life]) -> None:
    """Dataflows follow one another; some end between the store and the shard."""

    async def main() -> None:
        store, shard, since = Store(), made, made
        for life in lives:
            as_of = max(since, shard - life.back)
            log = ErrorLog(VIEW, as_of, store)
            for time in range(since, as_of):  # before any report of a replica
                assert log.is_known(time)
                assert at(log, time) == least(changes, time)
            assert not log.is_known(as_of)
            told = as_of + 1
            log.add(told, told, contents(changes, as_of), initial=True)
            for number, width in enumerate(life.windows, start=1):
                upper = told + width
                log.add(told, upper, window(changes, told, upper), initial=False)
                told = upper
                await log.store(told)
                if life.ends_ahead and number == len(life.windows):
                    break
                shard = max(shard, told)
                if behind := life.compacts[number - 1]:
                    since = max(since, told - behind)
                    log._compacted = 0
                    log.compact(partial(int, since))
                for lower in range(since, told):
                    for upper in range(lower + 1, told + 1):
                        assert log.first(lower, upper) == first(changes, lower, upper)
        last = ErrorLog(VIEW, shard, store)
        for time in range(since, shard):
            assert at(last, time) == least(changes, time)

    asyncio.run(main())


def test_unchanged_errors_are_not_stored() -> None:
    async def main() -> None:
        store = Store()
        log = ErrorLog(VIEW, 5, store)
        log.add(6, 6, errors(("22012 x", 5, 1)), initial=True)
        await log.store(6)
        assert (store.writes, store.steps) == (1, {5: "22012 x"})
        for n in range(6, 100):  # other errors appear and disappear above the least
            log.add(n, n + 1, errors(("22012 y", n, 1 if n % 2 else -1)), initial=False)
            await log.store(n + 1)
            assert len(log._errors._heap) <= 2
        assert store.writes == 1
        again = ErrorLog(VIEW, 50, store)
        again.add(51, 51, errors(("22012 x", 50, 1)), initial=True)
        again.add(51, 100, None, initial=False)
        await again.store(100)
        assert store.writes == 1

    asyncio.run(main())


def test_repeated_errors_take_bounded_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Old times may be reported as errors although they had none, but not the reverse."""
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 8)
    monkeypatch.setattr(error_log, "MAX_STEPS", 32)

    async def main() -> None:
        store = Store()
        log = ErrorLog(VIEW, 0, store)
        log.add(1, 1, errors(), initial=True)
        most = 0
        for n in range(1, 1001):
            log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
            await log.store(n + 1)
            log.compact(lambda: 0)
            most = max(most, len(store.steps), len(log._times))
        assert most <= 33
        for n in range(1, 1001):
            wrong = at(log, n) is None and n % 2
            assert not wrong, n
        assert [at(log, n) for n in range(990, 1000)] == [None, "22012 x"] * 5
        for n in range(1001, 1041):  # while nothing can be stored
            assert not log.is_full or n > 1032
            log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
        assert log.is_full

    asyncio.run(main())


def test_steps_of_pinned_times_and_marks_stay() -> None:
    log = ErrorLog(VIEW, 0, NothingKept(), marks=lambda lower, upper, _: [lower] * (lower == 50))
    log.add(1, 1, errors(), initial=True)
    for n in range(1, 101):
        log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
    log.compact(lambda: 100, lambda since: [5, 50, since - 1])
    assert [at(log, t) for t in (5, 50, 99, 100)] == ["22012 x", None, "22012 x", None]
    assert [log.last_step(t) for t in (4, 60, 100)] == [-1, 50, 100]
    assert log.changes(0, 200) == [5, 50, 99, 100]


@pytest.mark.parametrize("marked", [False, True])
def test_pinned_steps_stay_where_many_later_ones_remain(
    monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    """A view that was refreshed at a pinned time is as readable as before."""
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 8)
    monkeypatch.setattr(error_log, "MAX_STEPS", 32)
    log = ErrorLog(VIEW, 0, NothingKept(), marks=(lambda *_: []) if marked else None)
    log.add(1, 1, errors(), initial=True)
    pinned, since, steps = [7, 10, 19], 21, 600
    asked = [*pinned, *range(since, steps)]
    for n in range(1, steps):
        log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
        log.compact(lambda: since if n >= since else 0, lambda _: [p for p in pinned if n >= since])  # noqa: B023
        assert len(log._times) <= 32 + len(pinned)
        for time in (each for each in asked if since <= n and each <= n):
            found, is_pinned = at(log, time), time in pinned
            assert found == ("22012 x" if time % 2 else None) or not (is_pinned or found is None)
    assert [at(log, time) for time in (*pinned, since)] == ["22012 x", None, "22012 x", "22012 x"]


def test_compaction_keeps_that_contents_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 8)
    monkeypatch.setattr(error_log, "MAX_STEPS", 8)
    log = ErrorLog(VIEW, 10, Store(), policy=ErrorPolicy(skips=True))
    log.mark_unknown(5)
    log.add(11, 11, errors(), initial=True)
    for n in range(11, 31):
        log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
    assert at(log, 7) == error_log.LOST
    log.compact(lambda: 0)
    assert at(log, 7) == error_log.LOST
    assert at(log, 30) is None


def test_wait_for_errors_ends_at_requested_time() -> None:
    async def main() -> None:
        log = ErrorLog(VIEW, 5, Store(steps={2: "22012 x", 3: None}))
        await log.known(4)
        waiting = asyncio.ensure_future(log.known(7))
        log.add(6, 6, errors(), initial=True)
        await asyncio.sleep(0)
        assert not waiting.done()
        log.add(6, 8, errors(("22012 x", 7, 1)), initial=False)
        await waiting
        assert at(log, 7) == "22012 x"
        later = asyncio.ensure_future(log.known(8))
        await asyncio.sleep(0)
        log.fail(InternalError("it has ended"))
        with pytest.raises(InternalError, match="it has ended"):
            await later
        await log.known(7)

    asyncio.run(main())


def test_unreadable_stored_errors_raise() -> None:
    store = Store(corruption=CollectionCorrupted("the table", "a batch is missing"))
    log = ErrorLog(VIEW, 5, store)
    for lower in (4, 5):
        with pytest.raises(CollectionCorrupted, match="a batch is missing"):
            log.first(lower, 6)
    log.add(6, 6, errors(), initial=True)
    assert log.first(5, 6) is None
    with pytest.raises(CollectionCorrupted, match="a batch is missing"):
        log.first(4, 6)


def test_all_steps_stay_where_too_many_times_are_pinned() -> None:
    log = ErrorLog(VIEW, 0, NothingKept())
    log.add(1, 1, errors(), initial=True)
    for n in range(1, 101):
        log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
    log.compact(lambda: 100, lambda _: {0})
    assert log.changes(0, 200) == [*range(1, 101)]
