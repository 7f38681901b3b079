"""Joins of any number of inputs, as delta joins: no intermediate result is kept.

For each changed input its changes go through a path of look-ups in the arrangements of the others.
Inputs before it are read with their changes in the window, inputs after it without. So each
combination of changes is counted once, at the latest of their times.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.bulk import Bulk
from foreshore.compute.flow.conditions import Conditions
from foreshore.compute.flow.kernels.probing import ANY, TooManyMatches
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.arranged import Arranged, ArrangedOnce, Readable
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.shared import Shared
from foreshore.update import Timestamp

SAMPLE = 256  # rows of an input by which paths are compared
MOST_MATCHES = 1 << 22  # of one look-up; the rows of one with more are looked up in two halves
MANY = 1000  # rows of several times, beyond which those that cancel out are removed
FEW = 64  # the same where a look-up has found several for each row


@dataclass(frozen=True, slots=True)
class Stage:
    """A look-up in an input, by the key with number `key` of what is arranged.

    Of the rows that look up the words at `kept` remain, of those found that fulfil `where`
    (`conditions.py`) the words at `added`; `then` prepares the next key, or at the end the output.
    """

    input: int
    key: int
    kept: Ints
    added: Ints
    where: Conditions
    then: Program


@dataclass(frozen=True, slots=True)
class Path(Shared):
    """From the changes of one input to changes of the output."""

    start: Program
    stages: tuple[Stage, ...]


class Join:
    """A delta join; `arranged` has what each input is looked up in, if it is."""

    def __init__(
        self,
        inputs: tuple[int, ...],
        layout: Layout,
        arranged: Sequence[Readable | None],
        paths: Sequence[Path],
        bulk: Bulk | None,
        context: Context,
    ) -> None:
        self.inputs = inputs
        self.layout = layout
        self.bulk = bulk
        self._arranged = tuple(arranged)
        self._own = [(i, each) for i, each in enumerate(arranged) if isinstance(each, Arranged)]
        self._paths = tuple(paths)
        self._context = context
        self._begun = self._beginning = False
        self._made = 0  # bytes that parts of a look-up in halves have given in a step

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the join; in the first step all inputs are new."""
        self._insert(inputs)
        self._made = 0
        if not self._begun:
            self._beginning = True
            return self._all_at_once(window, inputs)
        parts = [
            self._follow(number, path, updates, window)
            for number, (path, updates) in enumerate(zip(self._paths, inputs, strict=True))
            if len(updates)
        ]
        return concat(parts, self.layout.words)

    def begin(self) -> None:
        """Note that the first output, of inputs that are not arranged here, was made elsewhere."""
        self._beginning = True

    def fill(self, inputs: Sequence[Batch]) -> None:
        """Arrange the first updates of the inputs; the output is made elsewhere."""
        self._insert(inputs)
        self._beginning = True

    def look_ups(self, input: int) -> list[tuple[Readable, int]]:
        """Return in what, and by which key, the changes of an input are looked up."""
        return [(self._of(stage), stage.key) for stage in self._paths[input].stages]

    def arrange(self, input: int, updates: Batch) -> None:
        """Stage updates of an input, if it is looked up here."""
        for number, arranged in self._own:
            if number == input and len(updates):
                arranged.insert(updates)

    def follow(self, input: int, updates: Batch, before: Callable[[int], Timestamp]) -> Batch:
        """Return what comes of an input's updates with the others, read before given times."""
        self._made, at_once = 0, Window(0, 1)
        return self._run(self._paths[input], updates, at_once, before)[0]

    def replace(self, input: int) -> None:
        """Stage that an input has no rows but those that are arranged from now on."""
        for number, arranged in self._own:
            if number == input:
                arranged.clear()

    def is_shared(self, input: int) -> bool:
        """Whether an input is looked up in a collection that others read too."""
        return not isinstance(self._arranged[input], Arranged | None)

    def clear_shared(self) -> None:
        """Stage that what it shares with other iterations of a recursion is inserted anew."""
        for _, arranged in self._own:
            if isinstance(arranged, ArrangedOnce):
                arranged.clear_once()

    def _insert(self, inputs: Sequence[Batch]) -> None:
        for number, arranged in self._own:
            if len(inputs[number]):
                arranged.insert(inputs[number])

    def _all_at_once(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the join of inputs of which nothing was there before.

        One path gives all of it. It is the one that is cheapest for a sample of its input.
        """
        if len(self._paths) == 1:
            return self._paths[0].start.run(inputs[0], self._context)
        with self._context.without_errors():
            works = [
                self._estimated(path, updates, window)
                for path, updates in zip(self._paths, inputs, strict=True)
            ]
        self._made = 0
        best = int(np.argmin(works))
        return self._run(self._paths[best], inputs[best], window, lambda _: window.upper)[0]

    def _estimated(self, path: Path, updates: Batch, window: Window) -> int:
        """Return about how many rows would go through a path."""
        step = max(1, len(updates) // SAMPLE)
        sample = updates.take(slice(None, None, step))
        return step * self._run(path, sample, window, lambda _: window.upper)[1]

    def _run(
        self, path: Path, updates: Batch, window: Window, before: Callable[[int], Timestamp]
    ) -> tuple[Batch, int]:
        """Return what comes out of a path, and how many rows went through it.

        An input is read before the time that `before` gives for it.
        """
        rows = path.start.run(updates, self._context)
        found, work = self._through(path.stages, rows, window, before)
        return found, work + len(updates)

    def _through(
        self,
        stages: Sequence[Stage],
        rows: Batch,
        window: Window,
        before: Callable[[int], Timestamp],
    ) -> tuple[Batch, int]:
        """Return what comes out of some stages, and how many rows went through them."""
        work = 0
        for number, stage in enumerate(stages):
            most = MOST_MATCHES if len(rows) > 1 else ANY
            time, where = before(stage.input), stage.where.bounds
            args = stage.key, rows, stage.kept, stage.added, time, most, where
            try:
                found = self._of(stage).joined(*args)
            except TooManyMatches:
                found, more = self._in_halves(stages[number:], rows, window, before)
                return found, work + more
            work += len(found)
            grown = len(found) > 2 * len(rows)  # versions of rows that were not merged, perhaps
            rows = stage.then.run(found, self._context)
            if (grown and len(rows) > FEW) or (
                len(rows) > MANY and window.upper - window.lower > 1
            ):
                rows = consolidated(rows, self._context.seed)
        return rows, work

    def _in_halves(
        self,
        stages: Sequence[Stage],
        rows: Batch,
        window: Window,
        before: Callable[[int], Timestamp],
    ) -> tuple[Batch, int]:
        """Return what `_through` does, and look in between how much memory that takes."""
        middle, parts, work = len(rows) // 2, [], 0
        for half in (slice(None, middle), slice(middle, None)):
            made = self._made
            part, more = self._through(stages, rows.take(half), window, before)
            if self._made == made:  # else its halves were counted
                self._made += part.nbytes
            self._context.check_made(self._made)
            parts.append(part)
            work += more
        return concat(parts, stages[-1].then.width), work

    def _follow(self, number: int, path: Path, updates: Batch, window: Window) -> Batch:
        if any(stage.input > number and self._of(stage).was_empty for stage in path.stages):
            return empty(self.layout.words)

        def before(input: int) -> Timestamp:
            return window.upper if input < number else window.lower

        return self._run(path, updates, window, before)[0]

    def _of(self, stage: Stage) -> Readable:
        found = self._arranged[stage.input]
        assert found is not None
        return found

    def commit(self) -> None:
        """Keep what the last step inserted."""
        self._begun |= self._beginning
        for _, arranged in self._own:
            arranged.commit()

    def restore(self) -> None:
        """Take back what the last step inserted."""
        self._beginning = False
        for _, arranged in self._own:
            arranged.restore()

    def save(self, to: Writer) -> None:
        """Write the rows that are arranged here."""
        to.numbers("begun", self._begun)
        for number, arranged in self._own:
            if to.once(arranged):
                arranged.spine.save(to.part(number))

    def load(self, saved: Reader) -> None:
        """Take these rows over."""
        (begun,) = saved.numbers("begun")
        self._begun = bool(begun)
        for number, arranged in self._own:
            if saved.once(arranged):
                arranged.spine.load(saved.part(number))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of each arrangement, but for those of all iterations of a recursion."""
        for _, arranged in self._own:
            if not isinstance(arranged, ArrangedOnce):
                yield arranged.spine.size("rows")

    def sizes_of_shared(self) -> Iterator[ArrangementSize]:
        """Yield the size of each arrangement of all iterations of a recursion."""
        for _, arranged in self._own:
            if isinstance(arranged, ArrangedOnce):
                yield arranged.spine.size("rows")
