"""Differentiation: from the plan of a view to the plan of its changes.

The changes of a view depend on the changes of its inputs and on the contents of some intermediate
collections: the inputs of joins and of grouping operators. Each of these becomes a *trace*, a
maintained collection. A dataflow's plan is the list of its traces, in dependency order, and of its
outputs. In all of them, joins and grouping operators are directly over traces (`LocalGet` of their
numbers), and everything else is linear. `compute/delta/changes.py` renders the changes; rendering
the same relations in bulk gives the contents at a time.

A trace may have several uses:

- the input of a join, or of a grouping operator that needs rows (*rows*);
- the sums that an accumulable reduction needs, by group, in place of its input's rows
  (*accumulators*);
- a shared intermediate result: computed once in each window, kept only if a join needs it.

Equal relations become one trace, so two joins on the same input share it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from foreshore.compute.delta.closed import ClosingColumn, closing_columns, watermark_columns
from foreshore.compute.render.frame import is_accumulable
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.traversal import inputs_of, walk_relations, with_inputs
from foreshore.ids import GlobalId
from foreshore.types import ColumnType


@dataclass(slots=True)
class Trace:
    """A collection from which others are computed.

    `body` defines its contents. For accumulators it is the input of the reduction `sums`, whose
    keys and arguments are columns of it; the contents are the keys with the sums.
    """

    number: int
    body: Relation
    sums: Reduce | None = None
    kept: bool = False  # its contents from before a window are needed in the window

    @property
    def columns(self) -> tuple[ColumnType, ...]:
        """Return the columns of its rows; of accumulators only those of the key."""
        if self.sums is None:
            return columns_of(self.body)
        return columns_of(self.sums)[: len(self.sums.group_key)]

    @property
    def leaf(self) -> GlobalId | None:
        """Return the input whose complete contents it is, None if it is not one."""
        return self.body.id if isinstance(self.body, Get) and self.sums is None else None


@dataclass(frozen=True, slots=True)
class TickPlan:
    """Traces in dependency order, and the outputs over them."""

    inputs: Mapping[GlobalId, tuple[ColumnType, ...]]
    traces: tuple[Trace, ...]
    outputs: tuple[Relation, ...]
    closing: tuple[ClosingColumn, ...] = ()  # of the traces whose rows close
    watermarks: Mapping[GlobalId, int] = field(default_factory=dict)  # their columns, by inputs


def differentiate(relations: Sequence[Relation], view: Relation | None = None) -> TickPlan:
    """Return the plan of the changes of several relations, sharing common traces.

    They are those of a `view` that may emit on window close.
    """
    builder = _Builder()
    outputs = tuple(builder.flat(relation, {}) for relation in relations)
    sharing = _Sharing(builder.traces, outputs)
    traces, outputs = tuple(sharing.traces), sharing.outputs
    if view is None:
        return TickPlan(builder.inputs, traces, outputs)
    closing = closing_columns(view, traces, outputs, _kept)
    return TickPlan(builder.inputs, traces, outputs, closing, watermark_columns(view))


def _kept(relation: Relation) -> list[Relation]:
    """Return the bodies of the traces that a relation needs from before a window."""
    return [trace.body for trace in differentiate((relation,)).traces if trace.kept]


@dataclass(slots=True)
class _Builder:
    inputs: dict[GlobalId, tuple[ColumnType, ...]] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    _numbers: dict[tuple[Relation, Reduce | None], int] = field(default_factory=dict)

    def flat(self, relation: Relation, bound: Mapping[int, Relation]) -> Relation:
        """Return `relation` over traces; `bound` maps its LocalGets."""
        match relation:
            case Constant():
                return relation
            case Get(id=id, columns=columns, watermark=watermark):
                self.inputs.setdefault(id, columns)
                return Get(id, columns, watermark=watermark)
            case LocalGet(number=number):
                return bound[number]
            case Let(number=number, value=value, body=body):
                flat = self.flat(value, bound)
                if not isinstance(flat, Get | LocalGet | Constant):
                    flat = self._get(self._trace(flat))
                return self.flat(body, {**bound, number: flat})
            case Map() | Filter() | Project() | FlatMap() | Negate() | Union():
                inputs = tuple(self.flat(input, bound) for input in inputs_of(relation))
                return with_inputs(relation, inputs)
            case Join(inputs=inputs):
                kept = tuple(self._keep(self.flat(input, bound)) for input in inputs)
                return with_inputs(relation, kept)
            case TopK(input=input) | Window(input=input) | Threshold(input=input):
                return with_inputs(relation, (self._keep(self.flat(input, bound)),))
            case Reduce(input=input):
                return self._reduce(relation, self.flat(input, bound))
            case TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError("a bound form in a lowered plan")
            case _:
                assert_never(relation)

    def _trace(self, body: Relation, sums: Reduce | None = None) -> Trace:
        """Return the trace of `body`, creating it if necessary."""
        if isinstance(body, LocalGet) and sums is None:
            return self.traces[body.number]
        number = self._numbers.setdefault((body, sums), len(self.traces))
        if number == len(self.traces):
            self.traces.append(Trace(number, body, sums))
        return self.traces[number]

    def _get(self, trace: Trace) -> LocalGet:
        return LocalGet(trace.number, trace.columns)

    def _keep(self, body: Relation) -> LocalGet:
        trace = self._trace(body)
        trace.kept = True
        return self._get(trace)

    def _reduce(self, reduce: Reduce, input: Relation) -> Reduce:
        """Return the reduction over a trace of only the scalars that it uses."""
        parts: dict[Scalar, int] = {}

        def part(scalar: Scalar) -> Column:
            column = _column(scalar)
            return Column(parts.setdefault(scalar, len(parts)), column.type, column.nullable)

        over = Reduce(
            input,
            tuple(part(key) for key in reduce.group_key),
            tuple(
                Aggregate(
                    aggregate.function,
                    tuple(part(arg) for arg in aggregate.args),
                    aggregate.type,
                    aggregate.distinct,
                    part(aggregate.filter) if aggregate.filter is not None else None,
                    tuple(
                        OrderKey(part(key.expr), key.descending, key.nulls_first)
                        for key in aggregate.order_by
                    ),
                )
                for aggregate in reduce.aggregates
            ),
        )
        width = len(columns_of(input))
        body: Relation = Map(input, tuple(parts)) if parts else input
        body = Project(body, tuple(range(width, width + len(parts))))
        if is_accumulable(over):
            trace = self._trace(body, Reduce(_hole(body), over.group_key, over.aggregates))
            trace.kept = True
            return Reduce(self._get(trace), over.group_key, over.aggregates)
        return Reduce(self._keep(body), over.group_key, over.aggregates)


class _Sharing:
    """Makes traces of joins and groups that occur several times, to compute them once."""

    def __init__(self, traces: Sequence[Trace], outputs: Sequence[Relation]) -> None:
        found = Counter(
            node
            for body in (*(trace.body for trace in traces), *outputs)
            for node in walk_relations(body)
            if isinstance(node, Join | Reduce | TopK | Window | Threshold)
        )
        self._shared = {node for node, count in found.items() if count > 1}
        self._placed: dict[Relation, int] = {}
        self._numbers: dict[int, int] = {}
        self.traces: list[Trace] = []
        for trace in traces:
            body = self._rewrite(trace.body)
            if isinstance(body, LocalGet) and trace.sums is None:
                self.traces[body.number].kept |= trace.kept
                self._numbers[trace.number] = body.number
            else:
                self._numbers[trace.number] = self._place(body, trace.sums, kept=trace.kept)
        self.outputs = tuple(map(self._rewrite, outputs))

    def _place(self, body: Relation, sums: Reduce | None = None, *, kept: bool = False) -> int:
        self.traces.append(Trace(len(self.traces), body, sums, kept))
        return len(self.traces) - 1

    def _rewrite(self, body: Relation) -> Relation:
        """Return `body` with the current numbers of the traces."""
        if isinstance(body, LocalGet):
            return LocalGet(self._numbers[body.number], body.columns)
        inputs = tuple(map(self._rewrite, inputs_of(body)))
        rewritten = with_inputs(body, inputs) if inputs else body
        if body not in self._shared:
            return rewritten
        if body not in self._placed:
            self._placed[body] = self._place(rewritten)
        return LocalGet(self._placed[body], columns_of(body))


def _hole(body: Relation) -> LocalGet:
    """Return the placeholder for a reduction's input, which is the trace's body."""
    return LocalGet(-1, columns_of(body))


def _column(scalar: Scalar) -> ColumnType:
    (column,) = columns_of(Map(Constant((), ()), (scalar,)))
    return column
