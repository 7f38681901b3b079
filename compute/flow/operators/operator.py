"""The interface of operators.

A step has two halves. `step` computes the output and stages the new state; then either all
operators `commit` or all `restore`. So a step that fails changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, concat
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.program import Context, Program
from foreshore.types import ColumnType
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class Window:
    """The times lower <= t < upper of a step."""

    lower: Timestamp
    upper: Timestamp


class Operator(Protocol):
    """One operator of a dataflow; `inputs` are the numbers of others, whose output it takes."""

    inputs: tuple[int, ...]
    layout: Layout

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the output's updates in a window, given all of the inputs'."""
        ...

    def commit(self) -> None:
        """Keep the state that the last step staged."""
        ...

    def restore(self) -> None:
        """Return to the state before the last step."""
        ...

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of its arrangements."""
        ...

    def save(self, to: Writer) -> None:
        """Write the state, if there is any (`compute/checkpoint/state.py`)."""
        ...

    def load(self, saved: Reader) -> None:
        """Take a saved state over."""
        ...


class Stateless:
    """An operator that keeps nothing."""

    inputs: tuple[int, ...]

    def commit(self) -> None:
        """Keep nothing."""

    def restore(self) -> None:
        """Return to nothing."""

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return nothing."""
        return ()

    def save(self, to: Writer) -> None:
        """Write nothing."""

    def load(self, saved: Reader) -> None:
        """Read nothing."""


class Source(Stateless):
    """An input of the dataflow; its updates come from outside, with the columns at `picked`."""

    def __init__(
        self, columns: tuple[ColumnType, ...], picked: tuple[int, ...], layout: Layout
    ) -> None:
        self.inputs: tuple[int, ...] = ()
        self.columns = columns
        self.picked = picked
        self.layout = layout

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Raise, because nobody calls it."""
        raise AssertionError("a source has no step")


class Linear(Stateless):
    """Map, Filter, Project and Negate of one input, fused."""

    def __init__(self, input: int, layout: Layout, program: Program, context: Context) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._program = program
        self._context = context

    @property
    def can_fail(self) -> bool:
        """Whether it notes errors."""
        return bool(self._program.ports)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return what the program makes of the updates."""
        return self._program.run(inputs[0], self._context)


class Union(Stateless):
    """The sum of inputs of one layout."""

    def __init__(self, inputs: tuple[int, ...], layout: Layout) -> None:
        self.inputs = inputs
        self.layout = layout

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return all updates."""
        return concat(inputs, self.layout.words)


class Constant(Stateless):
    """Rows that are there from the beginning."""

    def __init__(self, layout: Layout, rows: Batch) -> None:
        self.inputs: tuple[int, ...] = ()
        self.layout = layout
        self._rows: Batch | None = rows
        self._staged = False

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the rows in the first step, at its first time."""
        rows = self._rows
        if rows is None:
            return concat((), self.layout.words)
        self._staged = True
        return Batch(rows.words, rows.times + window.lower, rows.diffs)

    def commit(self) -> None:
        """Note that the rows were put out."""
        if self._staged:
            self._rows = None

    def save(self, to: Writer) -> None:
        """Write whether the rows were put out."""
        to.numbers("done", self._rows is None)

    def load(self, saved: Reader) -> None:
        """Take that over."""
        if saved.numbers("done") == [1]:
            self._rows = None
