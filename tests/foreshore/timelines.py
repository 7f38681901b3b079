"""Timelines for testing laws, each with a small set of times closed under joins and meets."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.frontier import Antichain
from tests.ptvc import INTEGERS, LOOPS, PAIRS, Product, Timeline


@dataclass(frozen=True)
class Case:
    """A timeline and a set of its times that is closed under joins and meets."""

    timeline: Timeline[Any]
    universe: tuple[Any, ...]

    @property
    def times(self) -> st.SearchStrategy[Any]:
        return st.sampled_from(self.universe)

    @property
    def frontiers(self) -> st.SearchStrategy[Antichain[Any]]:
        return st.lists(self.times, max_size=4).map(lambda times: Antichain.of(*times))

    @property
    def updates(self) -> st.SearchStrategy[list[tuple[str, Any, int]]]:
        update = st.tuples(st.sampled_from("ab"), self.times, st.sampled_from([-2, -1, 1, 1]))
        return st.lists(update, max_size=10)


PAIR_TIMES = tuple(Product(a, b) for a, b in product(range(3), repeat=2))
CASES = (
    Case(INTEGERS, tuple(range(6))),
    Case(PAIRS, PAIR_TIMES),
    Case(LOOPS, tuple(Product(p, i) for p in PAIR_TIMES for i in range(3))),
)
on_every_timeline = pytest.mark.parametrize("case", CASES, ids=[c.timeline.id for c in CASES])
