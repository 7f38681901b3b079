"""Recursion: values that are computed from each other, round by round, until they do not change.

    iteration 1    values of round 1, from empty ones
    iteration 2    values of round 2, from those of round 1
    ...
    iteration n    the same values as iteration n - 1: the result

Each iteration has its own operators and keeps their state between steps. So a change goes through
all iterations, and costs in each what it touches; deletions are as exact as insertions. If the last
two iterations do not agree at each time of a window, another one is added. Before the window it
would have been in the state of the last one, because the inputs of both were the same, so it is a
copy of that.

A change of many rows costs more than all iterations anew, each of which it goes through. So the
rows of the inputs and of the values are kept as well, and from `ANEW_LEAST` changed rows on, if
they are a part of the inputs' rows of 1 / `ANEW_SHARE`, all is computed anew and the values are
compared with those before. That is left out where rows may fail, for changes at several times, and
if a limit is met.

It is an error of the plan if a value has more rows in a round than can be counted: their number
would wrap around, and the rounds might agree by that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.contents import Contents
from foreshore.compute.flow.iteration import Iteration, are_equal, with_text
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.operator import Stateless, Window
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.row_counts import changes
from foreshore.errors import DatabaseError, data_error
from foreshore.ids import GlobalId

MOST_ROWS = 20_000_000  # updates of all iterations in a step
CHECKED_BYTES = 1 << 24  # of values, after which the memory of a step is looked at again
TOO_MANY = "a recursive query has too many rows"
LEAST_ROWS = 100  # for which an iteration counts
ANEW_LEAST = 1_000
ANEW_SHARE = 8
SPARE = 2  # iterations that are kept although fewer would do, at least


class TooManyRows(DatabaseError):
    """The iterations of a step have more rows than they may."""

    def __init__(self) -> None:
        super().__init__(TOO_MANY, sqlstate="54000")


class Loop:
    """The values of a recursion. Its output is empty: `LoopValue` gives the values.

    `inputs` are the operators of the collections `given`, of which the iterations read; `previous`
    are their ids for the values of the round before. `fresh` is an iteration without any state.
    `unsettled` gives the rows in which the last two rounds differ, for a limit that is an error.
    `contents` has the rows of the inputs, of the values and of the errors, if it may be computed
    anew.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        given: Sequence[GlobalId],
        previous: Sequence[GlobalId],
        layouts: Sequence[Layout],
        fresh: Iteration,
        unsettled: Iteration | None,
        limit: int,
        port: int,
        contents: Contents | None,
        context: Context,
    ) -> None:
        self.inputs: tuple[int, ...] = tuple(inputs)
        self.layout = layouts[0]
        self.values: list[Batch] = [empty(layout.words) for layout in layouts]
        self._given = tuple(given)
        self._previous = tuple(previous)
        self._nothing = [empty(layout.words) for layout in layouts]
        self._fresh = fresh
        self._unsettled = unsettled
        self._limit = limit
        self._port = port
        self._contents = contents
        self._context = context
        self._iterations: list[Iteration] = []
        self._kept = 0  # iterations before the step
        self._replaced: list[Iteration] | None = None  # by those that were computed anew
        self._stepped = False

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Compute the changes of the values in a window."""
        self._kept = len(self._iterations)
        self._stepped = False
        self.values = self._nothing
        if self._kept and not any(map(len, inputs)):
            return self._nothing[0]
        self._stepped = True
        if self._contents is not None:
            for place, updates in enumerate(inputs):
                self._contents.insert(place, updates)
        found = self._anew(inputs)
        if found is None:
            found = self._changed(window, inputs)
        *self.values, errors = found
        self._context.fail(self._port, errors)
        if self._contents is not None:
            for place, updates in enumerate(found, len(inputs)):
                self._contents.insert(place, updates)
        return self._nothing[0]

    @property
    def may_be_anew(self) -> bool:
        """Whether it is computed anew if many rows change."""
        return self._contents is not None

    def _anew(self, inputs: Sequence[Batch]) -> list[Batch] | None:
        """Return what `_changed` does from computing all anew, None if that is not done."""
        contents = self._contents
        if contents is None or not self._kept or not self._pays(sum(map(len, inputs))):
            return None
        time = next(int(each.times[0]) for each in inputs if len(each))
        if self._kept == self._limit or any((each.times != time).any() for each in inputs):
            return None
        if any(each.exceeds for each in self._iterations):
            return None
        given = {id: contents.rows(place, time) for place, id in enumerate(self._given)}
        self._replaced, self._iterations, self._kept = self._iterations, [], 0
        self._fresh.clear_shared()
        try:
            _, values = self._rounds(Window(time, time + 1), given)
        except TooManyRows:
            values = []
        is_last = len(self._iterations) == self._limit
        if not values or is_last or any(each.excess for each in self._iterations):
            self._put_back()
            return None
        found = [*values, self._iterations[-1].errors]
        old = [contents.rows(len(inputs) + place, time).negated() for place in range(len(found))]
        return [
            consolidated(concat((new, before), new.width), self._context.seed)
            for new, before in zip(found, old, strict=True)
        ]

    def _pays(self, changed: int) -> bool:
        """Whether so many changes of the inputs, of which there are some, cost more than all."""
        if changed < ANEW_LEAST:
            return False
        assert self._contents is not None
        return ANEW_SHARE * changed >= self._contents.count(range(len(self.inputs)))

    def _put_back(self) -> None:
        """Return to the iterations that were there before all was computed anew."""
        if self._replaced is not None:
            for each in self._iterations:
                each.restore()
            self._fresh.restore()
            self._iterations, self._replaced = self._replaced, None
            self._kept = len(self._iterations)

    def _changed(self, window: Window, inputs: Sequence[Batch]) -> list[Batch]:
        """Return the changes of the values, and of the errors, from those of each iteration."""
        given = dict(zip(self._given, inputs, strict=True))
        before, values = self._rounds(window, given)
        self._note_excess()
        if self._unsettled is not None and len(self._iterations) == self._limit:
            self._note_unsettled(window, before, values)
        return [*values, self._iterations[-1].errors]

    def _rounds(
        self, window: Window, given: Mapping[GlobalId, Batch]
    ) -> tuple[list[Batch], list[Batch]]:
        """Return the changes of the values in the last two rounds."""
        values, last_read, number = self._nothing, given, 0
        rows = made = checked = 0
        pristine: Iteration | None = None  # the last iteration, before the window
        while True:
            before = values
            read = {**given, **dict(zip(self._previous, before, strict=True))}
            if number == len(self._iterations):
                if pristine is None:
                    pristine = self._pristine(window, last_read)
                self._iterations.append(pristine.copy())
            values = self._iterations[number].step(window, read)
            number, last_read = number + 1, read
            made += sum(each.nbytes for each in values)
            self._context.check()
            if made - checked > CHECKED_BYTES:
                self._context.check_made(made)
                checked = made
            rows += max(LEAST_ROWS, sum(map(len, values)))
            if rows > MOST_ROWS:
                raise TooManyRows
            if number == self._limit:
                return before, values
            if number >= self._kept and are_equal(values, before, self._context.seed):
                return before, values

    def _pristine(self, window: Window, read: Mapping[GlobalId, Batch]) -> Iteration:
        """Return the last iteration as it was before the window, given what it has read in it."""
        if not self._iterations:
            return self._fresh
        last = self._iterations[-1]
        last.restore()
        pristine = last.copy()
        last.step(window, read)
        return pristine

    def _note_excess(self) -> None:
        """Note an error at the times at which a value has more rows than can be counted."""
        found = [excess for each in self._iterations for excess in each.excess]
        if found:
            times, diffs = changes(found)
            number = self._context.interner.number(data_error("54000", TOO_MANY).encode())
            words: Ints = np.full((len(times), 1), number, np.int64)
            self._context.fail(self._port, Batch(words, times, diffs))

    def _note_unsettled(
        self, window: Window, before: Sequence[Batch], values: Sequence[Batch]
    ) -> None:
        assert self._unsettled is not None
        ids = [*(f"{id}a" for id in self._previous), *(f"{id}b" for id in self._previous)]
        given = dict(zip(map(GlobalId, ids), [*before, *values], strict=True))
        found = self._unsettled.step(window, given)
        text = data_error("54000", f"recursion did not converge within {self._limit} iterations")
        number = self._context.interner.number(text.encode())
        for each in found:
            self._context.fail(self._port, with_text(each, number))

    def commit(self) -> None:
        """Keep what the last step staged, and no more iterations than are of use."""
        if not self._stepped:
            return
        self._stepped, self._replaced, self.values = False, None, self._nothing
        if self._contents is not None:
            self._contents.commit()
        for each in self._all():
            each.commit()
        needed = self._needed()
        del self._iterations[needed + max(SPARE, needed // 4) :]

    def _needed(self) -> int:
        """Return how many iterations give the result."""
        for number in range(1, len(self._iterations)):
            if self._iterations[number].equals(self._iterations[number - 1]):
                return number + 1
        return len(self._iterations)

    def restore(self) -> None:
        """Return to the state before the last step."""
        if self._stepped:
            self._put_back()
            del self._iterations[self._kept :]
            for each in self._all():
                each.restore()
            if self._contents is not None:
                self._contents.restore()
        self._stepped = False
        self.values = self._nothing

    def _all(self) -> Iterator[Iteration]:
        yield from list(self._iterations)
        if self._unsettled is not None:
            yield self._unsettled

    def compact(self, since: int) -> None:
        """Do nothing: iterations are compacted when they are stepped."""

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return any(each.maintenance_due for each in self._all())

    def maintain(self) -> bool:
        """Do a slice of merging; return whether there is more to do."""
        return any([each.maintain() for each in self._all()])

    def save(self, to: Writer) -> None:
        """Write the iterations."""
        to.numbers("iterations", len(self._iterations))
        for number, each in enumerate(self._all()):
            each.save(to.part(number))
        if self._contents is not None:
            self._contents.save(to.part("contents"))

    def load(self, saved: Reader) -> None:
        """Take saved iterations over."""
        (count,) = saved.numbers("iterations")
        self._iterations = [self._fresh.copy() for _ in range(count)]
        for number, each in enumerate(self._all()):
            each.load(saved.part(number))
        if self._contents is not None:
            self._contents.load(saved.part("contents"))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all iterations' arrangements, added up by their names."""
        found: dict[str, ArrangementSize] = {}
        of_each = chain.from_iterable(each.sizes() for each in list(self._iterations))
        for size in chain(of_each, self._fresh.sizes_of_shared()):
            known = found.get(size.name, replace(size, records=0, batches=0, bytes=0))
            found[size.name] = replace(
                known,
                records=known.records + size.records,
                batches=known.batches + size.batches,
                bytes=known.bytes + size.bytes,
            )
        yield from found.values()
        if self._contents is not None:
            yield from self._contents.sizes()


class Values(Protocol):
    """A recursion whose values have changed in a step."""

    values: list[Batch]


class LoopValue(Stateless):
    """One of the values of a recursion."""

    def __init__(self, loop: int, of: Values, place: int, layout: Layout) -> None:
        self.inputs: tuple[int, ...] = (loop,)
        self.layout = layout
        self._of = of
        self.place = place

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the value."""
        return concat([self._of.values[self.place]], self.layout.words)
