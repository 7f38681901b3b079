"""Dataflows of the arrangement engine."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import ERRORS, ArrangementSize, Engine, Input, Output, output_schema
from foreshore.compute.flow.batch import Batch, empty
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.convert import batch_of, columns_of, flat, integers, words_of
from foreshore.compute.flow.errors import ERROR_LAYOUT
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.operator import Operator, Source, Window
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.expr import ir
from foreshore.expr.lowered import check_lowered
from foreshore.ids import GlobalId
from foreshore.types import ColumnType


class FlowDataflow:
    """A view as operators over arrangements. Calls are serialized."""

    batch_sizing: BatchSizing | None = None
    small_window = 256

    def __init__(self, description: DataflowDescription, bulk: Engine, interner: Interner) -> None:
        relation = description.relation
        check_lowered(relation)
        builder = Builder(interner)
        self._rows, self._errors = builder.output(relation)
        self._columns = ir.columns_of(relation)
        self._operators: list[Operator] = builder.operators
        self._sources: dict[GlobalId, Source] = {}
        self._numbers: dict[int, GlobalId] = {}
        for id, number in builder.sources.items():
            source = builder.operators[number]
            assert isinstance(source, Source)
            self._sources[id] = source
            self._numbers[number] = id
        self._context = builder.context
        self._description = description
        self._bulk = bulk
        self._interner = interner

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the description's `as_of`."""
        as_of = self._description.as_of
        given = {id: self._rows_as_of(id, inputs[id], as_of) for id in self._sources}
        return self._run(Window(as_of, as_of + 1), given)

    def _rows_as_of(self, id: GlobalId, input: Input, as_of: int) -> Batch:
        """Return the wanted columns of an input's rows at a time."""
        source = self._sources[id]
        relation = ir.Project(ir.Get(id, source.columns), source.picked)
        rows = self._bulk.evaluate(relation, {id: input}, as_of)
        columns = [flat(column) for column in rows.columns]
        words = words_of(columns[:-1], rows.num_rows, source.layout, self._interner)
        times = np.full(rows.num_rows, as_of, np.int64)
        return Batch(words, times, np.array(integers(columns[-1])))

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        given = {
            id: batch_of(deltas[id], source.picked, source.layout, self._interner)
            for id, source in self._sources.items()
            if id in deltas and deltas[id].num_rows
        }
        for operator in self._operators:
            operator.compact(lower - 1)
        return self._run(Window(lower, upper), given)

    def _run(self, window: Window, given: Mapping[GlobalId, Batch]) -> Output:
        updates: list[Batch] = []
        try:
            for number, operator in enumerate(self._operators):
                if number in self._numbers:
                    found = given.get(self._numbers[number])
                    updates.append(empty(operator.layout.words) if found is None else found)
                    continue
                updates.append(operator.step(window, [updates[i] for i in operator.inputs]))
            errors = self._errors.step(window, self._context)
            output = Output(
                self._table(updates[self._rows], self._operators[self._rows].layout, self._columns),
                self._table(errors, ERROR_LAYOUT, ERRORS),
            )
        except BaseException:
            self._context.failures()
            self._errors.restore()
            for operator in self._operators:
                operator.restore()
            raise
        self._errors.commit()
        for operator in self._operators:
            operator.commit()
        return output

    def _table(self, batch: Batch, layout: Layout, columns: tuple[ColumnType, ...]) -> pa.Table:
        schema = output_schema(columns)
        if not len(batch):
            return schema.empty_table()
        batch = consolidated(batch, self._context.seed)
        arrays = columns_of(batch.words, layout, self._interner)
        arrays += [pa.array(batch.times), pa.array(batch.diffs)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def allow_compaction(self, since: int) -> None:
        """Do nothing: state is compacted to the beginning of each window."""

    def maintain(self) -> bool:
        """Merge some runs of each arrangement; return whether there is more to do."""
        return any([operator.maintain() for operator in self._operators])

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all operators' arrangements, and of the counts of errors."""
        for number, operator in enumerate(self._operators):
            for size in operator.sizes():
                yield replace(size, operator=number)
        yield from self._errors.sizes()

    def close(self) -> None:
        """Free the operators."""
        self._operators = []
