"""Iterations of a recursion: copies of the operators that compute all values of one round.

Iteration i computes the values of round i from those of round i - 1, as any operators do: exact at
each time. A copy shares what is immutable with its original (`shared.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Self

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.errors import ErrorOutput
from foreshore.compute.flow.kernels import rows
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.operator import Operator, Window
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.row_counts import Excess, RowCounts
from foreshore.ids import GlobalId


class Iteration:
    """Operators, of which those with numbers `sources` are inputs, and `results` the values."""

    def __init__(
        self,
        operators: Sequence[Operator],
        sources: Mapping[int, GlobalId],
        results: Sequence[int],
        errors: ErrorOutput,
        context: Context,
    ) -> None:
        self._operators = list(operators)
        self._sources = dict(sources)
        self._results = tuple(results)
        self._errors = errors
        self._context = context
        # Of each value a sum over its rows, by which different contents differ almost surely.
        self._prints = np.zeros((len(results), 2), np.uint64)
        self._staged = self._prints
        self._counts = RowCounts(len(results))
        self.errors: Batch = empty(1)
        self.excess: list[Excess] = []  # in the last step

    def copy(self) -> Self:
        """Return another iteration in the same state."""
        return deepcopy(self)

    @property
    def exceeds(self) -> bool:
        """Whether a value has more rows than can be counted."""
        return self._counts.exceeds

    def clear_shared(self) -> None:
        """Stage that what all iterations share is inserted anew."""
        for operator in self._operators:
            if isinstance(operator, Join):
                operator.clear_shared()

    def step(self, window: Window, given: Mapping[GlobalId, Batch]) -> list[Batch]:
        """Return the changes of the values in a window, consolidated.

        Those of the errors are kept, and the values that have too many rows.
        """
        updates: list[Batch] = []
        for kept in self._context.kept:
            kept.compact(window.lower - 1)
        for number, operator in enumerate(self._operators):
            source = self._sources.get(number)
            if source is None:
                inputs = [updates[i] for i in operator.inputs]
                updates.append(operator.step(window, inputs))
            else:
                updates.append(given[source])
        self.errors = self._errors.step(window, self._context)
        seed = self._context.seed
        found = [consolidated(updates[number], seed) for number in self._results]
        self._staged = self._prints + np.array([self._print(each) for each in found], np.uint64)
        self.excess = self._counts.step(found, window.lower - 1)
        return found

    def _print(self, updates: Batch) -> tuple[int, int]:
        """Return the sums over updates of two hashes of each row."""
        places = np.arange(updates.width)
        found = []
        for seed in (self._context.seed, ~self._context.seed & (1 << 64) - 1):
            hashes = np.empty(len(updates), np.uint64)
            rows.hash_places(updates.words, places, np.uint64(seed), hashes)
            found.append(int((hashes * updates.diffs.view(np.uint64)).sum(dtype=np.uint64)))
        return found[0], found[1]

    def equals(self, other: Self) -> bool:
        """Whether the values are those of another iteration, as far as is kept of them."""
        return bool((self._prints == other._prints).all())

    def commit(self) -> None:
        """Keep what the last step staged."""
        self._prints = self._staged
        self._counts.commit()
        self._errors.commit()
        for operator in self._operators:
            operator.commit()

    def restore(self) -> None:
        """Return to the state before the last step."""
        self._staged = self._prints
        self._counts.restore()
        self._context.failures()
        self._errors.restore()
        for operator in self._operators:
            operator.restore()

    def save(self, to: Writer) -> None:
        """Write the state of the operators."""
        for number, operator in enumerate(self._operators):
            operator.save(to.part(number))
        self._errors.save(to.part("errors"))
        self._counts.save(to.part("rows"))
        to.array("prints", self._prints)

    def load(self, saved: Reader) -> None:
        """Take that over."""
        for number, operator in enumerate(self._operators):
            operator.load(saved.part(number))
        self._errors.load(saved.part("errors"))
        self._counts.load(saved.part("rows"))
        self._prints = self._staged = saved.array("prints", 2)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return any(kept.maintenance_due for kept in self._context.kept)

    def maintain(self) -> bool:
        """Do a slice of merging; return whether there is more to do."""
        return any([kept.maintain() for kept in self._context.kept])

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of the arrangements."""
        for operator in self._operators:
            yield from operator.sizes()
        yield from self._errors.sizes()

    def sizes_of_shared(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of the arrangements that all iterations share."""
        for operator in self._operators:
            if isinstance(operator, Join):
                yield from operator.sizes_of_shared()


def are_equal(some: Sequence[Batch], others: Sequence[Batch], seed: int) -> bool:
    """Whether updates, value by value, come to the same at each time."""
    for a, b in zip(some, others, strict=True):
        if len(a) != len(b):
            return False
        if len(consolidated(concat((a, b.negated()), a.width), seed)):
            return False
    return True


def with_text(updates: Batch, text: int) -> Batch:
    """Return updates of a row of one word in place of others."""
    words: Ints = np.full((len(updates), 1), text, np.int64)
    return Batch(words, updates.times, updates.diffs)
