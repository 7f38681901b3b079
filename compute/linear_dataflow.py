"""Dataflows of linear plans, stepped by the kernels (`compute/linear.py`) and without state.

Hydration, which has many rows, is left to the bulk engine.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.engine import (
    ERRORS,
    Cancellation,
    Dataflow,
    Engine,
    Evaluator,
    Input,
    output_schema,
    rows_schema,
)
from foreshore.compute.linear import Rows, apply
from foreshore.compute.output import Output, TableOutput
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.windowed import WindowedDataflow
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Filter, Get, Let, LocalGet, Map, Negate, Project, Relation, Union
from foreshore.expr.recursion import has_recursion
from foreshore.expr.split import known_sound, split_errors
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId

_LINEAR = (Get, LocalGet, Let, Map, Filter, Project, Union, Negate)


def is_linear(relation: Relation) -> bool:
    """Whether `relation` applied to its inputs' changes gives its own changes."""
    return all(isinstance(node, _LINEAR) for node in walk_relations(relation))


class LinearDataflow(WindowedDataflow):
    """A linear plan, hydrated by an engine and stepped by the kernels."""

    batch_sizing: BatchSizing | None = None

    def __init__(
        self,
        description: DataflowDescription,
        engine: Evaluator,
        rows: Relation,
        errors: Relation | None,
    ) -> None:
        self._description = description
        self._engine = engine
        self._rows = rows
        self._errors = errors

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute everything as of the description's `as_of`."""
        if self._errors is None:
            return TableOutput(self._as_of(self._rows, inputs), output_schema(ERRORS).empty_table())
        errors = self._as_of(self._errors, inputs)
        # Without errors no row is left out, so what may fail is not evaluated once more for each.
        rows = self._rows if errors.num_rows else known_sound(self._description.relation)
        return TableOutput(self._as_of(rows, inputs), errors)

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return how many updates take a few milliseconds at most."""
        return 256

    def _as_of(self, relation: Relation, inputs: Mapping[GlobalId, Input]) -> pa.Table:
        as_of, columns = self._description.as_of, columns_of(relation)
        # Neither plan fails: in both, the value of a call that fails is NULL.
        parts = self._engine.evaluate_parts(relation, inputs, as_of, Cancellation(), may_fail=False)
        with closing(parts):
            result = pa.concat_tables(parts)
        times = pa.repeat(pa.scalar(as_of, pa.int64()), result.num_rows)
        table = pa.Table.from_arrays(
            [*result.columns[:-1], times, result.columns[-1]], schema=output_schema(columns)
        )
        return consolidate(table, rows_schema(columns), 0)

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper)."""
        nothing = output_schema(ERRORS).empty_table()
        errors = self._changes(self._errors, deltas) if self._errors is not None else nothing
        return TableOutput(self._changes(self._rows, deltas), errors)

    def _changes(self, relation: Relation, deltas: Mapping[GlobalId, pa.Table]) -> pa.Table:
        def changed(get: Get) -> Rows:
            table = deltas.get(get.id)
            if table is None:
                table = output_schema(get.columns).empty_table()
            return Rows.of_table(table, 2)

        columns = columns_of(relation)
        rows = apply(relation, changed)
        table = pa.Table.from_arrays([*rows.columns, *rows.along], schema=output_schema(columns))
        return consolidate(table, rows_schema(columns), 0) if rows.count > 1 else table


class LinearFirst(OverEngine[Engine]):
    """An engine that steps linear dataflows with kernels and leaves the rest to another."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        linear = linear_dataflow(description, self._engine)
        return linear or self._engine.create(description, schemas)


def linear_dataflow(description: DataflowDescription, engine: Evaluator) -> LinearDataflow | None:
    """Return a dataflow that an engine hydrates, None if its plan is not linear."""
    if has_recursion(description.relation):
        return None
    rows, errors = split_errors(description.relation)
    if is_linear(rows) and (errors is None or is_linear(errors)):
        return LinearDataflow(description, engine, rows, errors)
    return None
