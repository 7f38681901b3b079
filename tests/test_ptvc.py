"""The formalism holds of itself: compaction changes no readable contents, on any lattice."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from foreshore.frontier import Antichain
from tests.ptvc import PAIRS, Pair, PTvc

times = st.builds(Pair, st.integers(0, 3), st.integers(0, 3))
updates = st.lists(st.tuples(st.sampled_from("ab"), times, st.sampled_from([-1, 1, 2])), max_size=8)


@given(updates, st.lists(times, min_size=1, max_size=2))
def test_compaction_keeps_what_can_be_read(
    changes: Sequence[tuple[str, Pair, int]], since: list[Pair]
) -> None:
    tvc: PTvc[str, Pair] = PTvc(PAIRS, Pair(0, 0))
    tvc.append(Antichain.of(Pair(4, 0), Pair(0, 4)), changes)
    every = [Pair(a, b) for a in range(4) for b in range(4)]
    before = {time: tvc.read(time) for time in every}
    tvc.compact(Antichain.of(*since))
    assert {t: tvc.read(t) for t in every if tvc.readable(t)} == {
        t: contents for t, contents in before.items() if tvc.since.less_equal(t)
    }
    assert len(tvc.updates) <= len({(data, time) for data, time, _ in changes})
