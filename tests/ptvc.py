"""The formalism of collections that change over time, in plain Python: slow and obvious.

A *timeline* is a lattice of times with a least one. A *TVC* is a function from its times to
multisets of data; a *pTVC* `[timeline, updates, since, upper]` says the same of those times that
are at or beyond `since` and not at or beyond `upper`. Nothing here assumes that times are totally
ordered. It says what any implementation must say; tests/test_ptvc.py has the laws.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from tests.frontier import Antichain, Time

T = TypeVar("T", bound=Time)
O = TypeVar("O", bound=Time)  # noqa: E741 - an outer time
I = TypeVar("I", bound=Time)  # noqa: E741 - an inner time
D = TypeVar("D", bound=Hashable)

Version = dict[D, int]  # a multiset: how many times each is there, never none
Update = tuple[D, T, int]

# --- timelines -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Timeline(Generic[T]):
    """Least upper and greatest lower bounds of times, and the least time of all.

    Two timelines of the same times are two if their ids are.
    """

    id: str
    start: T
    join: Callable[[T, T], T]
    meet: Callable[[T, T], T]


@dataclass(frozen=True)
class Product(Generic[O, I]):
    """A time of two parts, each ordered by itself: most such times are not comparable.

    Within a loop, `outer` is the time at which the loop is entered and `inner` counts iterations.
    """

    outer: O
    inner: I

    def __le__(self, other: "Product[O, I]") -> bool:
        return self.outer <= other.outer and self.inner <= other.inner


def product(id: str, outer: Timeline[O], inner: Timeline[I]) -> Timeline[Product[O, I]]:
    """Return the timeline of pairs of times."""
    return Timeline(
        id,
        Product(outer.start, inner.start),
        lambda s, t: Product(outer.join(s.outer, t.outer), inner.join(s.inner, t.inner)),
        lambda s, t: Product(outer.meet(s.outer, t.outer), inner.meet(s.inner, t.inner)),
    )


@dataclass(frozen=True)
class StatefulTimeline(Generic[T]):
    """A timeline and the frontier of the latest times of the events in it that are complete."""

    timeline: Timeline[T]
    completed: Antichain[T]

    def after(self, time: T) -> "StatefulTimeline[T]":
        """Return the timeline after an event at `time` is complete as well."""
        times = {*self.completed.elements, time}
        latest = (t for t in times if not any(t <= other for other in times - {t}))
        return StatefulTimeline(self.timeline, Antichain.of(*latest))


def at_no_event(timeline: Timeline[T]) -> StatefulTimeline[T]:
    """Return the timeline before anything has happened."""
    return StatefulTimeline(timeline, Antichain.of(timeline.start))


Pair = Product[int, int]
Loop = Product[Pair, int]

INTEGERS: Timeline[int] = Timeline("epoch_ms", 0, max, min)
PAIRS: Timeline[Pair] = product("pairs", INTEGERS, INTEGERS)
LOOPS: Timeline[Loop] = product("loops", PAIRS, INTEGERS)  # iterations within times of two parts


def enter(timeline: Timeline[I], time: O) -> Product[O, I]:
    """Return the time within a loop at which what happens at `time` enters it."""
    return Product(time, timeline.start)


def leave(time: Product[O, I]) -> O:
    """Return the time outside the loop at which what happens at `time` leaves it."""
    return time.outer


# --- frontiers -----------------------------------------------------------------------------


def join_frontiers(timeline: Timeline[T], f: Antichain[T], g: Antichain[T]) -> Antichain[T]:
    """Return the earliest frontier at or beyond both: all that is at or beyond each of them."""
    return Antichain.of(*(timeline.join(s, t) for s in f.elements for t in g.elements))


def representative(timeline: Timeline[T], time: T, since: Antichain[T]) -> T:
    """Return the latest time that no time at or beyond `since` can tell from `time`.

    That is `meet over s in since of join(time, s)` (McSherry, Lattuada, Schwarzkopf, Roscoe,
    "Shared Arrangements", 2020, appendix A). Nobody reads beyond the last frontier, {}.
    """
    joins = [timeline.join(time, s) for s in since.elements]
    return reduce(timeline.meet, joins) if joins else time


# --- versions and updates ------------------------------------------------------------------


def apply(version: Mapping[D, int], changes: Iterable[tuple[D, int]]) -> Version[D]:
    """Return the version after the changes of multiplicity."""
    counts = Counter(version)
    for data, diff in changes:
        counts[data] += diff
    return {data: count for data, count in counts.items() if count}


def difference(old: Mapping[D, int], new: Mapping[D, int]) -> Version[D]:
    """Return the fewest changes of multiplicity that turn `old` into `new`."""
    return apply(new, [(data, -count) for data, count in old.items()])


def read(updates: Iterable[Update[D, T]], time: T) -> Version[D]:
    """Return what the updates at or before `time` add up to."""
    return apply({}, [(data, diff) for data, at, diff in updates if at <= time])


def updates_of(versions: Mapping[T, Version[D]]) -> list[Update[D, T]]:
    """Return the updates of a TVC, given as its version at each of finitely many times.

    The inverse of `read` at these times, by induction over their order: an update says what the
    version has beyond all that happened strictly before.
    """
    updates: list[Update[D, T]] = []
    waiting = set(versions)
    while waiting:
        for time in [t for t in waiting if not any(s <= t for s in waiting - {t})]:
            waiting.discard(time)
            new = difference(read(updates, time), versions[time])
            updates += [(data, time, diff) for data, diff in new.items()]
    return updates


# --- pTVCs ---------------------------------------------------------------------------------


class PTvc(Generic[D, T]):
    """A partial time-varying collection, at first the empty one, which is right of every TVC."""

    def __init__(self, timeline: Timeline[T]) -> None:
        self.timeline = timeline
        self.changes: Counter[tuple[D, T]] = Counter()
        self.since = Antichain.of(timeline.start)
        self.upper = Antichain.of(timeline.start)

    @property
    def updates(self) -> list[Update[D, T]]:
        """Return the updates, one for each data and time."""
        return [(data, time, diff) for (data, time), diff in self.changes.items()]

    def append(self, upper: Antichain[T], updates: Iterable[Update[D, T]]) -> None:
        """Learn the updates, which are all at or beyond upper and not at or beyond the new one."""
        assert self.upper <= upper, (self.upper, upper)
        added = list(updates)
        for _, time, _ in added:
            assert self.upper.less_equal(time), (time, self.upper)
            assert not upper.less_equal(time), (time, upper)
        for data, time, diff in added:
            self.changes[data, time] += diff
        self.upper = upper

    def compact(self, since: Antichain[T]) -> None:
        """Move since on, and each time to the last that cannot be told from it; drop zeros."""
        assert self.since <= since <= self.upper, (self.since, since, self.upper)
        moved: Counter[tuple[D, T]] = Counter()
        if since.elements:
            for data, time, diff in self.updates:
                moved[data, representative(self.timeline, time, since)] += diff
        self.changes = Counter({key: diff for key, diff in moved.items() if diff})
        self.since = since

    def readable(self, time: T) -> bool:
        """Whether the contents at `time` are known, and not forgotten."""
        return self.since.less_equal(time) and not self.upper.less_equal(time)

    def read(self, time: T) -> Version[D]:
        """Return the contents at `time`, which must be readable."""
        assert self.readable(time), (time, self.since, self.upper)
        return read(self.updates, time)


def read_together(timeline: Timeline[T], time: T, tvcs: Iterable[PTvc[D, T]]) -> list[Version[D]]:
    """Return the contents of collections at one time of `timeline`.

    Raises ValueError if one is of another timeline: its times may look the same, and mean nothing
    here.
    """
    versions = []
    for tvc in tvcs:
        if tvc.timeline.id != timeline.id:
            raise ValueError(
                f"a collection of timeline {tvc.timeline.id} cannot be read"
                f" at a time of timeline {timeline.id}"
            )
        versions.append(tvc.read(time))
    return versions
