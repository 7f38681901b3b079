"""Freshness: which collection delays the others, and by how much."""

from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.controller.freshness import LATE_MS, Collection, freshness_of
from foreshore.ids import GlobalId


def chain(*uppers: int | None, states: dict[int, str] | None = None) -> list[Collection]:
    """Return collections c0, c1, ...: each is computed from the next, and the last is a table."""
    return [
        Collection(
            GlobalId(f"c{i}"),
            (states or {}).get(i, "running"),  # type: ignore[arg-type]
            upper,
            frozenset({GlobalId(f"c{i + 1}")} if i + 1 < len(uppers) else ()),
        )
        for i, upper in enumerate(uppers)
    ]


NOW = 100_000


def named(collections: list[Collection]) -> set[str]:
    return {id for id, each in freshness_of(collections, NOW, NOW).items() if each.culprit}


def test_collection_that_adds_the_lag_is_culprit() -> None:
    assert named(chain(99_990, 99_995, NOW)) == set()
    assert named(chain(60_000, 60_010, NOW)) == {"c1"}
    assert named(chain(60_000, 99_990, NOW)) == {"c0"}
    assert named(chain(60_000, 80_000, NOW)) == {"c0", "c1"}
    assert named(chain(60_000, 60_000, 60_000)) == {"c2"}
    # less than matters at each place, but too much together
    assert named(chain(98_900, 99_500, NOW)) == {"c0"}
    assert named(chain(98_900, 99_400, NOW)) == {"c1"}


def test_blocked_collection_is_culprit_regardless_of_inputs() -> None:
    assert named(chain(60_000, 60_000, NOW, states={0: "no replica", 1: "failed"})) == {"c0", "c1"}
    assert named(chain(None, 60_000, NOW, states={0: "waiting"})) == {"c1"}
    assert named(chain(None, None, NOW, states={0: "waiting", 1: "hydrating"})) == {"c1"}
    assert named(chain(None, 99_990, NOW, states={0: "waiting"})) == {"c0"}
    # what is not late yet is not to blame for anything
    assert named(chain(99_990, 99_990, NOW, states={0: "no replica"})) == set()


@given(st.lists(st.integers(0, 5 * LATE_MS), min_size=1, max_size=6))
def test_own_lags_sum_to_total_lag(added: list[int]) -> None:
    uppers = [NOW - sum(added[i:]) for i in range(len(added))]
    found = freshness_of(chain(*uppers), NOW - 1, NOW)
    assert [each.own_lag for each in found.values()] == added
    assert found[GlobalId("c0")].wallclock_lag == found[GlobalId("c0")].oracle_lag == sum(added)
    late = sum(added) >= LATE_MS
    assert any(each.culprit for each in found.values()) == late
    for each, own in zip(found.values(), added, strict=True):
        assert not each.culprit or own >= LATE_MS or own == max(added)
