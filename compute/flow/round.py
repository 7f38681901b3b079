"""One round of a recursion that is linear in its value: what rows follow from others.

The operators that do not read the value run once for a window. The others run for the changes of
what they read: first for those of the inputs, over the rows that are there; then, rank by rank, for
the changes of the value (`operators/fixpoint.py`). So their times are those of the inputs, or ranks
from `FIRST` on, which are later. Of two rows that are joined the later time remains: the rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.operators.flat_map import FlatMap
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.operator import (
    Constant,
    Linear,
    Operator,
    Source,
    Union,
    Window,
)
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.ranks import FIRST
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

ALWAYS = (1 << 63) - 1  # after all ranks
_PLAIN = (Source, Linear, Union, FlatMap, Constant)


class Round:
    """The operators below the `distinct` one, and the `last` ones, which put its rows in a layout.

    `value` is the number of the source of the recursion's rows.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        sources: Mapping[int, GlobalId],
        value: int,
        distinct: Reduce,
        last: Sequence[Linear],
    ) -> None:
        self._operators = list(operators)
        self._sources = dict(sources)
        self._value = value
        self._distinct = distinct
        self._last = tuple(last)
        self._varying = varying(self._operators, value)
        self._top = distinct.inputs[0]
        self._read = [
            (number, place)
            for number in self._varying
            if isinstance(join := self._operators[number], Join)
            for place, input in enumerate(join.inputs)
            if input == value or input in self._varying
        ]
        self._fixed: dict[int, Batch] = {}  # the updates in the window
        self._reached: dict[tuple[int, int], list[Batch]] = {each: [] for each in self._read}

    def begin(self, window: Window, given: Mapping[GlobalId, Batch]) -> None:
        """Compute what does not read the value, and arrange it to be looked up."""
        self._fixed = {}
        for number, operator in enumerate(self._operators):
            if number == self._value or number in self._varying:
                continue
            source = self._sources.get(number)
            if source is not None:
                self._fixed[number] = given[source]
            else:
                inputs = [self._fixed[input] for input in operator.inputs]
                self._fixed[number] = operator.step(window, inputs)
        for number in self._varying:
            join = self._operators[number]
            if isinstance(join, Join):
                for place, input in enumerate(join.inputs):
                    if input in self._fixed:
                        join.arrange(place, self._fixed[input])

    @property
    def times(self) -> list[Timestamp]:
        """Return the times at which the inputs change."""
        found: list[int] = np.unique(np.concatenate(
            [np.zeros(0, np.int64), *(each.times for each in self._fixed.values())]
        )).tolist()  # fmt: skip
        return found

    def changed(self) -> int:
        """Return how many rows of the inputs have changed."""
        return sum(len(self._fixed[number]) for number in self._sources if number in self._fixed)

    def of_inputs(self, since: Timestamp, time: Timestamp, *, alone: bool) -> Batch:
        """Return the keys of what follows from the changes of the inputs at a time.

        They meet the rows that are there, unless they are `alone`. The changes are all those from
        `since` on: those in collections have times of their own, if times are merged.
        """
        found = {number: _at(updates, time) for number, updates in self._fixed.items()}
        return self._following(found, since, time, alone=alone)

    def of_rows(self, updates: Batch, time: Timestamp) -> Batch:
        """Return the keys of what follows from changes of the value, by its own keys and ranks."""
        window = Window(0, 1)
        for operator in self._last:
            updates = operator.step(window, [updates])
        return self._following({self._value: updates}, time, time, alone=False)

    def _following(
        self, found: dict[int, Batch], since: Timestamp, time: Timestamp, *, alone: bool
    ) -> Batch:
        window = Window(time, time + 1)
        for number in self._varying:
            operator = self._operators[number]
            inputs = [
                found.get(input, empty(self._operators[input].layout.words))
                for input in operator.inputs
            ]
            if not any(map(len, inputs)):
                continue
            if isinstance(operator, Join):
                found[number] = self._joined(number, operator, inputs, since, time, alone=alone)
            else:
                found[number] = operator.step(window, inputs)
        top = found.get(self._top)
        return empty(self._distinct.key.words) if top is None else self._distinct.keys(top)

    def _joined(
        self,
        number: int,
        join: Join,
        inputs: Sequence[Batch],
        since: Timestamp,
        time: Timestamp,
        *,
        alone: bool,
    ) -> Batch:
        parts = []
        for place, updates in enumerate(inputs):
            if not len(updates):
                continue
            of_value = (number, place) in self._reached
            if of_value:
                self._reached[number, place].append(updates)
            elif alone:
                continue
            last = len(inputs) if of_value else place
            parts.append(join.follow(place, updates, self._before(number, last, since, time)))
        return concat(parts, join.layout.words)

    def _before(
        self, number: int, last: int, since: Timestamp, time: Timestamp
    ) -> Callable[[int], Timestamp]:
        """Return before which time each input of a join is read: with its changes up to `last`."""

        def before(input: int) -> Timestamp:
            if (number, input) in self._reached:
                return ALWAYS
            return time + 1 if input < last else since

        return before

    def keep(self, *, anew: bool) -> None:
        """Stage the changes of the value that came since the last call: they are looked up.

        If all is computed `anew`, there is nothing else.
        """
        for (number, place), parts in self._reached.items():
            join = self._operators[number]
            assert isinstance(join, Join)
            if anew:
                join.replace(place)
            join.arrange(place, concat(parts, self._operators[join.inputs[place]].layout.words))
        self.forget()

    def forget(self) -> None:
        """Forget the changes of the value that came since the last call."""
        for parts in self._reached.values():
            parts.clear()

    def commit(self) -> None:
        """Keep what was staged."""
        self._fixed = {}
        for operator in self._operators:
            operator.commit()

    def restore(self) -> None:
        """Return to the state before the last step."""
        self._fixed = {}
        self.forget()
        for operator in self._operators:
            operator.restore()

    def save(self, to: Writer) -> None:
        """Write the state of the operators."""
        for number, operator in enumerate(self._operators):
            operator.save(to.part(number))

    def load(self, saved: Reader) -> None:
        """Take that over."""
        for number, operator in enumerate(self._operators):
            operator.load(saved.part(number))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of the arrangements."""
        for operator in self._operators:
            if isinstance(operator, Join):
                yield from operator.sizes()
                yield from operator.sizes_of_shared()


def varying(operators: Sequence[Operator], value: int) -> list[int]:
    """Return the numbers of the operators that read the value."""
    found: list[int] = []
    read = {value}
    for number, operator in enumerate(operators):
        if read & set(operator.inputs):
            found.append(number)
            read.add(number)
    return found


def is_linear(operators: Sequence[Operator], value: int, distinct: Reduce) -> bool:
    """Whether nothing is made but rows of one row of the value each, and then distinct."""
    reading = varying(operators, value)
    read = {value, *reading}
    for number, operator in enumerate(operators):
        if isinstance(operator, Join):
            if number not in reading or sum(input in read for input in operator.inputs) != 1:
                return False
        elif not isinstance(operator, _PLAIN):
            return False
    return distinct.inputs[0] in reading


def _at(updates: Batch, time: Timestamp) -> Batch:
    here = updates.times == time
    return updates if here.all() else updates.take(here)


def ranks_of(updates: Batch) -> Ints:
    """Return the ranks of the rows from which updates follow, 0 for those of the inputs."""
    return np.maximum(updates.times - FIRST, 0)
