"""Recursions on engines that run SQL: computed anew at each time at which an input changes.

The contents of the inputs are kept as tables. What changes is the difference to the result before.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.engine import (
    ERRORS,
    ArrangementSize,
    Cancellation,
    Evaluations,
    Input,
    output_schema,
    result_schema,
    rows_schema,
)
from foreshore.compute.local.recursion import Evaluation
from foreshore.compute.output import TableOutput
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.windowed import WindowedDataflow
from foreshore.errors import DataError, data_error
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Get
from foreshore.expr.recursion import block_of, with_limits
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.update import DIFF, TIME, Timestamp, at_time

Begin = Callable[[Cancellation], AbstractContextManager[Evaluations]]


class RecomputedDataflow(WindowedDataflow):
    """A dataflow with recursions; see `foreshore.compute.engine.Dataflow`."""

    batch_sizing: BatchSizing | None = None

    def __init__(self, description: DataflowDescription, begin: Begin) -> None:
        relation = with_limits(description.relation)
        self._block = block_of(relation)
        self._columns = columns_of(relation)
        self._inputs = {
            node.id: node.columns for node in walk_relations(relation) if isinstance(node, Get)
        }
        self._as_of = description.as_of
        self._begin = begin
        self._cancellation = Cancellation()
        self._contents: dict[GlobalId, pa.Table] = {}  # updates with columns c0, c1, ...
        self._result: pa.Table = result_schema(self._columns).empty_table()
        self._errors: pa.Table = result_schema(ERRORS).empty_table()

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> TableOutput:
        """Compute the output as of the dataflow's as_of."""
        with self._begin(self._cancellation) as evaluations:
            for id, columns in self._inputs.items():
                rows = evaluations.rows(Get(id, columns), inputs, self._as_of)
                self._contents[id] = at_time(rows, self._as_of)
        return self._changes([self._as_of], self._contents, self._as_of + 1)

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> TableOutput:
        """Return the changes in [lower, upper), each at its exact time."""
        contents = dict(self._contents)
        times: set[int] = set()
        for id, delta in deltas.items():
            if id in contents and delta.num_rows:
                schema = output_schema(self._inputs[id])
                new = pa.Table.from_arrays(delta.columns, names=schema.names).cast(schema)
                contents[id] = pa.concat_tables([contents[id], new])
                times |= set(np.unique(new[TIME].to_numpy()).tolist())
        return self._changes(sorted(times), contents, upper)

    def _changes(
        self, times: list[Timestamp], contents: dict[GlobalId, pa.Table], upper: Timestamp
    ) -> TableOutput:
        """Return the changes at some times, and keep what is there then."""
        result, errors = self._result, self._errors
        changed: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for time in times:
            before = result, errors
            result, errors = self._computed(contents, time)
            changed[0].append(self._difference(before[0], result, time))
            changed[1].append(self._difference(before[1], errors, time))
        self._result, self._errors = result, errors
        self._contents = {
            id: consolidate(updates, rows_schema(self._inputs[id]), upper - 1)
            for id, updates in contents.items()
        }
        rows = [output_schema(self._columns).empty_table(), *changed[0]]
        failed = [output_schema(ERRORS).empty_table(), *changed[1]]
        return TableOutput(pa.concat_tables(rows), pa.concat_tables(failed))

    def _computed(
        self, contents: Mapping[GlobalId, pa.Table], time: Timestamp
    ) -> tuple[pa.Table, pa.Table]:
        """Return the rows as of a time, or an error and no rows."""
        schema, none = result_schema(self._columns), result_schema(ERRORS).empty_table()
        inputs = {
            id: Input(rows_schema(self._inputs[id]), (), (updates,))
            for id, updates in contents.items()
        }
        cancellation = self._cancellation
        try:
            with self._begin(cancellation) as engine:
                steps = Evaluation(inputs, time, engine, cancellation.check).parts(self._block)
                while True:
                    try:
                        next(steps)
                    except StopIteration as stop:
                        parts = [part.cast(schema) for part in stop.value]
                        return pa.concat_tables([schema.empty_table(), *parts]), none
        except DataError as error:
            text = data_error(error.sqlstate, error.message)
            return schema.empty_table(), pa.table([[text], [1]], schema=none.schema)

    @staticmethod
    def _difference(before: pa.Table, after: pa.Table, time: Timestamp) -> pa.Table:
        place = before.num_columns - 1
        gone = before.set_column(place, before.schema[place], pc.negate(before[DIFF]))
        both = at_time(pa.concat_tables([after, gone]), time)
        rows = pa.schema([field for field in both.schema if field.name not in (TIME, DIFF)])
        return consolidate(both, rows, time)

    def cancel(self) -> None:
        """End a computation that is under way."""
        self._cancellation.cancel()

    def sizes(self) -> Iterable[ArrangementSize]:
        """Yield the size of the inputs' contents and of the result."""
        tables = [*self._contents.values(), self._result]
        records, size = sum(t.num_rows for t in tables), sum(t.nbytes for t in tables)
        yield ArrangementSize("rows", records, len(tables), size)

    def close(self) -> None:
        """Free the contents."""
        self._contents = {}
