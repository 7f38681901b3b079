"""The policy auto computes a view anew while the changes of a refresh cost more."""

from foreshore.compute.controller.refresh_costs import MOST_ANEW, RefreshCosts
from foreshore.compute.protocol import OperatorStatus
from foreshore.ids import GlobalId

VIEW = GlobalId("u1")


def operators(hydration: int, steps: int, view: GlobalId = VIEW) -> tuple[OperatorStatus, ...]:
    """Return two operators that share the CPU."""
    halves = ((hydration, 0), (0, steps))
    return tuple(
        OperatorStatus(number, "Reduce", (), begun, stepped, 0, 1, 0, 0, dataflow=view)
        for number, (begun, stepped) in enumerate(halves)
    )


def test_a_view_with_cheap_changes_is_never_computed_anew() -> None:
    costs = RefreshCosts()
    for refresh in range(5):
        costs.note(VIEW, "r1", refresh, operators(100, 20 * refresh))
        assert not costs.of(VIEW).is_anew
    cost = costs.of(VIEW)
    assert (cost.changes_ns, cost.anew_ns) == (20, 100)


def test_dear_changes_are_tried_again_after_more_and_more_refreshes() -> None:
    costs = RefreshCosts()
    kinds = ""
    steps = refresh = 0
    begun = 100
    costs.note(VIEW, "r1", refresh, operators(begun, steps))
    while len(kinds) < 60:
        refresh += 1
        if costs.of(VIEW).is_anew:  # the dataflow was dropped and begins again
            steps = 0
            begun += 1
            kinds += "a"
        else:
            steps += 150
            kinds += "c"
        costs.note(VIEW, "r1", refresh, operators(begun, steps))
        costs.note(VIEW, "r1", refresh, operators(begun, steps))  # reported several times
    tries = [len(part) for part in kinds.split("c")[1:-1]]
    assert tries[:5] == [1, 2, 4, 8, 16]
    assert max(tries) == MOST_ANEW


def test_changes_that_became_cheap_stay() -> None:
    costs = RefreshCosts()
    costs.note(VIEW, "r1", 0, operators(100, 0))
    costs.note(VIEW, "r1", 1, operators(100, 500))
    assert costs.of(VIEW).is_anew
    costs.note(VIEW, "r1", 2, operators(101, 0))
    assert not costs.of(VIEW).is_anew
    for refresh in range(3, 9):
        costs.note(VIEW, "r1", refresh, operators(101, 10 * refresh))
        assert not costs.of(VIEW).is_anew


def test_a_view_that_resumed_is_not_computed_anew() -> None:
    costs = RefreshCosts()
    costs.note(VIEW, "r1", 0, operators(0, 0))
    costs.note(VIEW, "r1", 1, operators(0, 500))
    assert not costs.of(VIEW).is_anew


def test_other_views_and_replicas_without_operators_do_not_count() -> None:
    costs = RefreshCosts()
    costs.note(VIEW, "r1", 0, operators(100, 0))
    costs.note(VIEW, "r1", 1, (*operators(100, 10), *operators(1, 900, GlobalId("u2"))))
    costs.note(VIEW, "r2", 1, ())
    assert costs.of(VIEW).changes_ns == 10
    costs.forget(VIEW)
    assert costs.of(VIEW).changes_ns is None
