"""Costs of refreshes, by which the policy auto chooses between changes and computing anew.

A replica counts the CPU that the operators of a dataflow took to begin, and in all steps since. If
the steps of one refresh took more than the beginning, the view's dataflow is dropped and computed
anew at the next refresh. How much changes until then is not known, so after that changes are tried
again; if they are dear each time, after 1, 2, 4, ... refreshes that are computed anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from foreshore.compute.protocol import OperatorStatus
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

MOST_ANEW = 16  # refreshes in a row


@dataclass(frozen=True, slots=True)
class RefreshCost:
    """The CPU of the last refresh of each kind, if there was one, and how the next is done."""

    changes_ns: int | None
    anew_ns: int | None
    is_anew: bool


@dataclass(slots=True)
class _View:
    # By replica: the last refresh that was seen, and the CPU to begin and of all steps until then.
    seen: dict[str, tuple[Timestamp, int, int]] = field(default_factory=dict)
    changes_ns: int | None = None
    anew_ns: int | None = None
    dear: int = 0  # refreshes by changes in a row that cost more than computing anew
    left: int = 0  # refreshes to compute anew
    reports: dict[str, object] = field(default_factory=dict)  # the last one, by replica


class RefreshCosts:
    """The costs of refreshes of some views."""

    def __init__(self) -> None:
        self._views: dict[GlobalId, _View] = {}

    def note(
        self, id: GlobalId, replica: str, refreshed: Timestamp, operators: Iterable[OperatorStatus]
    ) -> None:
        """Take note of what a replica has spent on a view whose last refresh was at `refreshed`."""
        view = self._views.setdefault(id, _View())
        if view.reports.get(replica) is operators:
            return
        view.reports[replica] = operators
        own = [each for each in operators if each.dataflow == id]
        if not own:
            return
        begun = sum(each.hydration_ns for each in own)
        steps = sum(each.step_ns + each.merge_ns for each in own)
        known = view.seen.get(replica)
        if known is None or known[1] != begun:  # another dataflow, which has another time to begin
            view.seen[replica] = refreshed, begun, steps
            view.anew_ns = begun or view.anew_ns  # 0 if it resumed
            if known is not None:
                view.left = max(0, view.left - 1)
        elif refreshed > known[0]:
            view.seen[replica] = refreshed, begun, steps
            view.changes_ns = steps - known[2]
            is_dear = view.anew_ns is not None and view.changes_ns > view.anew_ns
            view.dear = view.dear + 1 if is_dear else 0
            view.left = min(1 << (view.dear - 1), MOST_ANEW) if is_dear else 0

    def forget(self, id: GlobalId) -> None:
        """Forget a view."""
        self._views.pop(id, None)

    def of(self, id: GlobalId) -> RefreshCost:
        """Return the costs of a view, and whether its next refresh is computed anew."""
        view = self._views.get(id, _View())
        return RefreshCost(view.changes_ns, view.anew_ns, view.left > 0)
