"""Dataflows of the arrangement engine."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import (
    ERRORS,
    ArrangementSize,
    Engine,
    Input,
    Output,
    empty_output,
    output_schema,
)
from foreshore.compute.flow.batch import Batch, empty
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.convert import (
    batch_of,
    columns_of,
    flat,
    int64_array,
    integers,
    words_of,
)
from foreshore.compute.flow.errors import ERROR_LAYOUT
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.operator import Operator, Source, Window
from foreshore.compute.flow.read import read_until
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.expr import ir
from foreshore.expr.lowered import check_lowered
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

BULK_ROWS = 50_000  # of which a bulk engine joins faster


class FlowDataflow:
    """A view as operators over arrangements. Calls are serialized."""

    batch_sizing: BatchSizing | None = None
    small_window = 256

    def __init__(
        self, description: DataflowDescription, bulk: Engine, collections: Collections
    ) -> None:
        relation = description.relation
        check_lowered(relation)
        builder = Builder(collections, description.as_of)
        self._imports = builder.imports
        try:
            self._rows, self._errors = builder.output(relation)
        except BaseException:
            self.close()
            raise
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
        self._interner = collections.interner

    # --- hydration

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the description's `as_of`."""
        as_of = self._description.as_of
        for id, each in self._imports.items():
            each.hydrate(inputs[id], as_of)
        window = Window(as_of, as_of + 1)
        bulky = self._bulky()
        wanted = self._wanted(bulky)
        given = {
            id: self._rows_as_of(id, inputs[id], as_of)
            for number, id in self._numbers.items()
            if number in wanted
        }

        def output(number: int, join: Join, taken: Sequence[Batch]) -> Batch:
            assert join.bulk is not None
            join.begin(taken)
            if join.bulk.errors is not None:
                errors = self._evaluated(join.bulk.errors, ERROR_LAYOUT, inputs)
                self._context.fail(join.bulk.port, errors)
            return self._evaluated(join.bulk.rows, join.layout, inputs)

        return self._run(window, given, bulky, output)

    def _bulky(self) -> frozenset[int]:
        """Return the joins whose rows the bulk engine computes faster."""
        return frozenset(
            number
            for number, operator in enumerate(self._operators)
            if isinstance(operator, Join)
            and operator.bulk is not None
            and sum(self._imports[id].rows for id in ir.sources_of(operator.bulk.rows)) > BULK_ROWS
        )

    def _wanted(self, bulky: frozenset[int]) -> set[int]:
        """Return the operators whose output at hydration is used."""
        wanted = {self._rows}
        for number in reversed(range(len(self._operators))):
            operator = self._operators[number]
            if number in bulky:
                assert isinstance(operator, Join)
                wanted.update(operator.needed)
            elif number in wanted:
                wanted.update(operator.inputs)
        return wanted

    def _rows_as_of(self, id: GlobalId, input: Input, as_of: int) -> Batch:
        """Return the wanted columns of an input's rows at a time."""
        source = self._sources[id]
        if id in self._imports:
            return self._imports[id].rows_at(as_of)
        return read_until(
            input, source.columns, source.picked, source.layout, self._interner, as_of
        )

    def _evaluated(
        self, relation: ir.Relation, layout: Layout, inputs: Mapping[GlobalId, Input]
    ) -> Batch:
        """Return a plan's rows, in `layout`, as the bulk engine computes them."""
        as_of = self._description.as_of
        rows = self._bulk.evaluate(relation, inputs, as_of)
        columns = [flat(column) for column in rows.columns]
        words = words_of(columns[:-1], rows.num_rows, layout, self._interner)
        times = np.full(rows.num_rows, as_of, np.int64)
        return Batch(words, times, np.array(integers(columns[-1])))

    # --- steps

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        given = {id: each.begin(lower, upper, deltas.get(id)) for id, each in self._imports.items()}
        for id, source in self._sources.items():
            if id not in given and id in deltas and deltas[id].num_rows:
                given[id] = batch_of(deltas[id], source.picked, source.layout, self._interner)
        for operator in self._operators:
            operator.compact(lower - 1)
        return self._run(Window(lower, upper), given)

    def _run(
        self,
        window: Window,
        given: Mapping[GlobalId, Batch],
        bulky: Collection[int] = (),
        output_of: Callable[[int, Join, Sequence[Batch]], Batch] | None = None,
    ) -> Output:
        """Step all operators; the output of joins that are `bulky` comes from elsewhere."""
        updates: list[Batch] = []
        try:
            for number, operator in enumerate(self._operators):
                if number in self._numbers:
                    found = given.get(self._numbers[number])
                    updates.append(empty(operator.layout.words) if found is None else found)
                    continue
                taken = [updates[i] for i in operator.inputs]
                if number in bulky and isinstance(operator, Join) and output_of is not None:
                    updates.append(output_of(number, operator, taken))
                else:
                    updates.append(operator.step(window, taken))
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
        if not len(batch):
            return empty_output(columns)
        batch = consolidated(batch, self._context.seed)
        arrays = columns_of(batch.words, layout, self._interner)
        arrays += [int64_array(batch.times), int64_array(batch.diffs)]
        return pa.Table.from_arrays(arrays, schema=output_schema(columns))

    def advanced(self, upper: int) -> None:
        """Note that no input changed before `upper`."""
        for each in self._imports.values():
            each.frontier = max(each.frontier, upper)

    def allow_compaction(self, since: int) -> None:
        """Do nothing: state is compacted to the beginning of each window."""

    def maintain(self) -> bool:
        """Merge some runs of each arrangement; return whether there is more to do."""
        imports = self._imports.values()
        more = [each.maintain() for each in imports]
        return any([*more, *(operator.maintain() for operator in self._operators)])

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all operators' arrangements, and of the counts of errors."""
        for number, operator in enumerate(self._operators):
            for size in operator.sizes():
                yield replace(size, operator=number)
        yield from self._errors.sizes()

    def close(self) -> None:
        """Free the operators."""
        for each in self._imports.values():
            each.close()
        self._imports = {}
        self._operators = []
