"""Ticks: run a plan of changes window by window over the tables of an engine.

`TickDataflow` is the dataflow of every engine that can hold tables and run SELECTs over them, that
is, implements `Store`. Hydration creates the table of each trace, inputs first, and reads the
outputs. A step loads the updates of the inputs, fills the tables of changes in the plan's order,
reads the outputs' changes, and then adds the changes to the contents. It does all of this or
nothing.

The statements of a step depend on which inputs and traces have changed: unchanged ones cost
nothing. Statements are rendered once for each such case. Changes are only added to contents. When
as many entries have been added as there were, they are consolidated, without rows that watermarks
have closed (`closed.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.delta.changes import (
    ChangeRenderer,
    TraceRenderer,
    accumulators,
    change_table,
    input_table,
    state_table,
)
from foreshore.compute.delta.closed import Closed, Greatest
from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.compute.delta.tables import Layout, row_layout
from foreshore.compute.engine import (
    ERRORS,
    Input,
    output_schema,
    result_schema,
)
from foreshore.compute.output import Output, TableOutput
from foreshore.compute.render.aggregates import Idioms
from foreshore.compute.render.dialect import Dialect
from foreshore.compute.windowed import WindowedDataflow
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Constant,
    Get,
    Join,
    LocalGet,
    Reduce,
    Relation,
    Threshold,
    TopK,
    Window,
)
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME, TIME_FIELD


class Language(Protocol):
    """The dialect and the idioms in which the statements of an engine are written."""

    dialect: Dialect
    idioms: Idioms


class Hydrating(Language, Protocol):
    """The store of a dataflow while it is hydrated."""

    def sources(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return a FROM item for each input as of a time, with columns c0, ... and d."""
        ...

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant, with columns c0, ... and d."""
        ...

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Create the contents `name` from `select`."""
        ...

    def release(self) -> None:
        """Drop inputs and constants; contents made from them stay."""
        ...

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        ...

    def read(self, select: str, schema: pa.Schema) -> pa.Table:
        """Return the result of `select` as a table of `schema`, column by column."""
        ...


class Store(Hydrating, Protocol):
    """Named tables on an engine, and SELECTs over them.

    Contents (`s` tables) are permanent; changes (`u` and `d` tables) are for one step.
    """

    def batch_sizing(self) -> BatchSizing:
        """Return the initial number of times in a step, and its target duration."""
        ...

    def prepare(self, name: str, layout: Layout) -> None:
        """Create the empty table of changes `name`; the layout's rows end with t."""
        ...

    def begin(self) -> None:
        """Begin a step."""
        ...

    def load(self, name: str, updates: pa.Table) -> None:
        """Set the changes `name` to `updates`."""
        ...

    def fill(self, name: str, select: str) -> bool:
        """Set the changes `name` to the result of `select`; return whether there are any."""
        ...

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents, and consolidate the entries now and then."""
        ...

    def let_go(self, contents: str, closed: Closed) -> None:
        """Drop the closed rows of contents when they are consolidated."""
        ...

    def clear(self, changed: Sequence[str]) -> None:
        """Empty the tables of changes `changed`."""
        ...

    def commit(self) -> None:
        """End the step and keep its result."""
        ...

    def rollback(self) -> None:
        """Undo the step."""
        ...

    def close(self) -> None:
        """Drop everything."""
        ...


class TickDataflow(WindowedDataflow):
    """A dataflow over a store; see `foreshore.compute.engine.Dataflow`."""

    def __init__(self, plan: TickPlan, store: Store, as_of: int) -> None:
        assert 1 <= len(plan.outputs) <= 2, "rows, and perhaps errors"
        self._plan = plan
        self._store = store
        self._as_of = as_of
        self._needs = [tables_of(trace.body, plan.traces) for trace in plan.traces]
        self._output_needs = [tables_of(output, plan.traces) for output in plan.outputs]
        self._statements: dict[tuple[str, int, frozenset[str]], str | None] = {}
        self.batch_sizing = store.batch_sizing() if _multiplies(plan) else None
        self._greatest = Greatest(plan.watermarks)
        self._empty = TableOutput(_no_updates(plan.outputs[0]), _no_errors())

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the dataflow's as_of."""
        plan, store = self._plan, self._hydrating
        sources = store.sources(inputs, plan.inputs, self._as_of)
        for trace in plan.traces:
            renderer = self._renderer(sources)
            self._hold(trace, layout_of(trace, store, timed=False), renderer.contents(trace))
        outputs = []
        for output in plan.outputs:
            renderer = self._renderer(sources)
            rows = store.read(renderer.consolidated(output), result_schema(columns_of(output)))
            outputs.append(_at(rows, self._as_of))
        store.release()
        for trace in plan.traces:
            if not trace.kept:
                store.forget(state_table(trace))
        self._prepare()
        return TableOutput(outputs[0], outputs[1] if len(outputs) > 1 else _no_errors())

    @property
    def _hydrating(self) -> Hydrating:
        return self._store

    def _hold(self, trace: Trace, layout: Layout, select: str) -> None:
        self._store.hold(state_table(trace), layout, select)

    def _prepare(self) -> None:
        """Create the tables of changes."""
        store = self._store
        for trace in self._plan.traces:
            if trace.leaf is None:
                store.prepare(change_table(trace), layout_of(trace, store, timed=True))
        for id, columns in self._plan.inputs.items():
            store.prepare(input_table(id), row_layout(columns, store.dialect, timed=True))

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper) and advance to `upper`."""
        loaded = {
            id: delta
            for id, delta in deltas.items()
            if id in self._plan.inputs and delta.num_rows > 0
        }
        if not loaded:
            return self._empty
        for id, delta in loaded.items():
            _check_window(id, delta, lower, upper)
        self._store.begin()
        try:
            output, changed = self._run(loaded)
            self._store.clear(changed)
        except BaseException:
            self._store.rollback()
            raise
        self._store.commit()
        return output

    def close(self) -> None:
        """Free the dataflow's resources."""
        self._store.close()

    def _renderer(self, sources: Mapping[GlobalId, str]) -> TraceRenderer:
        store = self._hydrating
        return TraceRenderer(
            store.dialect, store.idioms, sources, self._plan.traces, (), store.constant
        )

    def _run(self, loaded: Mapping[GlobalId, pa.Table]) -> tuple[Output, list[str]]:
        plan, store = self._plan, self._store
        changed: list[str] = []
        for id, delta in loaded.items():
            store.load(input_table(id), delta)
            changed.append(input_table(id))
        for trace in plan.traces:
            if trace.leaf is None and self._fill(trace, changed):
                changed.append(change_table(trace))
        outputs = []
        for i, output in enumerate(plan.outputs):
            select = self._statement("output", i, self._output_needs[i], changed)
            outputs.append(
                _no_updates(output)
                if select is None
                else store.read(select, output_schema(columns_of(output)))
            )
        for trace in plan.traces:
            if trace.kept and change_table(trace) in changed:
                store.absorb(state_table(trace), change_table(trace))
        self._let_go(loaded)
        return TableOutput(outputs[0], outputs[1] if len(outputs) > 1 else _no_errors()), changed

    def _let_go(self, loaded: Mapping[GlobalId, pa.Table]) -> None:
        """Let the store drop rows whose windows the watermarks have closed."""
        if not self._plan.closing:
            return
        self._greatest.follow(loaded)
        for each in self._plan.closing:
            through = self._greatest.through(each.marks)
            if through is not None:
                name = state_table(self._plan.traces[each.trace])
                self._store.let_go(name, Closed(each.column, each.type, through))

    def _fill(self, trace: Trace, changed: Sequence[str]) -> bool:
        """Compute the changes of a trace; return whether there are any."""
        select = self._statement("trace", trace.number, self._needs[trace.number], changed)
        return select is not None and self._store.fill(change_table(trace), select)

    def _statement(
        self, kind: str, number: int, needs: frozenset[str], changed: Sequence[str]
    ) -> str | None:
        """Return the statement for the changes of a trace or an output, None if unchanged."""
        relevant = needs.intersection(changed)
        if not relevant:
            return None
        case = (kind, number, relevant)
        if case not in self._statements:
            self._statements[case] = self._rendered(self._store, kind, number, relevant)
        return self._statements[case]

    def _rendered(
        self, by: Language, kind: str, number: int, changed: frozenset[str]
    ) -> str | None:
        renderer = ChangeRenderer(by.dialect, by.idioms, self._plan.traces, changed)
        if kind == "trace":
            return renderer.trace_changes(self._plan.traces[number])
        return renderer.changes(self._plan.outputs[number])


def _multiplies(plan: TickPlan) -> bool:
    """Whether a step examines rows more than once if its window has several times."""
    return any(
        isinstance(node, Join)
        or (
            isinstance(node, Reduce | TopK | Window | Threshold)
            and isinstance(node.input, LocalGet)
            and plan.traces[node.input.number].sums is None
        )
        for relation in (*(trace.body for trace in plan.traces), *plan.outputs)
        for node in walk_relations(relation)
    )


def tables_of(relation: Relation, traces: Sequence[Trace]) -> frozenset[str]:
    """Return the tables of changes on which the changes of `relation` directly depend."""
    tables = set()
    for node in walk_relations(relation):
        if isinstance(node, Get):
            tables.add(input_table(node.id))
        elif isinstance(node, LocalGet):
            tables.add(change_table(traces[node.number]))
    return frozenset(tables)


def layout_of(trace: Trace, by: Language, *, timed: bool) -> Layout:
    """Return the layout of a trace's contents, or of its changes if `timed`."""
    rows = row_layout(trace.columns, by.dialect, timed=timed)
    if trace.sums is None:
        return rows
    types = accumulators(trace.sums, by.idioms)
    return replace(rows, sums=tuple((f"a{i}", type) for i, type in enumerate(types)))


def _check_window(id: GlobalId, delta: pa.Table, lower: int, upper: int) -> None:
    bounds = pc.min_max(delta[TIME])
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    assert lower <= least <= greatest < upper, (
        f"updates of {id} at {least} to {greatest} in a window [{lower}, {upper})"
    )


def _at(rows: pa.Table, time: int) -> pa.Table:
    """Return rows with multiplicities as updates at `time`."""
    times = pa.chunked_array([pa.array([time] * rows.num_rows, pa.int64())])
    return rows.add_column(rows.schema.get_field_index(DIFF), TIME_FIELD, times)


def _no_updates(output: Relation) -> pa.Table:
    return output_schema(columns_of(output)).empty_table()


def _no_errors() -> pa.Table:
    return output_schema(ERRORS).empty_table()
