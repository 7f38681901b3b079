"""Evaluates linear plans with kernels alone: Map, Filter, Project, Union and Negate of rows.

The changes of a linear plan are the plan applied to the inputs' changes, with times and diffs
unchanged, so no state is needed. For a few rows the kernels take microseconds where a bulk engine
needs a millisecond to start. Index lookups evaluate the rest of their plan this way, and completely
linear dataflows step this way. Hydration, which has many rows, is left to the bulk engine.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import (
    ERRORS,
    Cancellation,
    Dataflow,
    Engine,
    Input,
    Output,
    output_schema,
    rows_schema,
)
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.errors import InternalError
from foreshore.expr.evaluate import evaluate
from foreshore.expr.explain import NameOf
from foreshore.expr.ir import (
    Column,
    Filter,
    Get,
    Let,
    LocalGet,
    Map,
    Negate,
    Project,
    Relation,
    Scalar,
    Threshold,
    Union,
    columns_of,
    walk_relations,
)
from foreshore.expr.split import split_errors
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

_LINEAR = (Get, LocalGet, Let, Map, Filter, Project, Union, Negate)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in columns, and columns `along` with them: none, or time and diff."""

    columns: tuple[pa.Array, ...]
    along: tuple[pa.Array, ...]
    count: int

    @classmethod
    def of_batch(cls, rows: pa.RecordBatch) -> "Rows":
        """Return rows with multiplicity one."""
        return cls(tuple(rows.columns), (), rows.num_rows)

    @classmethod
    def of_updates(cls, updates: pa.Table) -> "Rows":
        """Return the rows of updates, with their times and diffs."""
        arrays = [_flat(column) for column in updates.columns]
        return cls(tuple(arrays[:-2]), tuple(arrays[-2:]), updates.num_rows)

    def batch(self, columns: tuple[ColumnType, ...]) -> pa.RecordBatch:
        """Return the rows alone."""
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(list(self.columns), schema=rows_schema(columns))

    def filter(self, mask: pa.Array) -> "Rows":
        """Return the rows where `mask` is true."""
        batch = pa.RecordBatch.from_arrays(
            [*self.columns, *self.along], names=[""] * (len(self.columns) + len(self.along))
        ).filter(mask)
        width = len(self.columns)
        return Rows(tuple(batch.columns[:width]), tuple(batch.columns[width:]), batch.num_rows)

    def empty(self) -> "Rows":
        """Return no rows, of the same columns."""
        columns = tuple(column.slice(0, 0) for column in self.columns)
        return Rows(columns, tuple(array.slice(0, 0) for array in self.along), 0)


Inputs = Callable[[Get], Rows]


def apply(relation: Relation, inputs: Inputs, locals: Mapping[int, Rows] | None = None) -> Rows:
    """Return `relation` evaluated over its inputs' rows."""
    locals = locals or {}
    match relation:
        case Get():
            return inputs(relation)
        case LocalGet(number=number):
            return locals[number]
        case Let(number=number, value=value, body=body):
            return apply(body, inputs, {**locals, number: apply(value, inputs, locals)})
        case Map(input=input, scalars=scalars):
            rows = apply(input, inputs, locals)
            columns = list(rows.columns)
            for scalar in scalars:
                columns.append(_value(scalar, columns, rows.count))
            return Rows(tuple(columns), rows.along, rows.count)
        case Filter(input=input, predicates=predicates):
            rows = apply(input, inputs, locals)
            for predicate in predicates:
                if not rows.count:
                    break
                rows = rows.filter(_value(predicate, rows.columns, rows.count))
            return rows
        case Project(input=input, outputs=outputs):
            rows = apply(input, inputs, locals)
            return Rows(tuple(rows.columns[i] for i in outputs), rows.along, rows.count)
        case Union(inputs=parts):
            each = [apply(part, inputs, locals) for part in parts]
            return Rows(
                tuple(map(_concat, zip(*(rows.columns for rows in each), strict=True))),
                tuple(map(_concat, zip(*(rows.along for rows in each), strict=True))),
                sum(rows.count for rows in each),
            )
        case Negate(input=input):
            rows = apply(input, inputs, locals)
            times, diffs = rows.along
            return Rows(rows.columns, (times, pc.negate(diffs)), rows.count)
        case Threshold(input=Negate(input=input)):  # of existing rows
            return apply(input, inputs, locals).empty()
        case Threshold(input=input):
            return apply(input, inputs, locals)
        case _:
            raise InternalError(f"{type(relation).__name__} is not linear")


def _value(scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if isinstance(scalar, Column):
        return columns[scalar.index]
    return _flat(evaluate(scalar, columns, rows))


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)


def _concat(arrays: tuple[pa.Array, ...]) -> pa.Array:
    return pa.concat_arrays(arrays)


def is_linear(relation: Relation) -> bool:
    """Whether `relation` applied to its inputs' changes gives its own changes."""
    return all(isinstance(node, _LINEAR) for node in walk_relations(relation))


class LinearDataflow:
    """A linear plan, hydrated by an engine and stepped by the kernels."""

    batch_sizing: BatchSizing | None = None

    def __init__(
        self,
        description: DataflowDescription,
        engine: Engine,
        rows: Relation,
        errors: Relation | None,
    ) -> None:
        self._description = description
        self._engine = engine
        self._rows = rows
        self._errors = errors

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute everything as of the description's `as_of`."""
        nothing = output_schema(ERRORS).empty_table()
        errors = self._as_of(self._errors, inputs) if self._errors is not None else nothing
        return Output(self._as_of(self._rows, inputs), errors)

    def _as_of(self, relation: Relation, inputs: Mapping[GlobalId, Input]) -> pa.Table:
        as_of = self._description.as_of
        result = self._engine.evaluate(relation, inputs, as_of)
        times = pa.repeat(pa.scalar(as_of, pa.int64()), result.num_rows)
        return pa.Table.from_arrays(
            [*result.columns[:-1], times, result.columns[-1]],
            schema=output_schema(columns_of(relation)),
        )

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper)."""
        nothing = output_schema(ERRORS).empty_table()
        errors = self._changes(self._errors, deltas) if self._errors is not None else nothing
        return Output(self._changes(self._rows, deltas), errors)

    def _changes(self, relation: Relation, deltas: Mapping[GlobalId, pa.Table]) -> pa.Table:
        def changed(get: Get) -> Rows:
            table = deltas.get(get.id)
            if table is None:
                table = output_schema(get.columns).empty_table()
            return Rows.of_updates(table)

        columns = columns_of(relation)
        rows = apply(relation, changed)
        table = pa.Table.from_arrays([*rows.columns, *rows.along], schema=output_schema(columns))
        return consolidate(table, rows_schema(columns), 0) if rows.count > 1 else table

    def allow_compaction(self, since: int) -> None:
        """Do nothing: there is no state."""

    def close(self) -> None:
        """Do nothing: there is no state."""


class LinearFirst:
    """An engine that steps linear dataflows with kernels and leaves the rest to another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        rows, errors = split_errors(description.relation)
        if is_linear(rows) and (errors is None or is_linear(errors)):
            return LinearDataflow(description, self._engine, rows, errors)
        return self._engine.create(description, schemas)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        return self._engine.evaluate(relation, inputs, as_of, cancellation, max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation,
        max_bytes: int | None = None,
    ) -> Generator[pa.Table, None, None]:
        """Yield the rows of `relation` as of a time, part by part."""
        return self._engine.evaluate_parts(relation, inputs, as_of, cancellation, max_bytes)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        self._engine.cancel()

    def check(self) -> None:
        """Raise Unavailable if the engine has permanently lost its backend."""
        self._engine.check()

    def describe(self, relation: Relation, name_of: NameOf) -> str:
        """Return how the engine maintains `relation`."""
        return self._engine.describe(relation, name_of)

    def close(self) -> None:
        """Free the engine's resources."""
        self._engine.close()
