"""Arranged inputs: a program that makes rows with a key, and the spine of these rows."""

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.spine import Mark, Spine
from foreshore.update import Timestamp


class Arranged:
    """The rows that `program` makes of an input, by the key that they begin with."""

    def __init__(self, program: Program, spine: Spine, context: Context) -> None:
        self.spine = spine
        self._program = program
        self._context = context
        self._mark: Mark | None = None

    @property
    def was_empty(self) -> bool:
        """Whether it had no rows before what is staged."""
        mark = self._mark
        return not len(self.spine) if mark is None else not mark.runs and not mark.used

    def insert(self, updates: Batch) -> Batch:
        """Stage updates of the input; return them as arranged rows."""
        if self._mark is None:
            self._mark = self.spine.mark()
        arranged = self._program.run(updates, self._context)
        self.spine.insert(arranged)
        return arranged

    def commit(self) -> None:
        """Keep what was staged."""
        self._mark = None

    def restore(self) -> None:
        """Forget what was staged."""
        if self._mark is not None:
            self.spine.restore(self._mark)
            self._mark = None

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self.spine.compact(since)

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        return self.spine.maintain()
