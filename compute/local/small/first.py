"""Evaluations over rows in memory: here where that is possible, else in an engine.

The catalog's relations are in memory, and tools ask them for joins of a dozen, of which an engine
would plan a statement of many kilobytes for longer than it runs. `SmallFirst` evaluates each plan
as `evaluate_small` does. Only a plan that it does not know, that has an error, or that would have
many rows opens an engine, which evaluates it as a whole.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import ALL_ROWS, Evaluations, Extent, Input
from foreshore.compute.finish import in_order
from foreshore.compute.linear import flat
from foreshore.compute.local.small.evaluate import evaluate_small
from foreshore.compute.local.small.rows import NotSmall, SmallRows
from foreshore.expr.ir import Get, Relation
from foreshore.ids import GlobalId
from foreshore.types import arrow_type
from foreshore.update import DIFF

MOST_CALLS = 200_000  # rows for which functions of texts are called: the texts are names


class SmallFirst:
    """Evaluations over inputs without files, whose rows have positive multiplicities.

    `engine` opens the evaluations of an engine, at most once; `check` raises if the query has been
    cancelled.
    """

    def __init__(self, engine: Callable[[], Evaluations], check: Callable[[], None]) -> None:
        self._open = engine
        self._engine: Evaluations | None = None
        self._check = check
        self._kept: dict[GlobalId, tuple[Input, SmallRows]] = {}

    def rows(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        found = self._found(relation, inputs)
        return self._opened().rows(relation, inputs, as_of, max_bytes) if found is None else found

    def parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        extent: Extent = ALL_ROWS,
    ) -> Iterator[pa.Table]:
        """Yield the rows of `relation` as of a time, part by part: at least one."""
        found = self._found(relation, inputs)
        if found is None:
            yield from self._opened().parts(relation, inputs, as_of, max_bytes, extent)
        else:
            yield in_order(found, extent.order) if extent.order else found

    def _found(self, relation: Relation, inputs: Mapping[GlobalId, Input]) -> pa.Table | None:
        """Return the rows of `relation`, None if they are left to an engine."""
        try:
            contents = lambda get: self._contents(inputs[get.id], get)  # noqa: E731
            return evaluate_small(relation, contents, self._check, MOST_CALLS)
        except NotSmall:
            return None

    def _contents(self, input: Input, get: Get) -> SmallRows:
        kept = self._kept.get(get.id)
        if kept is None or kept[0] is not input:
            kept = self._kept[get.id] = (input, _rows(input, get))
        return kept[1]

    def _opened(self) -> Evaluations:
        if self._engine is None:
            self._engine = self._open()
        return self._engine


def _rows(input: Input, get: Get) -> SmallRows:
    """Return the rows of an input."""
    assert not input.files, input
    table = pa.concat_tables(input.tail) if len(input.tail) > 1 else input.tail[0]
    columns = tuple(
        flat(table.column(i)).cast(arrow_type(column.type)) for i, column in enumerate(get.columns)
    )
    diffs = flat(table.column(DIFF)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return SmallRows(columns, np.asarray(diffs))
