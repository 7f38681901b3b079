"""Joins of several workers: delta joins whose look-ups go to the workers that have the rows.

The rows of an input are with the owners of its first key. A look-up by that key asks one worker, by
another key all of them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints, concat
from foreshore.compute.flow.bulk import Bulk
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.arranged import Arranged, Readable
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.join import MANY, SAMPLE, Join, Path
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.peers import Peers
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.spine import Spine
from foreshore.update import Timestamp


class SpreadArranged(Arranged):
    """The rows that a program makes of an input, at the owners of their first key."""

    def __init__(self, program: Program, spine: Spine, context: Context) -> None:
        super().__init__(program, spine, context)
        assert context.peers is not None
        self._peers: Peers = context.peers

    def insert(self, updates: Batch) -> None:
        """Stage updates of the input; collective."""
        if self._mark is None:
            self._mark = self.spine.mark()
        rows = self._program.run(updates, self._context)
        places, strings = self.spine.keys[0], self._program.strings
        of_key = np.flatnonzero(np.isin(places, strings))
        self.spine.insert(self._peers.route(rows, strings, rows.words[:, places], of_key))


class SpreadJoin(Join):
    """A delta join of which each worker has a share of the rows."""

    def __init__(
        self,
        inputs: tuple[int, ...],
        layout: Layout,
        arranged: Sequence[Readable | None],
        paths: Sequence[Path],
        bulk: Bulk | None,
        context: Context,
    ) -> None:
        super().__init__(inputs, layout, arranged, paths, bulk, context)
        assert context.peers is not None
        self._peers: Peers = context.peers
        self._spread = dict(self._own)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the join that are computed here."""
        count = len(inputs)
        there = [len(self._spread[i].spine) if i in self._spread else 0 for i in range(count)]
        totals = self._peers.totals([*map(len, inputs), *there])
        changed, there = totals[:count], totals[count:]
        for number, arranged in self._own:
            if changed[number]:
                arranged.insert(inputs[number])
        if not self._begun:
            self._beginning = True
            return self._all_at_once(window, inputs)
        parts = [
            self._follow(number, path, inputs[number], window)
            for number, path in enumerate(self._paths)
            if changed[number]
            and not any(stage.input > number and not there[stage.input] for stage in path.stages)
        ]
        return concat(parts, self.layout.words)

    def fill(self, inputs: Sequence[Batch]) -> None:
        """Arrange the first updates of the inputs; the output is made elsewhere. Collective."""
        changed = self._peers.totals([*map(len, inputs)])
        for number, arranged in self._own:
            if changed[number]:
                arranged.insert(inputs[number])
        self._beginning = True

    def _all_at_once(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        works = []
        with self._context.without_errors():
            for path, updates in zip(self._paths, inputs, strict=True):
                step = max(1, len(updates) // SAMPLE)
                sample = updates.take(slice(None, None, step))
                works.append(step * self._run(path, sample, window, lambda _: window.upper)[1])
        best = int(np.argmin(self._peers.totals(works)))
        return self._run(self._paths[best], inputs[best], window, lambda _: window.upper)[0]

    def _follow(self, number: int, path: Path, updates: Batch, window: Window) -> Batch:
        def before(input: int) -> Timestamp:
            return window.upper if input < number else window.lower

        return self._run(path, updates, window, before)[0]

    def _run(
        self, path: Path, updates: Batch, window: Window, before: Callable[[int], Timestamp]
    ) -> tuple[Batch, int]:
        """Return what comes out of a path here, and how many rows went through it; collective."""
        program = path.start
        rows = program.run(updates, self._context)
        work = len(updates)
        for stage in path.stages:
            arranged = self._spread[stage.input]
            width = len(arranged.spine.keys[stage.key])
            rows = self._sent(rows, program.strings, width, to_one=stage.key == 0)
            rows = arranged.joined(
                stage.key,
                rows,
                stage.kept,
                stage.added,
                before(stage.input),
                where=stage.where.bounds,
            )
            work += len(rows)
            program = stage.then
            rows = program.run(rows, self._context)
            if len(rows) > MANY and window.upper - window.lower > 1:
                rows = consolidated(rows, self._context.seed)
        return rows, work

    def _sent(self, rows: Batch, strings: Ints, width: int, *, to_one: bool) -> Batch:
        """Send rows to the owners of their first `width` words, or to all workers."""
        if not to_one:
            return self._peers.broadcast(rows, strings)
        return self._peers.route(rows, strings, rows.words[:, :width], strings[strings < width])
