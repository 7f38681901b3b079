"""WITH RECURSIVE, evaluated: steps over what the last one found, until one finds nothing.

The results are collections that only the query knows: inputs of the engine beside the real ones. A
recursion within a step is computed anew at each step, since it may read what was found. A recursion
ends early when what reads its result has enough (`enough.py`).

Linear steps over rows at hand are computed by the kernels, all others by an engine in one session,
so that a step over few rows costs a millisecond or two. The work is a generator that yields after
each step: it runs on a thread for a slice of time, then lets other queries have the thread.
"""

import time as clock
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace as replaced
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.read.bind_parameters import Replace, bind_relation
from foreshore.adapter.read.enough import Readers, enough_for
from foreshore.adapter.read.local import can_evaluate_locally, evaluate_linear
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.engine import Evaluations, Input, check_size, result_schema
from foreshore.compute.finish import MAX_RESULT_BYTES
from foreshore.errors import DatabaseError
from foreshore.expr.ir import Relation, columns_of, sources_of
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.sql.plan import Block, Recursion
from foreshore.types import SqlType
from foreshore.update import DIFF, TIME_FIELD, Timestamp

MOST_ROWS = 20_000_000  # of a result, which is held in memory
MOST_BYTES = 512 << 20  # and these are its bytes
SLICE_SECONDS = 0.05
SMALL_PARTS = 256  # tables of one step each, from which on they are made one

T = TypeVar("T")
Inputs = Mapping[GlobalId, Input]
Found = Mapping[GlobalId, pa.Table]  # rows with `__diff`
Steps = Generator[None, None, T]  # yields after each step


async def in_slices(executor: Executor, steps: Steps[T]) -> T:
    """Return what `steps` return, run on threads of `executor`, a slice of time after the other."""

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


def collections_of(block: Block) -> frozenset[GlobalId]:
    """Return the collections that `block` reads, without the results of its recursions."""
    return frozenset().union(*map(sources_of, block.relations())) - frozenset(_results(block))


def _results(block: Block) -> Iterator[GlobalId]:
    for each in block.recursions:
        yield from (each.working, each.result)
        yield from _results(each.base)
        yield from _results(each.step)


def bind_block(block: Block, replace: Replace, *, every: bool = False) -> Block:
    """Return `block` with its scalars bound by `replace`; see `bind_relation`."""
    return Block(
        bind_relation(block.relation, replace, every=every),
        tuple(
            replaced(
                each,
                base=bind_block(each.base, replace, every=every),
                step=bind_block(each.step, replace, every=every),
            )
            for each in block.recursions
        ),
        block.rows_wanted,
    )


class Evaluation:
    """The evaluation of a block over `inputs` as of a time; `check` raises if it is to stop."""

    def __init__(
        self,
        inputs: Inputs,
        time: Timestamp,
        engine: Evaluations,
        check: Callable[[], None],
    ) -> None:
        self._inputs = inputs
        self._time = time
        self._engine = engine
        self._check = check
        self._linear: dict[Relation, bool] = {}
        self._shown: dict[GlobalId, tuple[pa.Table, Input]] = {}

    def parts(self, block: Block) -> Steps[Iterator[pa.Table]]:
        """Return an iterator over the rows of `block`, each with its `__diff`, part by part."""
        found = yield from self._results(block, {})
        if self._is_linear(block.relation):
            return iter([evaluate_linear(block.relation, _collections(found))])
        inputs = self._with(found)
        return self._engine.parts(block.relation, inputs, self._time, MAX_RESULT_BYTES)

    def block(self, block: Block, found: Found) -> Steps[pa.Table]:
        """Return the rows of `block`, each with its `__diff`."""
        found = yield from self._results(block, found)
        return self._rows(block.relation, found)

    def _results(self, block: Block, found: Found) -> Steps[Found]:
        """Return the results of the recursions of `block` beside what was found."""
        for place, each in enumerate(block.recursions):
            later = block.recursions[place + 1 :]
            enough = None
            if not any(each.result in _read_by(other) for other in later):
                enough = enough_for(block.relation, each.result, block.rows_wanted)
            if enough is not None:
                unknown = {other.result for other in later}
                if any(unknown & sources_of(reader.relation) for reader in enough):
                    enough = None
            rows = yield from self._recursion(each, found, enough)
            found = {**found, each.result: rows}
        return found

    def _recursion(self, recursion: Recursion, found: Found, enough: Readers) -> Steps[pa.Table]:
        columns = columns_of(recursion.base.relation)
        result = _Result(result_schema(columns))
        new = _New([column.type for column in columns]) if recursion.distinct else None
        missing = {each: each.count for each in enough or ()}
        if enough is not None and not any(count > 0 for count in missing.values()):
            return result.table()
        rows = yield from self.block(recursion.base, found)
        while True:
            rows = rows.cast(result.schema)
            if new is not None:
                rows = new.of(rows)
            if not rows.num_rows:
                break
            result.add(rows)
            for each in missing:
                made = self._rows(each.relation, {**found, recursion.result: rows})
                missing[each] -= pc.sum(made[DIFF]).as_py() or 0
            if missing and not any(count > 0 for count in missing.values()):
                break
            yield
            self._check()
            rows = yield from self.block(recursion.step, {**found, recursion.working: rows})
        return result.table()

    def _rows(self, relation: Relation, found: Found) -> pa.Table:
        """Return the rows of `relation`, which may read what was found."""
        if self._is_linear(relation):
            return evaluate_linear(relation, _collections(found))
        return self._engine.rows(relation, self._with(found), self._time, MAX_RESULT_BYTES)

    def _is_linear(self, relation: Relation) -> bool:
        """Whether the kernels compute `relation`, of what was found and nothing else."""
        linear = self._linear.get(relation)
        if linear is None:
            linear = (
                can_evaluate_locally(relation) and not sources_of(relation) & self._inputs.keys()
            )
            self._linear[relation] = linear
        return linear

    def _with(self, found: Found) -> Inputs:
        """Return all inputs of an engine, what was found among them."""
        return {**self._inputs, **{id: self._shown_as(id, rows) for id, rows in found.items()}}

    def _shown_as(self, id: GlobalId, rows: pa.Table) -> Input:
        """Return rows that were found as an input, the same one for the same rows."""
        kept = self._shown.get(id)
        if kept is None or kept[0] is not rows:
            kept = self._shown[id] = (rows, _input(rows, self._time))
        return kept[1]


class _Result:
    """The rows that a recursion has found, which may be as many as a server can hold."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._parts: list[pa.Table] = []  # each of many steps
        self._small: list[pa.Table] = []
        self._count = 0
        self._size = 0

    def add(self, rows: pa.Table) -> None:
        """Add what a step has found; raises if it is too much."""
        self._count += rows.num_rows
        self._size += rows.nbytes
        if self._count > MOST_ROWS:
            raise DatabaseError(
                "a recursive query has too many rows",
                sqlstate="54000",
                detail=f"There are more than {MOST_ROWS}, and the recursion goes on.",
            )
        check_size(self._size, MOST_BYTES)
        self._small.append(rows)
        if len(self._small) == SMALL_PARTS:
            self._parts.append(pa.concat_tables(self._small).combine_chunks())
            self._small.clear()

    def table(self) -> pa.Table:
        """Return the rows, in the order in which they were found."""
        return pa.concat_tables([self.schema.empty_table(), *self._parts, *self._small])


class _New:
    """Tells rows that are found for the first time; they are known by a 64-bit hash."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        self._types = types
        self._seen: set[int] = set()

    def of(self, rows: pa.Table) -> pa.Table:
        """Return those of `rows` that are new, each once."""
        columns, diffs = split_diffs(rows)
        hashes = hash_columns(columns, self._types, len(diffs)).tolist()
        seen, places = self._seen, []
        for place, hash in enumerate(hashes):
            if hash not in seen:
                seen.add(hash)
                places.append(place)
        chosen = pa.array(places, pa.int64())
        ones = pa.array(np.ones(len(places), np.int64))
        return pa.Table.from_arrays(
            [*(column.take(chosen) for column in columns), ones], schema=rows.schema
        )


def _collections(found: Found) -> dict[GlobalId | int, pa.Table]:
    """Return what was found as `evaluate_linear` takes it."""
    return {id: rows for id, rows in found.items()}


def _read_by(recursion: Recursion) -> set[GlobalId]:
    """Return the collections that a recursion reads."""
    relations = (*recursion.base.relations(), *recursion.step.relations())
    return set().union(*map(sources_of, relations))


def _input(rows: pa.Table, time: Timestamp) -> Input:
    at = rows.schema.get_field_index(DIFF)
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    schema = pa.schema([field for field in rows.schema if field.name != DIFF])
    return Input(schema, (), (rows.add_column(at, TIME_FIELD, times),))
