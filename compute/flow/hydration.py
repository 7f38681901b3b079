"""Hydration: the first step of a dataflow, in which all rows of its inputs are new.

The rows of a join of collections, and the groups of sums over these or over one collection, come
from a bulk engine if they are made of many rows. All else goes through the operators.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time_ns

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import Evaluator, Input
from foreshore.compute.flow.batch import Batch, Ints, Words, concat, empty
from foreshore.compute.flow.bulk import Begun, begun
from foreshore.compute.flow.bulk_hydration import BULK_ROWS as BULK_ROWS
from foreshore.compute.flow.collection import Import
from foreshore.compute.flow.convert import fill_words, flat, integers, words_of, words_of_values
from foreshore.compute.flow.errors import ERROR_LAYOUT
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.operator import Linear, Operator, Source, Window
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.read import count_updates, read_until
from foreshore.compute.flow.work import Work
from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import SqlType
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class Beginning:
    """A dataflow to hydrate as of a time; `rows` is the number of the last operator."""

    operators: Sequence[Operator]
    rows: int
    sources: Mapping[int, GlobalId]  # by the operator's number
    imports: Mapping[GlobalId, Import]
    inputs: Mapping[GlobalId, Input]
    as_of: Timestamp


class Hydration:
    """The first step of the operators of one dataflow."""

    def __init__(self, beginning: Beginning, engine: Evaluator | None, context: Context) -> None:
        self.window = Window(beginning.as_of, beginning.as_of + 1)
        self._operators = beginning.operators
        self._sources = beginning.sources
        self._imports = beginning.imports
        self._inputs = beginning.inputs
        self._as_of = beginning.as_of
        self._engine = engine
        self._context = context
        self._interner = context.interner
        self._bulky: dict[int, Begun] = {}
        for number in range(len(self._operators)):
            bulk = self._bulk_of(number)
            if bulk is not None:
                self._bulky[number] = bulk
        self._wanted = self._find_wanted(beginning.rows)

    # --- what is computed in bulk

    def _bulk_of(self, number: int) -> Begun | None:
        """Return what the bulk engine computes for an operator, None for nothing."""
        if self._engine is None:
            return None
        operator = self._operators[number]
        bulk = operator.bulk if isinstance(operator, Join | Reduce) else None
        if bulk is None or (isinstance(operator, Reduce) and not self._covers(operator)):
            return None
        if sum(map(self._size, sources_of(bulk.plan))) < BULK_ROWS:
            return None
        return begun(bulk, self._inputs, self._has_rows)

    def _has_rows(self, relation: ir.Relation) -> bool:
        return any(part.num_rows for part in self._parts(relation))

    def _covers(self, reduce: Reduce) -> bool:
        """Whether all below a reduction needs no hydration, or is joins that have theirs in bulk.

        A reduction below has groups of its own, which its output is made with.
        """
        below = list(reduce.inputs)
        while below:
            operator = self._operators[number := below.pop()]
            is_joined = isinstance(operator, Join) and number in self._bulky
            if not isinstance(operator, Source | Linear) and not is_joined:
                return False
            below += operator.inputs
        return True

    def _size(self, id: GlobalId) -> int:
        """Return about how many rows a collection has."""
        if id in self._imports:
            return self._imports[id].rows
        return count_updates(self._inputs[id])

    def _find_wanted(self, rows: int) -> set[int]:
        """Return the operators whose output somebody uses."""
        wanted = {rows}
        for number in reversed(range(len(self._operators))):
            if number in wanted and number not in self._bulky:
                wanted.update(self._operators[number].inputs)
        return wanted

    # --- the step

    def given(self, work: Work) -> dict[GlobalId, Batch]:
        """Return the rows of the inputs that are used; the time is added to their operators'."""
        found = {}
        began = thread_time_ns()
        for number, id in self._sources.items():
            if number not in self._wanted:
                continue
            source = self._operators[number]
            assert isinstance(source, Source)
            if id in self._imports:
                found[id] = self._imports[id].rows_at(self._as_of)
            else:
                found[id] = read_until(
                    self._inputs[id],
                    source.columns,
                    source.picked,
                    source.layout,
                    self._interner,
                    self._as_of,
                    self._context.budget.check,
                )
            began = work.passed(work.hydration_ns, number, began)
        return found

    def step(self, number: int, inputs: Sequence[Batch]) -> Batch:
        """Return the output of an operator, given that of others."""
        operator = self._operators[number]
        bulk = self._bulky.get(number)
        if bulk is None:
            return operator.step(self.window, inputs)
        if isinstance(operator, Join):
            operator.begin()
        if number not in self._wanted:
            return empty(operator.layout.words)
        if bulk.errors is not None:
            self._context.fail(bulk.bulk.port, self._rows(bulk.errors, ERROR_LAYOUT))
        if isinstance(operator, Reduce):
            return operator.begin(self._groups(bulk, operator), self.window)
        return self._rows(bulk.rows, operator.layout)

    def _parts(self, relation: ir.Relation) -> Iterator[pa.Table]:
        """Yield a plan's columns and multiplicities, part by part."""
        inputs = {id: self._inputs[id] for id in sources_of(relation)}
        context, size = self._context, 0
        assert self._engine is not None
        for part in self._engine.evaluate_parts(
            relation, inputs, self._as_of, context.cancellation, may_fail=False
        ):
            size += part.nbytes
            context.budget.check(size)
            yield part

    def _rows(self, relation: ir.Relation, layout: Layout) -> Batch:
        """Return a plan's rows in a layout."""
        found = []
        for part in self._parts(relation):
            *columns, counts = map(flat, part.columns)
            words = words_of(columns, part.num_rows, layout, self._interner)
            times = np.full(part.num_rows, self._as_of, np.int64)
            found.append(Batch(words, times, np.array(integers(counts))))
        return concat(found, layout.words)

    def _groups(self, bulk: Begun, reduce: Reduce) -> Words:
        """Return the key of each of a reduction's groups, and the words of their sums."""
        types = [column.type for column in columns_of(bulk.rows)]
        parts = list(self._parts(bulk.rows))
        return group_words(parts, types, bulk.bulk.sums, reduce.key, self._interner)


def group_words(
    parts: Sequence[pa.Table],
    types: Sequence[SqlType],
    sums: Sequence[bool],
    key: Layout,
    interner: Interner,
) -> Words:
    """Return groups as words: of the key, the count of rows, and the other counts and sums.

    The parts have these columns, of `types`, and one more. `sums` tells sums from counts.
    """
    keys, width = len(key.places), key.words
    rows = sum(part.num_rows for part in parts)
    words = np.zeros((rows, width + 1 + sum(1 + is_sum for is_sum in sums)), np.int64)
    start = 0
    for part in parts:
        to, start = words[start : start + part.num_rows], start + part.num_rows
        if not len(to):
            continue
        *columns, _ = map(flat, part.columns)
        fill_words(to, columns[:keys], key, interner)
        to[:, width] = integers(columns[keys])
        at = width + 1
        for column, type, is_sum in zip(columns[keys + 1 :], types[keys + 1 :], sums, strict=True):
            found = _sum(column, type, interner) if is_sum else [integers(column)]
            for word in found:
                to[:, at] = word
                at += 1
    return words


def _sum(column: pa.Array, type: SqlType, interner: Interner) -> list[Ints]:
    """Return the low and high words of sums, 0 for NULL."""
    words = words_of_values(column, type, "row", interner)
    low, high = words if len(words) == 2 else (words[0], words[0] >> np.int64(63))
    if column.null_count:
        valid = np.array(column.is_valid())
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    return [low, high]
