"""Ordered rows of an operator, which a step changes and a failed step restores."""

from collections.abc import Iterator

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.spine import Mark


class StagedRows:
    """The base of operators and aggregates whose state is a spine of ordered rows."""

    def __init__(self, spine: OrderedSpine) -> None:
        self._spine = spine
        self._mark: Mark | None = None

    def _stage(self, updates: Batch) -> None:
        """Insert the updates of a step, until `commit` or `restore`."""
        self._mark = self._spine.mark()
        self._spine.insert(updates)

    def commit(self) -> None:
        """Keep what was staged."""
        self._mark = None

    def restore(self) -> None:
        """Forget what was staged."""
        if self._mark is not None:
            self._spine.restore(self._mark)
            self._mark = None

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the ordered rows."""
        yield self._spine.size("ordered rows")

    def save(self, to: Writer) -> None:
        """Write the ordered rows."""
        self._spine.save(to.part("ordered"))

    def load(self, saved: Reader) -> None:
        """Take ordered rows over."""
        self._spine.load(saved.part("ordered"))
