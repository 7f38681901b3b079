"""Table functions: each row combined with each row of a function of it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.convert import flat, words_of
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.operator import Stateless, Window
from foreshore.compute.flow.program import Columns, Context
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.expr.unnest import unnested


class FlatMap(Stateless):
    """The rows of `over` with the elements of the `arrays` that each of them has, in step.

    `added` is the layout of the elements, and of their number from 1 if there is one more column.
    """

    def __init__(
        self,
        input: int,
        over: Layout,
        layout: Layout,
        arrays: Sequence[Scalar],
        added: Layout,
        context: Context,
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._over = over
        self._arrays = arrays
        self._added = added
        self._context = context

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the rows of the functions."""
        (updates,) = inputs
        columns = Columns(updates, self._over, self._context.interner)
        count = len(updates)
        found = unnested([flat(outcome(each, columns, count)[0]) for each in self._arrays])
        source, values = found.parents, found.values
        if len(self._added.places) > len(values):
            values = [*values, pa.array(found.numbers)]
        added = words_of(values, len(source), self._added, self._context.interner)
        words = np.concatenate([updates.words[source], added], axis=1)
        return Batch(words, updates.times[source], updates.diffs[source])
