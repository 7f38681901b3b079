"""Renders changes at one time as what is there after it, minus what was there before it.

A step costs what its changes cost: each is joined with what it meets, and each group that it
touches is computed at each of its times. If the changes are about as many as the rows that are
there, computing all groups anew, before and after, costs less, and so do joins of several inputs
that have changed (`is_cheaper`). Both give the same changes.

It takes a window whose updates all have the same time, as the times between are not computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from foreshore.compute.delta.changes import (
    ChangeRenderer,
    accumulators,
    change_table,
    input_table,
    state_table,
)
from foreshore.compute.delta.differentiate import Trace
from foreshore.compute.render.aggregates import Idioms
from foreshore.compute.render.dialect import Dialect
from foreshore.compute.render.frame import Frame, types_of
from foreshore.compute.render.groups import render_reduce, render_threshold
from foreshore.compute.render.top_k import render_top_k
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

# Changes for each row that is there, from which on computing anew is cheaper.
SHARE = 0.3
# Fewer changes are computed as changes in any case, as they take little time.
LEAST_CHANGES = 10_000

_OVER_CONTENTS = (Join, Reduce, TopK, Window, Threshold)


def contents_read(relation: Relation, traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the traces of which joins and groups of `relation` read the contents."""
    found = {
        input.number: traces[input.number]
        for node in walk_relations(relation)
        if isinstance(node, _OVER_CONTENTS)
        for input in (node.inputs if isinstance(node, Join) else (node.input,))
        if isinstance(input, LocalGet)
    }
    return tuple(found.values())


def _is_local(relation: Relation) -> TypeGuard[LocalGet]:
    return isinstance(relation, LocalGet)


def is_cheaper(
    relation: Relation, traces: Sequence[Trace], rows: Mapping[str, int], changes: Mapping[str, int]
) -> bool:
    """Whether to compute `relation` anew, given the numbers of rows and changes by table.

    Of TPC-H's Q18, with 0.6 changes for each row of lineitem, it takes 0.6 of the CPU of a step.
    Joins of one changed input with others that have not changed take more: of Q3 1.6 times.
    """
    for node in walk_relations(relation):
        if isinstance(node, Join):
            tables = [change_table(traces[i.number]) for i in node.inputs if _is_local(i)]
            if sum(changes.get(table, 0) > 0 for table in tables) == 1:
                return False
    read = contents_read(relation, traces)
    changed = sum(changes.get(change_table(trace), 0) for trace in read)
    there = sum(rows.get(state_table(trace), 0) for trace in read)
    return changed >= max(LEAST_CHANGES, SHARE * there)


class AnewRenderer(ChangeRenderer):
    """Renders changes, given that only the tables `changed` are not empty and have one time."""

    def __init__(
        self, dialect: Dialect, idioms: Idioms, traces: Sequence[Trace], changed: frozenset[str]
    ) -> None:
        super().__init__(dialect, idioms, traces, changed)
        self._is_after = False

    def changes(self, relation: Relation) -> str | None:
        """Return the statement for the updates of an output, None if there are none."""
        frame = self.change(relation)
        if frame is None:
            return None
        return self.with_ctes(self.consolidate(frame, types_of(relation)))

    def trace_changes(self, trace: Trace) -> str | None:
        """Return the statement for the updates of a trace, None if there are none."""
        if trace.sums is None:
            return self.changes(trace.body)
        frame = self.change(trace.body)
        return None if frame is None else self.with_ctes(self.accumulate(trace.sums, frame))

    def change(self, relation: Relation) -> Frame | None:
        """Return the updates of `relation` as a frame with times, None if there are none."""
        tables = [table for table in map(self._changes_of, walk_relations(relation)) if table]
        if not tables:
            return None
        carry, self.carry = self.carry, ()
        try:
            self._is_after = False
            before = self.frame(relation)
            self._is_after = True
            after = self.frame(relation)
        finally:
            self.carry = carry
        time = (f"(SELECT max(t) FROM {min(tables)})",)
        gone = replace(before, carry=time, diff=f"-({before.diff})")
        return self.union([replace(after, carry=time), gone])

    def frame(self, relation: Relation) -> Frame:
        """Return a relation before or after the time.

        What is linear in changes is these after the time, and nothing before it.
        """
        match relation:
            case Constant():
                return self._nothing(relation)
            case Get() | LocalGet():
                table = self._changes_of(relation)
                if table is None or not self._is_after:
                    return self._nothing(relation)
                return self.table(table, len(columns_of(relation)))
            case Join(inputs=inputs):
                traces = [self._trace(input) for input in inputs]
                if self._unchanged(traces):
                    return self._nothing(relation)
                return self.join(relation, [self._contents(each, joined=True) for each in traces])
            case (
                Reduce(input=input)
                | TopK(input=input)
                | Window(input=input)
                | Threshold(input=input)
            ):
                trace = self._trace(input)
                if self._unchanged([trace]):
                    return self._nothing(relation)
                return self._group(relation, trace)
            case _:
                return super().frame(relation)

    def _group(self, relation: Reduce | TopK | Window | Threshold, trace: Trace) -> Frame:
        if trace.sums is not None:
            assert isinstance(relation, Reduce), relation
            sums = self._sum_up(trace, self._sums(trace))
            return self._read_off(relation, f"({sums})", ())
        rows = self._contents(trace)
        match relation:
            case Reduce():
                return render_reduce(self, relation, rows)
            case TopK():
                return render_top_k(self, relation, rows)
            case Window():
                return self.window(relation, rows)
            case Threshold():
                return render_threshold(self, relation, rows)

    def _contents(self, trace: Trace, *, joined: bool = False) -> Frame:
        """Return a trace's rows. A join multiplies entries, so those that cancel go before it."""
        state, width = state_table(trace), len(trace.columns)
        table = change_table(trace)
        if not self._is_after or table not in self.changed:
            return self.table(state, width)
        names = ", ".join([*(f"c{i}" for i in range(width)), "d"])
        both = self.nest(
            f"SELECT {names} FROM {state} UNION ALL SELECT {names} FROM {table}", width
        )
        if not joined:
            return both
        types = [column.type for column in trace.columns]
        return self.nest(self.consolidate(both, types), width)

    def _sums(self, trace: Trace) -> str:
        """Return a FROM item for the entries of a trace of sums."""
        assert trace.sums is not None
        state = state_table(trace)
        if not self._is_after:
            return state
        names = [f"c{i}" for i in range(len(trace.columns))]
        names += [f"a{i}" for i in range(len(accumulators(trace.sums, self.idioms)))]
        items = ", ".join(names)
        both = f"SELECT {items} FROM {state} UNION ALL SELECT {items} FROM {change_table(trace)}"
        return f"({both}) AS y"

    def _nothing(self, relation: Relation) -> Frame:
        columns = columns_of(relation)
        return self.nest(self.nothing(columns), len(columns))

    def _unchanged(self, traces: Sequence[Trace]) -> bool:
        return all(change_table(trace) not in self.changed for trace in traces)

    def _changes_of(self, node: Relation) -> str | None:
        """Return the table of changes of an input or a trace, None if it has not changed."""
        match node:
            case Get(id=id):
                table = input_table(id)
            case LocalGet(number=number):
                table = change_table(self.traces[number])
            case _:
                return None
        return table if table in self.changed else None
