"""Dataflows of the arrangement engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import thread_time_ns

import pyarrow as pa

from foreshore.compute import merged_times
from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.checkpoint.state import Mismatch, Reader, Writer
from foreshore.compute.engine import ArrangementSize, Evaluator, Input
from foreshore.compute.flow.batch import Batch, empty
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.collection import Collections, Import
from foreshore.compute.flow.convert import (
    batch_of,
)
from foreshore.compute.flow.hydration import Beginning, Hydration
from foreshore.compute.flow.index import FlowIndex, index_key
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels.jit import GATE
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.operators.arranged import Readable
from foreshore.compute.flow.operators.fixpoint import Fixpoint
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.loop import Loop
from foreshore.compute.flow.operators.operator import Operator, Source, Window
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.operators.temporal import TemporalFilter
from foreshore.compute.flow.operators.window import WindowFunctions
from foreshore.compute.flow.output import FlowOutput
from foreshore.compute.flow.peers import NoPeers, Peers
from foreshore.compute.flow.program import Kept
from foreshore.compute.flow.spread_hydration import Groups, SpreadHydration
from foreshore.compute.flow.work import Work
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import IndexRows, Output
from foreshore.compute.protocol import DataflowDescription, IndexExport, OperatorWork
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Column
from foreshore.expr.lowered import check_lowered
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

SMALL_WINDOW = 256  # updates
MANY = 10_000  # updates whose memory is worth a look
JOINED_TIMES = 64  # the most of a window with a join


class FlowDataflow:
    """A view as operators over arrangements. Calls are serialized.

    With `peers` it has a share of the rows of each input and keeps a share of the view; its first
    step and all others are collective. Without a `bulk` engine all is computed by the operators.
    """

    def __init__(
        self,
        description: DataflowDescription,
        bulk: Evaluator | None,
        collections: Collections,
        peers: Peers | None = None,
    ) -> None:
        relation = description.relation
        check_lowered(relation)
        builder = Builder(collections, description.as_of, peers)
        self._imports = builder.imports
        try:
            self._rows, self._errors = builder.output(relation, _placing_columns(description))
        except BaseException:
            self.close()
            raise
        self._columns = columns_of(relation)
        self._operators: list[Operator] = builder.operators
        self._temporal = [each for each in self._operators if isinstance(each, TemporalFilter)]
        # One row may lengthen a recursion by any number of rounds.
        self._has_loop = any(isinstance(each, Loop | Fixpoint) for each in self._operators)
        self.batch_sizing = batch_sizing_of(self._operators)
        self._sources: dict[GlobalId, Source] = {}
        self._numbers: dict[int, GlobalId] = {}
        for id, number in builder.sources.items():
            source = builder.operators[number]
            assert isinstance(source, Source)
            self._sources[id] = source
            self._numbers[number] = id
        self._source_of = dict(builder.sources)
        self._look_ups = _look_ups_of(self._operators, self._numbers)
        self._context = builder.context
        self._work = Work(self._operators)
        self._description = description
        self._bulk = bulk
        self._interner = collections.interner
        self._merged = merged_times.NONE

    # --- hydration

    def hydrate(self, inputs: Mapping[GlobalId, Input], groups: Groups | None = None) -> Output:
        """Compute the output as of the description's `as_of`.

        A worker is given some `groups`, with which reductions begin.
        """
        as_of = self._description.as_of
        spent, began = self._work.hydration_ns, thread_time_ns()
        for id, each in self._imports.items():
            each.hydrate(inputs[id], as_of, self._context, self._bulk)
            began = self._work.passed(spent, self._source_of.get(id), began)
        hydration = self._hydration(inputs, groups)
        given = hydration.given(self._work)
        return self._run(hydration.window, given, hydration.step, spent)

    def _hydration(self, inputs: Mapping[GlobalId, Input], groups: Groups | None) -> Hydration:
        context = self._context
        beginning = Beginning(
            self._operators, self._rows, self._numbers, self._imports, inputs,
            self._description.as_of,
        )  # fmt: skip
        if not groups:
            return Hydration(beginning, self._bulk, context)
        assert context.peers is not None
        return SpreadHydration(beginning, context, context.peers, groups)

    # --- steps

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        given: dict[GlobalId, Batch] = {}
        spent, began = self._work.step_ns, thread_time_ns()
        for id, each in self._imports.items():
            given[id] = each.begin(lower, upper, deltas.get(id))
            if id in deltas:
                began = self._work.passed(spent, self._source_of.get(id), began)
        for id, source in self._sources.items():
            if id not in given and id in deltas and deltas[id].num_rows:
                given[id] = batch_of(deltas[id], source.picked, source.layout, self._interner)
                began = self._work.passed(spent, self._source_of.get(id), began)
        for kept in self._context.kept:
            kept.compact(lower - 1)
        if self._merged:
            for id, batch in given.items():
                given[id] = replace(batch, times=self._merged.moved(batch.times, upper))
        window = Window(lower, upper)

        def step(number: int, inputs: Sequence[Batch]) -> Batch:
            return self._operators[number].step(window, inputs)

        return self._run(window, given, step, spent)

    def _run(
        self,
        window: Window,
        given: Mapping[GlobalId, Batch],
        step: Callable[[int, Sequence[Batch]], Batch],
        spent: list[int],
    ) -> Output:
        """Return the changes of rows and errors, given how each operator makes its own.

        The time of each operator is added to `spent`.
        """
        updates: list[Batch] = []
        self._context.use(lambda: self._used(updates))
        rows, began = self._work.rows, thread_time_ns()
        self._work.steps += 1
        try:
            for number, operator in enumerate(self._operators):
                if number in self._numbers:
                    found = given.get(self._numbers[number])
                    updates.append(empty(operator.layout.words) if found is None else found)
                    rows[number] += len(updates[number].diffs)
                    continue
                made = step(number, [updates[i] for i in operator.inputs])
                updates.append(made)
                if len(made.diffs) > MANY:
                    self._context.check_made(0)
                rows[number] += len(made.diffs)
                ended = thread_time_ns()
                spent[number] += ended - began
                began = ended
            errors = self._errors.step(window, self._context)
            layout = self._operators[self._rows].layout
            output = FlowOutput(
                self._consolidated(updates[self._rows]),
                layout,
                self._columns,
                self._consolidated(errors),
                self._interner,
            )
            if self._context.peers is not None:
                self._context.peers.agree()
        except BaseException:
            self._context.failures()
            self._errors.restore()
            for operator in self._operators:
                operator.restore()
            raise
        finally:
            self._context.use(lambda: 0)  # which holds none of the updates
        self._errors.commit()
        for operator in self._operators:
            operator.commit()
        return output

    def _used(self, updates: Sequence[Batch]) -> int:
        """Return the bytes of the state, and of what a step has made."""
        return sum(size.bytes for size in self.sizes()) + sum(each.nbytes for each in updates)

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Check a budget during hydration and large steps."""
        self._context.limit_memory(budget)

    def _consolidated(self, batch: Batch) -> Batch:
        return consolidated(batch, self._context.seed) if len(batch) else batch

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return how many updates of the inputs `changed` take a few milliseconds at most.

        The first look-up by a key may have a large index to make, and a step may wait for a kernel.
        """
        if self._has_loop or not GATE.is_open:
            return 0
        for id in changed:
            look_ups = self._look_ups[id]
            if look_ups and not all(each.is_indexed(key) for each, key in look_ups):
                return 0
        return SMALL_WINDOW

    def cancel(self) -> None:
        """Make a recursion, or an evaluation in bulk, that is under way raise QueryCanceled."""
        self._context.cancel()

    def due(self, upper: int) -> int:
        """Return the number of updates scheduled before `upper`."""
        return sum([each.due(upper) for each in self._temporal]) if self._temporal else 0

    def next_due(self) -> Timestamp | None:
        """Return the time of the earliest update that is scheduled, None if there is none."""
        found = (each.next_due() for each in self._temporal)
        return min((time for time in found if time is not None), default=None)

    def advanced(self, upper: int) -> None:
        """Note that no input changed before `upper`."""
        for each in self._imports.values():
            each.frontier = max(each.frontier, upper)

    def allow_compaction(self, since: int) -> None:
        """Do nothing: state is compacted to the beginning of each window."""

    def merge_times(self, merged: MergedTimes) -> None:
        """Move the updates of merged times to the ends of their ranges in later steps.

        Shared collections have them at their own times, as other dataflows may read these.
        """
        self._merged = merged

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return an index of rows in words, None if its key is not some of their words."""
        layout = self._operators[self._rows].layout
        key = index_key(export.key, layout)
        if key is None:
            return None
        return FlowIndex(
            export.id, layout, key, self._interner, self._context.seed,
            self._description.as_of, since,
        )  # fmt: skip

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return any(each.maintenance_due for each in self._maintained())

    def maintain(self) -> bool:
        """Merge some runs of each arrangement; return whether there is more to do."""
        more = [kept.maintain() for kept in self._context.kept]
        spent, began = self._work.merge_ns, thread_time_ns()
        for id, each in self._imports.items():
            more.append(each.maintain())
            began = self._work.passed(spent, self._source_of.get(id), began)
        return any(more)

    def _maintained(self) -> Iterator[Import | Kept]:
        yield from self._imports.values()
        yield from self._context.kept

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all operators' arrangements, and of the counts of errors."""
        for number, operator in enumerate(self._operators):
            for size in operator.sizes():
                yield replace(size, operator=number)
        yield from self._errors.sizes()

    def work(self) -> Iterator[OperatorWork]:
        """Yield what each operator has done."""
        return self._work.operators()

    # --- checkpoints

    def save(self, to: Writer) -> None:
        """Write the state of all operators; that of collections is saved apart from it."""
        for number, operator in enumerate(self._operators):
            operator.save(to.part(number))
        self._errors.save(to.part("errors"))

    def load(self, saved: Reader) -> None:
        """Begin with a saved state, which is that at `as_of`, in place of hydration."""
        frontier = self._description.as_of + 1
        for id, each in self._imports.items():
            if not each.collection.ready:
                raise Mismatch(f"the rows of {id} are not in the checkpoint")
            each.frontier = frontier
        for number, operator in enumerate(self._operators):
            operator.load(saved.part(number))
        self._errors.load(saved.part("errors"))

    def close(self) -> None:
        """Free the operators."""
        for each in self._imports.values():
            each.close()
        self._imports = {}
        self._operators = []


def _look_ups_of(
    operators: Sequence[Operator], sources: Mapping[int, GlobalId]
) -> dict[GlobalId, list[tuple[Readable, int]]]:
    """Return what the changes of each source are looked up in by a key, with the key's number."""
    found: dict[GlobalId, list[tuple[Readable, int]]] = {id: [] for id in sources.values()}
    above: list[set[GlobalId]] = []  # the sources above each operator
    for number, operator in enumerate(operators):
        if isinstance(operator, Join):
            for at, input in enumerate(operator.inputs):
                for id in above[input]:
                    found[id] += operator.look_ups(at)
        own = {sources[number]} if number in sources else set()
        above.append(own.union(*(above[input] for input in operator.inputs)))
    return found


def operators_of(description: DataflowDescription, workers: int) -> list[Operator]:
    """Return the operators that each of several workers builds; these are never run."""
    collections = Collections(Interner(), 0)
    builder = Builder(collections, description.as_of, NoPeers(workers))
    builder.output(description.relation, _placing_columns(description))
    return builder.operators


def placed_by(description: DataflowDescription) -> IndexExport | None:
    """Return the index by whose key workers share the output: the first one; None without any."""
    layout = layout_of(columns_of(description.relation))
    for export in description.exports:
        if isinstance(export, IndexExport) and index_key(export.key, layout) is not None:
            return export
    return None


def _placing_columns(description: DataflowDescription) -> Sequence[int] | None:
    index = placed_by(description)
    if index is None:
        return None
    return [scalar.index for scalar in index.key if isinstance(scalar, Column)]


def batch_sizing_of(operators: Sequence[Operator]) -> BatchSizing | None:
    """Return how windows are sized; None if their number of times costs nothing.

    If whole groups are read again a step begins with four times: beyond its rows it costs few
    milliseconds, for which they are worth it. If changes are joined with changes, those of a key
    that changes at each time are as many pairs as the square of the times. Then the number has a
    bound: how long a step takes says too little where other processes take turns with it.
    """
    joins = any(isinstance(each, Join) and len(each.inputs) > 1 for each in operators)
    at_most = JOINED_TIMES if joins else None
    if any(map(_rereads, operators)):
        return BatchSizing(4, seconds=0.1, at_most=at_most)
    return BatchSizing(JOINED_TIMES, seconds=0.1, at_most=at_most) if joins else None


def _rereads(operator: Operator) -> bool:
    """Whether an operator may read all rows of a group again at each time of a window."""
    return isinstance(operator, WindowFunctions) or (
        isinstance(operator, Reduce) and operator.has_lists
    )
