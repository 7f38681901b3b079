"""One cycle in which the strings are forgotten that no state of a replica names any more."""

from collections.abc import Sequence

from foreshore.compute.checkpoint.state import Captured
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.intern import Interner


class Forgetting:
    """A cycle (see `compute/forgetting.py`), which begins when it is made."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._interner: Interner = collections.interner
        self._interner.begin_forgetting()

    def shared(self) -> Sequence[Captured]:
        """Return the rows of the collections that dataflows share."""
        return self._collections.rows_kept()

    def mark(self, captured: Captured) -> None:
        """Mark all strings that are named in captured state; any thread may call it."""
        for array in captured.arrays.values():
            self._interner.mark(array)
        for run in captured.runs.values():
            self._interner.mark(run.words)

    def forget(self) -> int:
        """Forget what is not marked, and end the cycle; return how many strings."""
        return self._interner.forget()

    def end(self) -> None:
        """End the cycle, if it is still on, without forgetting anything."""
        self._interner.keep_all()
