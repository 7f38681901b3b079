"""Joins of any number of inputs, as delta joins: no intermediate result is kept.

For each changed input its changes go through a path of look-ups in the arrangements of the others.
Inputs before it are read with their changes in the window, inputs after it without. So each
combination of changes is counted once, at the latest of their times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.arranged import Arranged
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.program import Context, Program
from foreshore.update import Timestamp

MANY = 1000  # rows of several times, beyond which those that cancel out are removed


@dataclass(frozen=True, slots=True)
class Stage:
    """A look-up: which arrangement, of which input, and what follows.

    The words at `kept` of the rows that look up remain; `then` prepares the next key, or at the end
    the output.
    """

    arranged: int
    input: int
    kept: Ints
    then: Program


@dataclass(frozen=True, slots=True)
class Path:
    """From the changes of one input to changes of the output."""

    start: Program
    stages: tuple[Stage, ...]


class Join:
    """A delta join; `arranged` has with each arrangement the number of its input."""

    def __init__(
        self,
        inputs: tuple[int, ...],
        layout: Layout,
        arranged: Sequence[tuple[int, Arranged]],
        paths: Sequence[Path],
        context: Context,
    ) -> None:
        self.inputs = inputs
        self.layout = layout
        self._arranged = tuple(arranged)
        self._paths = tuple(paths)
        self._context = context

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the join."""
        for number, arranged in self._arranged:
            if len(inputs[number]):
                arranged.insert(inputs[number])
        parts = [
            self._follow(number, path, updates, window)
            for number, (path, updates) in enumerate(zip(self._paths, inputs, strict=True))
            if len(updates)
        ]
        return concat(parts, self.layout.words)

    def _follow(self, number: int, path: Path, updates: Batch, window: Window) -> Batch:
        if any(stage.input > number and self._of(stage).was_empty for stage in path.stages):
            return empty(self.layout.words)
        rows = path.start.run(updates, self._context)
        for stage in path.stages:
            before = window.upper if stage.input < number else window.lower
            rows = self._of(stage).spine.joined(rows, stage.kept, before)
            rows = stage.then.run(rows, self._context)
            if len(rows) > MANY and window.upper - window.lower > 1:
                rows = consolidated(rows, self._context.seed)
        return rows

    def _of(self, stage: Stage) -> Arranged:
        return self._arranged[stage.arranged][1]

    def commit(self) -> None:
        """Keep what the last step inserted."""
        for _, arranged in self._arranged:
            arranged.commit()

    def restore(self) -> None:
        """Take back what the last step inserted."""
        for _, arranged in self._arranged:
            arranged.restore()

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        for _, arranged in self._arranged:
            arranged.compact(since)

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        return any([arranged.maintain() for _, arranged in self._arranged])
