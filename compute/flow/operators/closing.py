"""Rows that appear once watermarks have passed the times in one of their columns.

    input     (row, t, diff), where the row has the time c
    output    (row, max(t, the first time at which all watermarks are at c), diff)

Rows wait in the order of c, so a step touches only those that it puts out. What has appeared is not
kept. The watermarks are relations of one row, which never decreases.

Groups whose windows are closed do not change again, where their rows come from relations with
watermarks. Then `Freed` says what other operators may forget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.calendar import TIMESTAMP_INFINITY
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.closed_groups import ClosedGroups
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.waiting import Waiting
from foreshore.compute.presence import Bits
from foreshore.errors import InternalError

BEFORE_ALL = -(1 << 63)  # a watermark before the first time


Marks = tuple[tuple[int, int], ...]  # numbers of watermarks, each with an offset


@dataclass(frozen=True, slots=True)
class Freed:
    """Groups of an operator that close: their value is at most each watermark and an offset."""

    operator: ClosedGroups
    place: Place
    marks: Marks

    def through(self, marks: Sequence[int]) -> int:
        """Return the greatest value of the groups that are closed."""
        return min(marks[number] + offset for number, offset in self.marks)


class Closing:
    """Rows of the first input, once the others have passed the time in `column`."""

    def __init__(
        self,
        inputs: Sequence[int],
        layouts: Sequence[Layout],
        column: int,
        waiting: Waiting,
        seed: int,
        freed: Sequence[Freed],
        *,
        inclusive: bool,
    ) -> None:
        self.inputs: tuple[int, ...] = tuple(inputs)
        self.layout = layouts[0]
        self._places = [each.places[0] for each in layouts[1:]]
        self._place = self.layout.places[column]
        self._waiting = waiting
        self._seed = seed
        self._freed = tuple(freed)
        self._later = int(not inclusive)
        self._marks = [BEFORE_ALL] * len(self._places)
        self._staged: list[int] | None = None

    @property
    def frees(self) -> tuple[ClosedGroups, ...]:
        """Return the operators that forget closed groups."""
        return tuple(each.operator for each in self._freed)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes in a window: those of the input, and those that waited."""
        times, marks, self._staged = self._moves(inputs[1:])
        before, after = min(self._marks), min(self._staged)
        parts = []
        if after > before:
            released = self._waiting.release(after + 1)
            parts.append(_at(released, times[np.searchsorted(marks, released.times)]))
        updates = inputs[0]
        if len(updates):
            bounds, null = _values(updates, self._place)
            shown = ~null & (bounds < TIMESTAMP_INFINITY)
            updates, bounds = updates.take(shown), bounds[shown] + self._later
            bounds = np.maximum(bounds, BEFORE_ALL + 1)
            if self._freed and (bounds <= before).any():
                raise InternalError("a row of a closed window has changed")
            found = np.searchsorted(marks, bounds)
            is_open = bounds > after
            self._waiting.add(_at(updates, bounds).take(is_open))
            first = np.where(bounds <= before, window.lower, _taken(times, found))
            parts.append(_at(updates, np.maximum(updates.times, first)).take(~is_open))
        return consolidated(concat(parts, self.layout.words), self._seed)

    def _moves(self, inputs: Sequence[Batch]) -> tuple[Ints, Ints, list[int]]:
        """Return the times at which the least watermark changes, its values, and all at the end."""
        changes = [_increases(*pair) for pair in zip(inputs, self._places, strict=True)]
        times = np.unique(np.concatenate([each for each, _ in changes]))
        least = np.full(len(times), (1 << 63) - 1)
        ends = []
        for (at, values), mark in zip(changes, self._marks, strict=True):
            known = np.maximum.accumulate(np.concatenate([[mark], values]))
            least = np.minimum(least, known[np.searchsorted(at, times, "right")])
            ends.append(int(known[-1]))
        return times, least, ends

    def commit(self) -> None:
        """Keep what the last step staged, and let others forget what is closed."""
        self._waiting.commit()
        if self._staged is None:
            return
        moved, self._marks, self._staged = self._staged != self._marks, self._staged, None
        if moved and BEFORE_ALL not in self._marks:
            for each in self._freed:
                each.operator.forget(each.place, each.through(self._marks))

    def restore(self) -> None:
        """Return to the state before the last step."""
        self._waiting.restore()
        self._staged = None

    def save(self, to: Writer) -> None:
        """Write what waits, and the watermarks."""
        to.numbers("marks", *self._marks)
        self._waiting.save(to.part("waiting"))

    def load(self, saved: Reader) -> None:
        """Take these over."""
        self._marks = [*saved.numbers("marks")]
        self._waiting.load(saved.part("waiting"))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of what waits."""
        yield self._waiting.size()


def _at(updates: Batch, times: Ints) -> Batch:
    return Batch(updates.words, times, updates.diffs)


def _taken(times: Ints, places: Ints) -> Ints:
    """Return the times at places, of which those beyond the last are of no matter."""
    return times[np.minimum(places, len(times) - 1)] if len(times) else np.zeros_like(places)


def _values(updates: Batch, place: Place) -> tuple[Ints, Bits]:
    """Return the values of a column of one word, and which are NULL."""
    words = updates.words
    null = np.zeros(len(updates), np.bool_)
    if place.bit >= 0:
        word, bit = divmod(place.bit, 64)
        null = (words[:, word] >> bit & 1).astype(np.bool_)
    return words[:, place.word], null


def _increases(updates: Batch, place: Place) -> tuple[Ints, Ints]:
    """Return the new values of a watermark in the order of their times, without NULLs."""
    values, null = _values(updates, place)
    new = (updates.diffs > 0) & ~null
    times, values = updates.times[new], values[new]
    order = np.lexsort((values, times))
    return times[order], values[order]
