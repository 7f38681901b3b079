"""Window functions: rows with values that depend on the other rows of their partition.

The rows of a partition are kept in order. Where a partition changes, its rows are read as of each
point of change, before and after; rows with other values than before are put out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.frame_values import Rows, put_value
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.grouping import consolidated, grouped, points_of
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.partitions import Part, Partitions
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.spine import Mark
from foreshore.expr.ir import WindowFunction

NO_LIMIT = (1 << 62) - 1
Frames = Callable[[Rows], list[Part]]


@dataclass(frozen=True, slots=True)
class Computed:
    """A function: the places of its arguments and filter, its frames, and its column."""

    function: WindowFunction
    args: tuple[Place, ...]
    filter: Place | None
    frames: Frames
    place: Place


@dataclass(frozen=True, slots=True)
class RowParts:
    """Where the parts of a row of the spine begin, after its key."""

    peers: int  # the end of the words of the order's keys
    row: int
    args: int


class WindowFunctions:
    """The rows of partitions with the values of window functions.

    `program` makes the key, the words that order the rows, the row and the functions' arguments.
    """

    def __init__(
        self,
        input: int,
        layout: Layout,
        program: Program,
        spine: OrderedSpine,
        parts: RowParts,
        functions: Sequence[Computed],
        context: Context,
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._program = program
        self._spine = spine
        self._parts = parts
        self._functions = tuple(functions)
        self._context = context
        self._mark: Mark | None = None

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the rows and of their values."""
        updates = self._program.run(inputs[0], self._context)
        key = self._spine.key
        order, hashes = grouped(updates, key, self._context.seed)
        points = points_of(order, hashes, updates, key, window)
        self._mark = self._spine.mark()
        self._spine.insert(updates)
        found, words, counts = self._spine.rows_at(
            points.rows, points.times, points.hashes, points.words, 0, NO_LIMIT
        )
        if (counts != 1).any():
            found, words = np.repeat(found, counts), np.repeat(words, counts, axis=0)
        values = self._values(found, words)
        here = ~points.first[found]
        gone = ~points.last[found]
        times = np.concatenate([points.times[found[here]], points.times[found[gone] + 1]])
        diffs = np.ones(len(times), np.int64)
        diffs[np.count_nonzero(here) :] = -1
        changed = Batch(np.concatenate([values[here], values[gone]]), times, diffs)
        return consolidated(changed, self._context.seed)

    def _values(self, partition: Ints, words: Words) -> Words:
        """Return the output's rows, given those of partitions in order."""
        parts = self._parts
        partitions = Partitions.of(partition, words[:, self._spine.key : parts.peers])
        result = np.zeros((len(words), self.layout.words), np.int64)
        result[:, : parts.args - parts.row] = words[:, parts.row : parts.args]
        if not len(words):
            return result
        rows = Rows(words[:, parts.args :], partitions, self._context.interner)
        frames: dict[object, list[Part]] = {}
        for each in self._functions:
            frame = each.function.frame
            if frame not in frames:
                frames[frame] = each.frames(rows)
            put_value(
                each.function, rows, each.args, each.filter, frames[frame], result, each.place
            )
        return result

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
