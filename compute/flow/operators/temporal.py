"""Temporal filters: rows enter and leave as time passes, even if no input changes.

    input     (row, t, diff), where the row is there from `begin` on and until `end`
    output    (row, max(t, begin), diff) and (row, end, -diff), or nothing if the row is never there

Updates beyond the window wait for their times. So the output is exact at every time, and what has
left is not kept.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.waiting import Waiting
from foreshore.compute.presence import Bits, presence
from foreshore.update import Timestamp


class TemporalFilter:
    """The rows that satisfy `conditions` on the time, pairs of an operator and a column."""

    def __init__(
        self, input: int, layout: Layout, conditions: Sequence[tuple[str, int]], waiting: Waiting
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._conditions = tuple(conditions)
        self._waiting = waiting

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes in a window: those of the input, and those that were scheduled."""
        (updates,) = inputs
        parts = [self._waiting.release(window.upper)]
        if len(updates):
            moved = self._moved(updates)
            due = moved.times < window.upper
            parts.append(moved.take(due))
            self._waiting.add(moved.take(~due))
        return concat(parts, self.layout.words)

    def _moved(self, updates: Batch) -> Batch:
        """Return the updates at the times at which rows enter and leave."""
        found = presence(updates.times, self._bounds(updates))
        entering = Batch(updates.words, found.begins, updates.diffs).take(found.enters)
        leaving = Batch(updates.words, found.ends, -updates.diffs).take(found.leaves)
        return concat((entering, leaving), self.layout.words)

    def _bounds(self, updates: Batch) -> Iterator[tuple[str, Ints, Bits | None]]:
        """Yield the conditions with each row's bound, and whether that is NULL."""
        words = updates.words
        for operator, column in self._conditions:
            place = self.layout.places[column]
            is_null = None
            if place.bit >= 0:
                word, bit = divmod(place.bit, 64)
                is_null = (words[:, word] >> bit & 1).astype(np.bool_)
            yield operator, words[:, place.word], is_null

    def next_due(self) -> Timestamp | None:
        """Return the time of the earliest update that is scheduled, None if there is none."""
        return self._waiting.first()

    def due(self, upper: Timestamp) -> int:
        """Return the number of updates that are scheduled before `upper`."""
        return self._waiting.due(upper)

    def commit(self) -> None:
        """Keep what the last step staged."""
        self._waiting.commit()

    def restore(self) -> None:
        """Return to the state before the last step."""
        self._waiting.restore()

    def save(self, to: Writer) -> None:
        """Write what waits."""
        self._waiting.save(to.part("waiting"))

    def load(self, saved: Reader) -> None:
        """Take over what waits."""
        self._waiting.load(saved.part("waiting"))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of what waits."""
        yield self._waiting.size()
