"""The first rows of each group, and the rows of positive multiplicity."""

from collections.abc import Iterator, Sequence

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.closed_groups import ClosedGroups, Kept
from foreshore.compute.flow.operators.grouping import grouped, points_of
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.operators.staged import StagedRows
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.sums import SumTable

NO_LIMIT = (1 << 62) - 1


class TopK(StagedRows):
    """The rows of each group from `offset` on, at most `limit`, in order.

    `program` makes the key, the words that order the rows, and from word `row` on the row. If the
    input is `monotonic`, only the first `offset + limit` rows are kept.
    """

    def __init__(
        self,
        input: int,
        layout: Layout,
        program: Program,
        spine: OrderedSpine,
        row: int,
        offset: int,
        limit: int,
        context: Context,
        *,
        monotonic: bool = False,
    ) -> None:
        super().__init__(spine)
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._program = program
        self._row = row
        self._offset = offset
        self._limit = limit
        self._context = context
        self.kept = offset + limit if monotonic and limit < NO_LIMIT else None

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the first rows."""
        updates = self._program.run(inputs[0], self._context)
        key, seed = self._spine.key, self._context.seed
        order, hashes = grouped(updates, key, seed)
        points = points_of(order, hashes, updates, key, window)
        if self.kept is None:
            self._stage(updates)
            return self._spine.first_rows_changed(points, self._offset, self._limit, self._row)
        self._stage_growing(updates, seed)
        found = first = self._spine.first_rows_changed(points, 0, self.kept, 0)
        if self._offset:
            found = self._spine.first_rows_changed(points, self._offset, self._limit, 0)
        self._keep(first)
        words = np.ascontiguousarray(found.words[:, self._row :])
        return Batch(words, found.times, found.diffs)


class Threshold(ClosedGroups):
    """The rows whose multiplicity is positive; a program puts their words in one form."""

    def __init__(self, input: int, layout: Layout, program: Program, context: Context) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._program = program
        self._counts = SumTable(layout.words, np.zeros(0, np.int64))
        self._context = context

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the rows."""
        updates = self._program.run(inputs[0], self._context)
        order, hashes = grouped(updates, updates.width, self._context.seed)
        points = points_of(order, hashes, updates, updates.width, window)
        counts = self._counts.at(points, order, hashes, updates)[:, 0]
        words = updates.words[points.rows]
        return Batch(*groups.changes(words, np.maximum(counts, 0), points.times, points.first))

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept; each row is a group."""
        return (self._counts,)

    def commit(self) -> None:
        """Keep what was staged."""
        self._counts.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        self._counts.restore()

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the counts."""
        yield self._counts.size("counts")

    def save(self, to: Writer) -> None:
        """Write the counts."""
        self._counts.save(to.part("counts"))

    def load(self, saved: Reader) -> None:
        """Take counts over."""
        self._counts.load(saved.part("counts"))
