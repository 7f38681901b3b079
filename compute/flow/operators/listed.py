"""Aggregates of all values of a group: lists, joined text, comoments of floats.

The values of a group are ordered rows. Where a group changes all of them are read anew.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.convert import column_at, words_of_values
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.rows import put_null
from foreshore.compute.flow.operators.staged import StagedRows
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.sums import Points
from foreshore.compute.render.exact import comoment_float
from foreshore.datum import from_array, to_array
from foreshore.expr.ir import Aggregate
from foreshore.types import Datum

NO_LIMIT = (1 << 62) - 1

Rows = Sequence[tuple[tuple[Datum, ...], int]]  # the arguments, each with its multiplicity


class Listed(StagedRows):
    """An aggregate of all rows of a group; `program` makes the key, order words and arguments."""

    def __init__(
        self,
        aggregate: Aggregate,
        program: Program,
        spine: OrderedSpine,
        args: Layout,
        place: Place,
        context: Context,
    ) -> None:
        super().__init__(spine)
        self._compute = _COMPUTE[aggregate.function]
        self._distinct = aggregate.distinct
        self._program = program
        self._args = args
        self._place = place
        self._context = context

    def put(self, points: Points, count: Ints, input: Batch, words: Words) -> None:
        """Write the words of this aggregate for each point, given the input's updates."""
        self._stage(self._program.run(input, self._context))
        found, rows, counts = self._spine.rows_at(points, 0, NO_LIMIT)
        first = self._spine.width - self._args.words
        columns = [
            from_array(column_at(rows[:, first:], place, self._context.interner), place.type)
            for place in self._args.places
        ]
        if self._distinct:
            counts = np.ones(len(found), np.int64)
        entries = list(zip(zip(*columns, strict=True), counts.tolist(), strict=True))
        bounds = np.searchsorted(found, np.arange(len(points) + 1))
        values = [
            self._compute(entries[a:b]) if a < b else None for a, b in pairwise(bounds.tolist())
        ]
        self._write(values, words)

    def _write(self, values: list[Datum], words: Words) -> None:
        place = self._place
        column = to_array(values, place.type)
        parts = words_of_values(column, place.type, "row", self._context.interner)
        for k, part in enumerate(parts):
            words[:, place.word + k] = part
        put_null(words, np.array([value is None for value in values], np.bool_), place)


def _list(rows: Rows) -> Datum:
    return tuple(args[0] for args, count in rows for _ in range(count))


def _text(rows: Rows) -> Datum:
    parts: list[str] = []
    for (value, delimiter), count in rows:
        for _ in range(count):
            parts += [str(delimiter or "") if parts else "", str(value)]
    return "".join(parts)


def _comoment(rows: Rows) -> Datum:
    return comoment_float((*args, count) for args, count in rows)  # type: ignore[misc]


_COMPUTE: dict[str, Callable[[Any], Datum]] = {
    "array_agg": _list,
    "string_agg": _text,
    "comoment_float": _comoment,
}
