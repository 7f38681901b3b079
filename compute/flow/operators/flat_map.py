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
from foreshore.expr.ir import Call


class FlatMap(Stateless):
    """The rows of `over` with the elements of the list that `call` gives for each of them.

    `added` is the layout of the element, and of its number from 1 if there is a second column.
    """

    def __init__(
        self, input: int, over: Layout, layout: Layout, call: Call, added: Layout, context: Context
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._over = over
        self._call = call
        self._added = added
        self._context = context

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the rows of the functions."""
        (updates,) = inputs
        columns = Columns(updates, self._over, self._context.interner)
        lists = flat(outcome(self._call, columns, len(updates))[0])
        counts = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        source = np.repeat(np.arange(len(updates)), counts)
        arrays = [lists.flatten()]
        if len(self._added.places) == 2:
            begins = np.cumsum(counts) - counts
            arrays.append(pa.array(np.arange(len(source)) - begins[source] + 1))
        added = words_of(arrays, len(source), self._added, self._context.interner)
        words = np.concatenate([updates.words[source], added], axis=1)
        return Batch(words, updates.times[source], updates.diffs[source])
