"""Dataflows whose output changes only in windows in which their inputs change."""

from collections.abc import Iterable, Sequence

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import IndexRows
from foreshore.compute.protocol import IndexExport, OperatorWork
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


class WindowedDataflow:
    """What a `foreshore.compute.engine.Dataflow` does if nothing happens between its windows.

    Its state, if any, has no times: no update is scheduled, and nothing is compacted or merged.
    """

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return 0: any window may take longer than a few milliseconds."""
        return 0

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Do nothing: the engine limits its own memory."""

    def cancel(self) -> None:
        """Do nothing: a window takes a short time."""

    def due(self, upper: int) -> int:
        """Return 0: only changes of inputs change the output."""
        return 0

    def advanced(self, upper: int) -> None:
        """Do nothing: only windows with changes count."""

    def merge_times(self, merged: MergedTimes) -> None:
        """Do nothing: each time is exact."""

    def allow_compaction(self, since: int) -> None:
        """Do nothing: changes do not outlive their window."""

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return None: an arrangement of the output's tables will do."""
        return None

    @property
    def maintenance_due(self) -> bool:
        """Return False."""
        return False

    def maintain(self) -> bool:
        """Return that nothing is to be done."""
        return False

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return nothing: there are no arrangements."""
        return ()

    def work(self) -> Iterable[OperatorWork]:
        """Return nothing: there are no operators."""
        return ()

    def close(self) -> None:
        """Do nothing: there are no resources."""
