"""The formalism of collections that change over time, in plain Python: slow and obvious.

A pTVC is `[updates, since, upper]` over a lattice of times. `append` adds updates at or beyond upper
and moves upper on; `compact` forgets what told times before since apart; `read` gives the contents
at a time from since on and not at or beyond upper. It says what any implementation must say.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from foreshore.frontier import Antichain, Time

T = TypeVar("T", bound=Time)
D = TypeVar("D", bound=Hashable)


@dataclass(frozen=True)
class Lattice(Generic[T]):
    """Least upper bounds and greatest lower bounds of times."""

    join: Callable[[T, T], T]
    meet: Callable[[T, T], T]


INTEGERS: Lattice[int] = Lattice(max, min)
PAIRS: Lattice["Pair"]


@dataclass(frozen=True, order=False)
class Pair:
    """A time of two coordinates, in the product order."""

    a: int
    b: int

    def __le__(self, other: "Pair") -> bool:
        return self.a <= other.a and self.b <= other.b


PAIRS = Lattice(
    lambda s, t: Pair(max(s.a, t.a), max(s.b, t.b)),
    lambda s, t: Pair(min(s.a, t.a), min(s.b, t.b)),
)


class PTvc(Generic[D, T]):
    """A partial time-varying collection."""

    def __init__(self, lattice: Lattice[T], start: T) -> None:
        self.lattice = lattice
        self.updates: Counter[tuple[D, T]] = Counter()
        self.since = Antichain.of(start)
        self.upper = Antichain.of(start)

    def append(self, upper: Antichain[T], updates: Iterable[tuple[D, T, int]]) -> None:
        """Add updates beyond upper; all there are before the new one."""
        assert self.upper <= upper
        for data, time, diff in updates:
            assert self.upper.less_equal(time)
            assert not upper.less_equal(time)
            self.updates[data, time] += diff
        self.upper = upper

    def compact(self, since: Antichain[T]) -> None:
        """Move since on, and each time to the least it cannot be told from."""
        assert self.since <= since
        moved: Counter[tuple[D, T]] = Counter()
        for (data, time), diff in self.updates.items():
            joined = [self.lattice.join(time, s) for s in since.elements]
            if joined:
                moved[data, reduce(self.lattice.meet, joined)] += diff
        self.updates = Counter({key: diff for key, diff in moved.items() if diff})
        self.since = since

    def readable(self, time: T) -> bool:
        """Whether the contents at `time` are known."""
        return self.since.less_equal(time) and not self.upper.less_equal(time)

    def read(self, time: T) -> dict[D, int]:
        """Return the contents at `time`: the diffs so far, added up."""
        assert self.readable(time)
        contents: Counter[D] = Counter()
        for (data, at), diff in self.updates.items():
            if at <= time:
                contents[data] += diff
        return {data: diff for data, diff in contents.items() if diff}
