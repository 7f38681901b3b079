"""Ordered rows of an operator, which a step changes and a failed step restores."""

from collections.abc import Iterator

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.operators.closed_groups import ClosedGroups, Kept
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.spine import Mark
from foreshore.compute.flow.sums import Points
from foreshore.errors import InternalError


def changes_at(points: Points, found: Ints, words: Words, counts: Ints, seed: int) -> Batch:
    """Return the changes of what groups have, given the rows at each of their points.

    `found` are the numbers of the points at which groups have `words`, `counts` times.
    """
    here, gone = ~points.first[found], ~points.last[found]
    changed = Batch(
        np.concatenate([words[here], words[gone]]),
        np.concatenate([points.times[found[here]], points.times[found[gone] + 1]]),
        np.concatenate([counts[here], -counts[gone]]),
    )
    return consolidated(changed, seed)


class StagedRows(ClosedGroups):
    """The base of operators and aggregates whose state is a spine of ordered rows.

    If the input is monotonic, which means that rows never leave, only those are kept that count.
    """

    def __init__(self, spine: OrderedSpine) -> None:
        self._spine = spine
        self._mark: Mark | None = None

    def _stage(self, updates: Batch) -> None:
        """Insert the updates of a step, until `commit` or `restore`."""
        self._mark = self._spine.mark()
        self._spine.insert(updates)

    def _stage_growing(self, updates: Batch, seed: int) -> None:
        """Insert the updates of a monotonic input, until `_keep` replaces them."""
        if (updates.diffs < 0).any() and (consolidated(updates, seed).diffs < 0).any():
            raise InternalError("rows have left an append-only collection")
        self._stage(updates)

    def _keep(self, changes: Batch) -> None:
        """Keep the changes of the rows that count in place of what was staged."""
        assert self._mark is not None
        self._spine.restore(self._mark)
        self._spine.insert(changes)

    def commit(self) -> None:
        """Keep what was staged."""
        self._mark = None

    def restore(self) -> None:
        """Forget what was staged."""
        if self._mark is not None:
            self._spine.restore(self._mark)
            self._mark = None

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by groups."""
        return (self._spine,)

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the ordered rows."""
        yield self._spine.size("ordered rows")

    def save(self, to: Writer) -> None:
        """Write the ordered rows."""
        self._spine.save(to.part("ordered"))

    def load(self, saved: Reader) -> None:
        """Take ordered rows over."""
        self._spine.load(saved.part("ordered"))
