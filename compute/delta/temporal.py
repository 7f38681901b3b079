"""Temporal filters on engines that run SQL: several dataflows, one after the other.

    Reduce(TemporalFilter(t))     stage 1   t
                                  stage 2   Reduce(Get x1), x1 being the filtered rows

The input of each filter is a dataflow without temporal filters, and so is the rest of the plan. The
updates between them are moved to the times at which rows enter and leave. Those of the future wait
in an Arrow table, in the order of their times.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.engine import (
    ERRORS,
    ArrangementSize,
    Dataflow,
    Input,
    empty_output,
    rows_schema,
)
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import IndexRows, Output, TableOutput
from foreshore.compute.presence import Bits, Ints, presence
from foreshore.compute.protocol import DataflowDescription, IndexExport, OperatorWork
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Get, Let, Relation, TemporalFilter
from foreshore.expr.share import share
from foreshore.expr.traversal import inputs_of, sources_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.update import DIFF, TIME, Timestamp


class Creates(Protocol):
    """The method of an engine that creates the dataflow of a stage."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        ...


@dataclass(frozen=True, slots=True)
class Cut:
    """A temporal filter over `relation`, which has none; others read the result as `id`."""

    id: GlobalId
    relation: Relation
    filter: TemporalFilter


def cut(relation: Relation) -> tuple[list[Cut], Relation]:
    """Return the temporal filters of a plan, in dependency order, and the rest of it."""
    cutting = _Cutting()
    rest = cutting.cut(relation, ())
    return list(cutting.found.values()), rest


class _Cutting:
    def __init__(self) -> None:
        self.found: dict[TemporalFilter, Cut] = {}

    def cut(self, node: Relation, bound: tuple[tuple[int, Relation], ...]) -> Relation:
        """Return `node` with its temporal filters replaced; `bound` are the Lets around it."""
        if isinstance(node, Let):
            value = self.cut(node.value, bound)
            return Let(node.number, value, self.cut(node.body, (*bound, (node.number, value))))
        inputs = tuple(self.cut(each, bound) for each in inputs_of(node))
        if not isinstance(node, TemporalFilter):
            return with_inputs(node, inputs)
        (relation,) = inputs
        for number, value in reversed(bound):
            relation = Let(number, value, relation)
        filter = TemporalFilter(share(relation), node.conditions)
        if filter not in self.found:
            id = GlobalId(f"x{len(self.found) + 1}")
            self.found[filter] = Cut(id, filter.input, filter)
        return Get(self.found[filter].id, columns_of(node))


@dataclass(slots=True)
class Stage:
    """A dataflow, and what its filter makes of its rows; the last stage has no filter."""

    id: GlobalId
    dataflow: Dataflow
    filter: TemporalFilter | None = None
    waiting: pa.Table | None = None  # in the order of the times
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def filtered(self, rows: pa.Table, upper: Timestamp) -> pa.Table:
        """Return the filter's updates before `upper`, given the stage's; later ones wait."""
        assert self.filter is not None
        parts = [_moved(rows, self.filter.conditions)]
        if self.waiting is not None:
            parts.append(self.waiting)
        table = pa.concat_tables(parts)
        table = table.take(pc.sort_indices(table[TIME]))
        times = table[TIME].to_numpy()
        place = int(np.searchsorted(times, upper))
        self.waiting, self.times = table.slice(place).combine_chunks(), times[place:]
        return table.slice(0, place)


def _moved(rows: pa.Table, conditions: Sequence[tuple[str, int]]) -> pa.Table:
    """Return updates at the times at which the rows enter and leave."""
    found = presence(rows[TIME].to_numpy(), _bounds(rows, conditions))
    opposite = rows.set_column(rows.num_columns - 1, rows.schema[-1], pc.negate(rows[DIFF]))
    return pa.concat_tables(
        [
            _at(rows, found.begins).filter(pa.array(found.enters)),
            _at(opposite, found.ends).filter(pa.array(found.leaves)),
        ]
    )


def _bounds(
    rows: pa.Table, conditions: Sequence[tuple[str, int]]
) -> Iterator[tuple[str, Ints, Bits]]:
    """Yield the conditions with each row's bound, and whether that is NULL."""
    for operator, column in conditions:
        bounds = rows.column(column)
        yield operator, pc.fill_null(bounds, 0).to_numpy(), pc.is_null(bounds).to_numpy()


def _at(rows: pa.Table, times: np.ndarray) -> pa.Table:
    place = rows.num_columns - 2
    return rows.set_column(place, rows.schema[place], pa.array(times, pa.int64()))


class TemporalDataflow:
    """A dataflow with temporal filters; see `foreshore.compute.engine.Dataflow`."""

    batch_sizing: BatchSizing | None = None

    def __init__(
        self,
        engine: Creates,
        description: DataflowDescription,
        schemas: Mapping[GlobalId, pa.Schema],
    ) -> None:
        cuts, rest = cut(description.relation)
        known = {**schemas, **{each.id: rows_schema(columns_of(each.relation)) for each in cuts}}
        self._as_of = description.as_of
        self._schemas = known
        self._stages: list[Stage] = []
        self._inputs: list[frozenset[GlobalId]] = []
        # What the stages before a failed one have done in its window.
        self._done: tuple[Timestamp, list[Output]] = (description.as_of, [])
        self._columns = columns_of(description.relation)
        for each in [*cuts, None]:
            relation = rest if each is None else each.relation
            inputs = sources_of(relation)
            id = description.id if each is None else each.id
            stage = DataflowDescription(id, relation, tuple(sorted(inputs)), (), self._as_of)
            dataflow = engine.create(stage, {i: known[i] for i in inputs})
            self._stages.append(Stage(id, dataflow, None if each is None else each.filter))
            self._inputs.append(inputs)

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the dataflow's as_of."""
        known = dict(inputs)
        outputs = []
        for stage, ids in zip(self._stages, self._inputs, strict=True):
            output = stage.dataflow.hydrate({id: known[id] for id in ids})
            if stage.filter is not None:
                rows = stage.filtered(output.rows, self._as_of + 1)
                known[stage.id] = Input(self._schemas[stage.id], (), (rows,))
            outputs.append(output)
        return self._all(outputs)

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        if self._done[0] != upper:
            self._done = (upper, [])
        outputs = self._done[1]
        known = dict(deltas)
        for number, (stage, ids) in enumerate(zip(self._stages, self._inputs, strict=True)):
            if number == len(outputs):
                given = {id: known[id] for id in ids if id in known and known[id].num_rows}
                output = self._stepped(stage, lower, upper, given)
                if stage.filter is not None:
                    output = TableOutput(stage.filtered(output.rows, upper), output.errors)
                outputs.append(output)
            known[stage.id] = outputs[number].rows
        self._done = (upper, [])
        return self._all(outputs)

    def _stepped(
        self, stage: Stage, lower: int, upper: int, given: Mapping[GlobalId, pa.Table]
    ) -> Output:
        if given:
            return stage.dataflow.step(lower, upper, given)
        stage.dataflow.advanced(upper)
        columns = self._columns if stage.filter is None else columns_of(stage.filter)
        return TableOutput(empty_output(columns), empty_output(ERRORS))

    def _all(self, outputs: Sequence[Output]) -> Output:
        """Return the last stage's rows, and the errors of all stages."""
        errors = pa.concat_tables([output.errors for output in outputs])
        return TableOutput(outputs[-1].rows, errors)

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Do nothing: the engine limits its own memory."""

    def cancel(self) -> None:
        """Make a call that is under way raise soon, if it can."""
        for stage in self._stages:
            stage.dataflow.cancel()

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return 0: a window may take longer than a few milliseconds."""
        return 0

    def due(self, upper: int) -> int:
        """Return the number of updates scheduled before `upper`."""
        return sum(int(np.searchsorted(stage.times, upper)) for stage in self._stages)

    def advanced(self, upper: int) -> None:
        """Note that no input changed before `upper`."""
        for stage in self._stages:
            stage.dataflow.advanced(upper)

    def merge_times(self, merged: MergedTimes) -> None:
        """Do nothing: each time is exact."""

    def allow_compaction(self, since: int) -> None:
        """Allow times before `since` to be forgotten."""
        for stage in self._stages:
            stage.dataflow.allow_compaction(since)

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return None: an arrangement of the output's tables will do."""
        return None

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return any(stage.dataflow.maintenance_due for stage in self._stages)

    def maintain(self) -> bool:
        """Do some maintenance between steps; return whether there is more to do."""
        return any([stage.dataflow.maintain() for stage in self._stages])

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of the stages' contents and of what waits."""
        return chain(*(stage.dataflow.sizes() for stage in self._stages), self._waiting())

    def work(self) -> Iterable[OperatorWork]:
        """Return nothing: the engine's statements are not told apart."""
        return ()

    def _waiting(self) -> Iterator[ArrangementSize]:
        for stage in self._stages:
            if stage.waiting is not None:
                waiting = stage.waiting
                yield ArrangementSize("scheduled rows", waiting.num_rows, 1, waiting.nbytes)

    def close(self) -> None:
        """Free the stages' resources."""
        for stage in self._stages:
            stage.dataflow.close()
