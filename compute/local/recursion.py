"""Recursion. WITH RECURSIVE runs its step over the rows of the step before, until it adds none.

WITH MUTUALLY RECURSIVE computes all values again and again, until none changes.

The results of recursions are inputs of the engine, like stored collections. A recursion within a
step runs again at each step, since it may read what was found. A recursion ends early when the
readers of its result have enough rows (`row_goal.py`).

The kernels compute linear steps over rows in memory. An engine in one session computes all others,
so a step over few rows costs a millisecond or two. The evaluation is a generator that yields after
each step: it holds a thread for a slice of time, then queues for the thread again.
"""

import time as clock
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.engine import (
    ALL_ROWS,
    Evaluations,
    Extent,
    Input,
    check_memory,
    check_size,
    result_schema,
)
from foreshore.compute.finish import MAX_RESULT_BYTES, in_order
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear, multiplies_rows
from foreshore.compute.local.row_goal import RowGoals, row_goals
from foreshore.compute.render.evaluate import Plans, plans_of, raise_least
from foreshore.compute.result import KEPT_BYTES
from foreshore.errors import DatabaseError, not_converged
from foreshore.expr.block import AnyRecursion, Block, MutualRecursion, Recursion
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.query_memory import Reservation
from foreshore.rows import split_diffs
from foreshore.types import ColumnType, SqlType
from foreshore.update import DIFF, Timestamp, at_time

MOST_ROWS = 20_000_000  # of a recursion's result, which is in memory
MOST_BYTES = 512 << 20  # likewise
SLICE_SECONDS = 0.05
SEEN_BYTES = 64  # of a number in a set
SMALL_PARTS = 256  # number of small tables that are merged into one

T = TypeVar("T")
Inputs = Mapping[GlobalId, Input]
Found = Mapping[GlobalId, pa.Table]  # rows with `__diff`, by the recursion's collections
Steps = Generator[None, None, T]  # yields after each step


async def in_slices(executor: Executor, steps: Steps[T]) -> T:
    """Return what `steps` returns, run on threads of `executor` in slices of time."""

    def advance() -> tuple[T] | None:
        end = clock.monotonic() + SLICE_SECONDS
        try:
            while clock.monotonic() < end:
                next(steps)
        except StopIteration as stop:
            return (stop.value,)
        return None

    while (done := await blocking.run(executor, advance)) is None:
        pass
    return done[0]


class Evaluation:
    """The evaluation of blocks over `inputs` as of a time; `check` raises if it is cancelled.

    Results of recursions take `memory` bytes at most.
    """

    def __init__(
        self,
        inputs: Inputs,
        time: Timestamp,
        engine: Evaluations,
        check: Callable[[], None],
        memory: int | None = None,
    ) -> None:
        self._memory = memory
        self._reserved: list[Reservation] = []  # for results of recursions
        self._inputs = inputs
        self._time = time
        self._engine = engine
        self._check = check
        self._linear: dict[int, bool] = {}  # by the relation's id: it may be long to hash
        self._plans: dict[int, tuple[MutualRecursion, list[Plans]]] = {}  # by id()
        self._found_inputs: dict[GlobalId, tuple[pa.Table, Input]] = {}

    def parts(self, block: Block, extent: Extent = ALL_ROWS) -> Steps[Iterator[pa.Table]]:
        """Return an iterator over the rows, with `__diff`, of `block`, part by part.

        They come in the order of `extent`, and those beyond it may be left out.
        """
        found = yield from self._results(block, {})
        if self._memory is None and self._is_linear(block.relation):
            rows = _evaluate_linear(block.relation, found)
            return iter([in_order(rows, extent.order) if extent.order else rows])
        inputs = self._inputs_with(found)
        return self._engine.parts(block.relation, inputs, self._time, MAX_RESULT_BYTES, extent)

    def _results(self, block: Block, found: Found) -> Steps[Found]:
        """Return `found` and the results of the block's recursions."""
        for place, each in enumerate(block.recursions):
            if isinstance(each, MutualRecursion):
                found = yield from self._mutual(each, found)
                continue
            goals = _row_goals(block, place)
            rows = yield from self._result(each, found, goals)
            found = {**found, each.result: rows}
        return found

    def _result(self, recursion: Recursion, found: Found, goals: RowGoals) -> Steps[pa.Table]:
        columns = columns_of(recursion.base.relation)
        result = _Result(result_schema(columns), self._memory, self._reservation())
        new_rows = _NewRows([column.type for column in columns]) if recursion.distinct else None
        missing = {each: each.count for each in goals or ()}
        if goals is not None and not any(count > 0 for count in missing.values()):
            return result.table()
        rows = yield from self._block(recursion.base, found)
        while True:
            rows = rows.cast(result.schema)
            if new_rows is not None:
                rows = new_rows.of(rows)
            if not rows.num_rows:
                break
            result.add(rows)
            for each in missing:
                added = self._rows(each.relation, {**found, recursion.result: rows})
                missing[each] -= pc.sum(added[DIFF]).as_py() or 0
            if missing and not any(count > 0 for count in missing.values()):
                break
            yield
            self._check()
            rows = yield from self._block(recursion.step, {**found, recursion.working: rows})
        return result.table()

    def _mutual(self, recursion: MutualRecursion, found: Found) -> Steps[Found]:
        """Return `found` and the values of a mutual recursion.

        Only the errors of the last round count.
        """
        ids, types = recursion.collections, recursion.columns
        for id, columns in zip(ids, types, strict=True):
            found = {**found, id: result_schema(columns).empty_table()}
        plans = self._plans_of(recursion)
        rounds, settled, reserved = 0, False, self._reservation()
        while not settled and rounds != recursion.limit:
            settled, size, failing = True, 0, []
            for id, columns, block, plan in zip(ids, types, recursion.blocks, plans, strict=True):
                read = yield from self._results(block, found)
                if plan.errors is not None:
                    failing.append((plan.errors, read))
                rows = self._rows(plan.rows, read).cast(result_schema(columns))
                settled &= _are_equal(rows, found[id], columns)
                found = {**found, id: rows}
                size += rows.nbytes
            check_memory(size, self._memory)
            check_size(size, MOST_BYTES)
            reserved.close()
            reserved.reserve(2 * size)  # with the values of the next round
            rounds += 1
            yield
            self._check()
        for errors, read in failing:
            raise_least(self._rows(errors, read))
        if not settled and recursion.fails:
            raise not_converged(rounds)
        return found

    def _reservation(self) -> Reservation:
        """Return one that is held as long as the evaluation."""
        self._reserved.append(Reservation())
        return self._reserved[-1]

    def _plans_of(self, recursion: MutualRecursion) -> list[Plans]:
        """Return the plans of a recursion's values, the same objects each time."""
        kept = self._plans.get(id(recursion))
        if kept is None:
            plans = [plans_of(block.relation) for block in recursion.blocks]
            kept = self._plans[id(recursion)] = recursion, plans
        return kept[1]

    def _block(self, block: Block, found: Found) -> Steps[pa.Table]:
        """Return the rows, with `__diff`, of `block`."""
        found = yield from self._results(block, found)
        return self._rows(block.relation, found)

    def _rows(self, relation: Relation, found: Found) -> pa.Table:
        """Return the rows, with `__diff`, of `relation`, which may read `found`."""
        if self._is_linear(relation):
            return _evaluate_linear(relation, found)
        return self._engine.rows(relation, self._inputs_with(found), self._time, MAX_RESULT_BYTES)

    def _is_linear(self, relation: Relation) -> bool:
        """Whether the kernels can compute `relation`, and it reads no stored collection."""
        linear = self._linear.get(id(relation))
        if linear is None:
            reads_stored = bool(sources_of(relation) & self._inputs.keys())
            linear = not reads_stored and can_evaluate_locally(relation)
            if self._memory is not None:  # which this process does not count
                linear = linear and not multiplies_rows(relation)
            self._linear[id(relation)] = linear
        return linear

    def _inputs_with(self, found: Found) -> Inputs:
        """Return all inputs of an engine, those of `found` included."""
        return {**self._inputs, **{id: self._found_input(id, rows) for id, rows in found.items()}}

    def _found_input(self, id: GlobalId, rows: pa.Table) -> Input:
        """Return found rows as an input: the same object for the same rows."""
        kept = self._found_inputs.get(id)
        if kept is None or kept[0] is not rows:
            schema = pa.schema([field for field in rows.schema if field.name != DIFF])
            kept = (rows, Input(schema, (), (at_time(rows, self._time),)))
            self._found_inputs[id] = kept
        return kept[1]


def _evaluate_linear(relation: Relation, found: Found) -> pa.Table:
    return evaluate_linear(relation, {id: rows for id, rows in found.items()})


def _row_goals(block: Block, place: int) -> RowGoals:
    """Return the row goals of the recursion at `place`; None if all its rows are needed.

    They can be tested only if they read none of the results that are computed later.
    """
    recursion, later = block.recursions[place], block.recursions[place + 1 :]
    assert isinstance(recursion, Recursion)
    result = recursion.result
    if any(result in _read_by(other) for other in later):
        return None
    goals = row_goals(block.relation, result, block.rows_wanted)
    unknown = {id for other in later for id in other.collections}
    if goals is not None and any(unknown & sources_of(each.relation) for each in goals):
        return None
    return goals


def _read_by(recursion: AnyRecursion) -> set[GlobalId]:
    """Return the collections that a recursion reads."""
    relations = (relation for block in recursion.blocks for relation in block.relations())
    return set().union(*map(sources_of, relations))


def _are_equal(some: pa.Table, others: pa.Table, columns: Sequence[ColumnType]) -> bool:
    """Whether rows occur equally often in both; rows are compared by a 64-bit hash."""
    counts = [_counted(rows, columns) for rows in (some, others)]
    return all(map(np.array_equal, *counts))


def _counted(rows: pa.Table, columns: Sequence[ColumnType]) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of rows, in order, and how often each occurs."""
    values, diffs = split_diffs(rows)
    hashes = hash_columns(values, [column.type for column in columns], len(diffs))
    distinct, places = np.unique(hashes, return_inverse=True)
    counts = np.zeros(len(distinct), np.int64)
    np.add.at(counts, places, diffs.to_numpy())
    return distinct[counts != 0], counts[counts != 0]


class _Result:
    """The rows found by a recursion, up to what a server can hold."""

    def __init__(self, schema: pa.Schema, memory: int | None, reserved: Reservation) -> None:
        self.schema = schema
        self._memory = memory
        self._reserved = reserved
        self._parts: list[pa.Table] = []  # each of many steps
        self._small: list[pa.Table] = []
        self._count = 0
        self._size = 0

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a step; raises DatabaseError or OutOfMemory if they are too many."""
        self._count += rows.num_rows
        self._size += rows.nbytes
        if self._count > MOST_ROWS:
            raise DatabaseError(
                "a recursive query has too many rows",
                sqlstate="54000",
                detail=f"There are more than {MOST_ROWS}, and the recursion goes on.",
            )
        check_memory(self._size, self._memory)
        check_size(self._size, MOST_BYTES)
        if self._size > KEPT_BYTES:
            self._reserved.reserve(self._size - self._reserved.held)
        self._small.append(rows)
        if len(self._small) == SMALL_PARTS:
            self._parts.append(pa.concat_tables(self._small).combine_chunks())
            self._small.clear()

    def table(self) -> pa.Table:
        """Return the rows, in the order in which they were found."""
        return pa.concat_tables([self.schema.empty_table(), *self._parts, *self._small])


class _NewRows:
    """Filters out rows seen before; rows are compared by a 64-bit hash."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        self._types = types
        self._reserved = Reservation()
        self._seen: set[int] = set()

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the new ones of `rows`, each once."""
        columns, diffs = split_diffs(rows)
        hashes = hash_columns(columns, self._types, len(diffs)).tolist()
        seen, places = self._seen, []
        for place, hash in enumerate(hashes):
            if hash not in seen:
                seen.add(hash)
                places.append(place)
        if (size := len(seen) * SEEN_BYTES) > max(KEPT_BYTES, self._reserved.held):
            self._reserved.reserve(size - self._reserved.held)
        chosen = pa.array(places, pa.int64())
        ones = pa.array(np.ones(len(places), np.int64))
        return pa.Table.from_arrays(
            [*(column.take(chosen) for column in columns), ones], schema=rows.schema
        )
