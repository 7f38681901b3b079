"""How many groups of peers each partition has, for dense_rank."""

from collections.abc import Iterator

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.operators.closed_groups import Kept
from foreshore.compute.flow.operators.grouping import grouped, points_of, sorted_groups
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.sums import Points, SumTable

_NO_SUMS = np.zeros(0, np.int64)


class PeerGroups:
    """Counts of the rows of each group of peers, and of the groups of each partition.

    `program` makes the words of the partition's key, `key` of them, and of the order's keys.
    """

    def __init__(self, program: Program, width: int, key: int, context: Context) -> None:
        self._program = program
        self._rows = SumTable(width, _NO_SUMS)
        self._groups = SumTable(key, _NO_SUMS)
        self._key = key
        self._context = context

    def at(self, points: Points, input: Batch, window: Window) -> Ints:
        """Return the groups of the partition at each point, given the input's updates."""
        seed = self._context.seed
        found = self._program.run(input, self._context)
        order, hashes = grouped(found, found.width, seed)
        changed = points_of(order, hashes, found, found.width, window)
        there = self._rows.at(changed, order, hashes, found)[:, 0] > 0
        rows = found.words[changed.rows]
        begun = Batch(*groups.changes(rows, there.astype(np.int64), changed.times, changed.first))
        order, hashes = sorted_groups(begun, self._key, seed)
        counts: Ints = self._groups.at(points, order, hashes, begun)[:, 0]
        return counts

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by partitions."""
        return (self._rows, self._groups)

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of both counts."""
        yield self._rows.size("counts")
        yield self._groups.size("counts")

    def save(self, to: Writer) -> None:
        """Write both counts."""
        self._rows.save(to.part("rows"))
        self._groups.save(to.part("groups"))

    def load(self, saved: Reader) -> None:
        """Take both counts over."""
        self._rows.load(saved.part("rows"))
        self._groups.load(saved.part("groups"))

    def commit(self) -> None:
        """Keep what was staged."""
        self._rows.commit()
        self._groups.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        self._rows.restore()
        self._groups.restore()
