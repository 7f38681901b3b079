"""The operators of a dataflow as text, for EXPLAIN PHYSICAL PLAN.

There is one paragraph for each operator, in the order of a step: its inputs, the parts of the plan
that it computes, and the arrangements that it keeps. Nothing is maintained, so no kernel is run.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.build_reduce import KINDS, kind_of_aggregate
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.join_plan import plans_of
from foreshore.compute.flow.linear_chain import linear_chain
from foreshore.compute.flow.operators import fixpoint
from foreshore.compute.flow.operators.closing import Closing
from foreshore.compute.flow.operators.exchange import Broadcast, Exchange
from foreshore.compute.flow.operators.fixpoint import Fixpoint
from foreshore.compute.flow.operators.flat_map import FlatMap
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.loop import ANEW_LEAST, ANEW_SHARE, Loop, LoopValue
from foreshore.compute.flow.operators.operator import Constant, Linear, Operator, Source, Union
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.operators.spread_join import SpreadJoin
from foreshore.compute.flow.operators.temporal import TemporalFilter
from foreshore.compute.flow.operators.topk import Threshold, TopK
from foreshore.compute.flow.operators.window import WHOLE_LEAST, WHOLE_SHARE, WindowFunctions
from foreshore.compute.flow.peers import NoPeers, can_be_shared
from foreshore.compute.flow.reach import Reach
from foreshore.expr import ir
from foreshore.expr.column_names import NamedColumns, with_names
from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_many_forms
from foreshore.expr.explain import (
    NameOf,
    explain_aggregate,
    explain_operator,
    explain_order,
    explain_relation,
    explain_scalar,
)
from foreshore.ids import GlobalId


def describe_operators(
    relation: ir.Relation,
    name_of: NameOf = str,
    workers: int = 1,
    columns: NamedColumns | None = None,
) -> str:
    """Return the operators that maintain `relation`; raises Unsupported."""
    builder = _builder(relation, workers)
    rows, errors = builder.output(relation)
    description = _Description(builder, name_of, columns)
    lines = [*description.lines((rows,))]
    if workers > 1:
        lines.insert(0, f"Workers: {workers if builder.context.peers else f'one of {workers}'}")
    if errors.can_fail:
        failing = builder.failing
        lines.append(f"Errors: {_operators(failing)}" if failing else "Errors: constant")
    return "\n".join(lines)


def operator_titles(
    relation: ir.Relation,
    name_of: NameOf = str,
    workers: int = 1,
    columns: NamedColumns | None = None,
) -> list[str]:
    """Return a title for each operator that maintains `relation`; raises Unsupported."""
    builder = _builder(relation, workers)
    builder.output(relation)
    return _Description(builder, name_of, columns).titles()


def _builder(relation: ir.Relation, workers: int) -> Builder:
    peers = NoPeers(workers) if workers > 1 and can_be_shared(relation) else None
    return Builder(Collections(_Numbers(), 0), 0, peers)


class _Numbers(Interner):
    """An interner without kernels, which gives numbers but keeps no strings."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[object, int] = {None: 0}

    def numbers(self, column: pa.Array) -> Ints:
        """Return the numbers of a column of strings, 0 for NULL."""
        values = column.to_pylist()
        return np.array([self._given.setdefault(v, len(self._given)) for v in values], np.int64)


class _Description:
    def __init__(
        self,
        builder: Builder,
        name_of: NameOf,
        columns: NamedColumns | None = None,
        *,
        is_ranked: bool = False,
    ) -> None:
        self._columns = columns
        self._is_ranked = is_ranked  # rows are distinct by their ranks
        self._operators = builder.operators
        self._sources = {number: id for id, number in builder.sources.items()}
        self._numbers = builder.built
        self._name_of = name_of
        self._loops = {each.number: each for each in builder.loops.values()}
        self._relations: dict[int, ir.Relation] = {}
        for relation, number in builder.built.items():
            if not isinstance(relation, ir.Let | ir.LocalGet):
                self._relations.setdefault(number, relation)

    def lines(self, results: Sequence[int]) -> Iterator[str]:
        """Yield the lines of all operators, and which give the results."""
        for number, operator in enumerate(self._operators):
            title, details = self._named_operator(number, operator)
            yield f"Operator {number}: {title}"
            yield from (f"  {line}" for line in details)
        yield f"Rows: {_operators(results)}"

    def titles(self) -> list[str]:
        """Return the title of each operator, with what it keeps in few words."""
        found = []
        for number, operator in enumerate(self._operators):
            title, details = self._named_operator(number, operator)
            if isinstance(operator, Linear) and details:
                title = f"{title}: {'; '.join(line.strip() for line in details)}"
            found.append(title)
        return found

    def _named_operator(self, number: int, operator: Operator) -> tuple[str, Sequence[str]]:
        """Return the title of an operator and its details, with columns by their names."""
        title, details = self._operator(number, operator)
        relation = self._relations.get(number)
        if isinstance(operator, Linear | Join | Loop | Fixpoint | LoopValue) or relation is None:
            return title, details
        return self._named(relation, title), [self._named(relation, each) for each in details]

    def _named(self, relation: ir.Relation, text: str) -> str:
        """Return a text with names in place of the positions of columns that `relation` reads."""
        return text if self._columns is None else self._columns.named(relation, text)

    def _chain(self, relation: ir.Relation | None) -> list[str]:
        """Return lines of Map, Filter, Project and Negate on top of a relation, the first first."""
        assert relation is not None
        chain, _ = linear_chain(relation)
        return [self._named(node, explain_operator(node)) for node in chain]

    def _operator(self, number: int, operator: Operator) -> tuple[str, Sequence[str]]:
        """Return the title of an operator, and its details."""
        relation = self._relations.get(number)
        on = f"on {_operators(operator.inputs)}"
        match operator, relation:
            case Source() as source, _:
                id = self._sources[number]
                names = () if self._columns is None else self._columns.of(id)
                return f"Get {self._name_of(id)}{with_names(_picked(source), names)}", ()
            case Constant(), None:
                return "Constant", ()
            case Constant(), _:
                return "Constant", [line.strip() for line in _lines(relation)[1:]]
            case Linear(can_fail=True), None:
                return f"Check {on}", ()
            case Linear(), None:
                return f"Layout {on}", ()
            case Linear(), _ if isinstance(self._operators[operator.inputs[0]], Closing):
                return f"Linear {on}", self._chain(relation)[1:]
            case Linear(), _:
                return f"Linear {on}", self._chain(relation)
            case Exchange() as exchange, _:
                return f"Exchange {on} by ({_list(map(explain_scalar, exchange.by))})", ()
            case Broadcast(), _:
                return f"Exchange {on} to all workers", ()
            case Reduce(), None:
                return f"Reduce {on}, at each worker", ("Arrangement: first and last rows",)
            case Union(), _:
                return f"Union of {_operators(operator.inputs)}", ()
            case Join() as join, _:
                return self._join(join, relation)
            case Reduce(), ir.Reduce() as reduce:
                title, kept = _reduce(reduce, on, monotonic=operator.is_monotonic)
                return title, () if self._is_ranked else kept
            case TopK(), ir.TopK() as top_k:
                group = _list(f"#{i}" for i in top_k.group_key)
                order = explain_order(top_k.order_key) or "all columns"
                kept = f"Arrangement: ordered rows by ({group}), in order of {order}"
                if operator.kept is not None:
                    kept += f": the first {operator.kept} of each group, as the input is monotonic"
                return f"{explain_operator(top_k)} {on}", (kept,)
            case WindowFunctions() as operator, ir.Window() as window:
                group = _list(f"#{i}" for i in window.partition)
                order = explain_order(window.order_key) or "all columns"
                lines = [f"Arrangement: ordered rows by ({group}), in order of {order}"]
                if operator.has_totals:
                    lines.append(f"Arrangement: sums by ({group})")
                if operator.has_peer_groups:
                    lines.append(f"Arrangement: counts of peers by ({group})")
                return f"{explain_operator(window)} {on}", (*lines, _reached(operator.reach))
            case Threshold(), _:
                return f"Threshold {on}", ("Arrangement: counts of rows",)
            case Loop() as loop, _:
                return self._loop(number, on, loop)
            case Fixpoint(), _:
                return self._fixpoint(number, on)
            case LoopValue(), _:
                return f"Value {operator.place + 1} of recursion {on}", ()
            case TemporalFilter(), _ if relation is not None:
                return f"{explain_operator(relation)} {on}", ("Arrangement: scheduled rows",)
            case Closing() as closing, ir.Filter(predicates=predicates):
                shown = " AND ".join(map(explain_scalar, predicates))
                kept = ["Arrangement: rows that wait, in the order of when they are final"]
                freed = [each for each in map(self._number_of, closing.frees) if each is not None]
                if freed:
                    kept.append(f"Forgets closed groups of {_operators(freed)}")
                if len(freed) < len(closing.frees):
                    kept.append("Forgets closed rows that joins look up")
                return f"Closing {on}: {shown}", kept
            case FlatMap(), _ if relation is not None:
                return f"{explain_operator(relation)} {on}", ()
        raise AssertionError(operator)

    def _number_of(self, operator: object) -> int | None:
        numbers = (i for i, each in enumerate(self._operators) if each is operator)
        return next(numbers, None)

    def _loop(self, number: int, on: str, loop: Loop) -> tuple[str, Sequence[str]]:
        """Return the title of a recursion, and the operators of one of its iterations."""
        title, lines = self._recursion(number, on, is_ranked=False)
        if loop.may_be_anew:
            lines += [
                "Arrangement: rows of the inputs and of the values",
                f"Computed anew: if {ANEW_LEAST:,} rows change or more, at one time, that are"
                f" 1/{ANEW_SHARE} of the inputs' rows or more",
            ]
        return title, lines

    def _fixpoint(self, number: int, on: str) -> tuple[str, Sequence[str]]:
        """Return the title of a recursion by ranks, and its operators."""
        title, lines = self._recursion(number, on, is_ranked=True)
        return title, [
            *lines,
            "Arrangement: ranks of rows, with counts of what they follow from by rank",
            f"Computed anew: if {ANEW_LEAST:,} rows change or more, at one time, and take"
            f" 1/{fixpoint.ANEW_SHARE} of the work",
        ]

    def _recursion(self, number: int, on: str, *, is_ranked: bool) -> tuple[str, list[str]]:
        built = self._loops[number]
        outside = {get.id: self._built(relation) for relation, get in built.outside.items()}

        def name_of(id: GlobalId) -> str:
            if id in built.previous:
                return f"value {built.previous.index(id) + 1} of the iteration before"
            return outside.get(id) or self._name_of(id)

        inner = _Description(built.inner, name_of, self._columns, is_ranked=is_ranked)
        kind = " by ranks" if is_ranked else ""
        title = f"Recursion{kind} {on}, at most {built.limit} iterations"
        return title, [*inner.lines(built.results)]

    def _built(self, relation: ir.Relation) -> str:
        return f"operator {self._numbers[relation]}"

    def _join(self, operator: Join, relation: ir.Relation | None) -> tuple[str, Sequence[str]]:
        assert relation is not None
        inputs = operator.inputs
        _, join = linear_chain(relation)
        assert isinstance(join, ir.Join)
        title = f"Delta join of {_operators(inputs)}"
        if join.equivalences:
            title += f" {explain_operator(join).partition(' ')[2]}"
        arrangements: dict[tuple[int, str], None] = {}
        paths = []
        for start, path in enumerate(plans_of(join)):
            looked_up = []
            numbers = [number for _, number in operator.look_ups(start)]
            for (input, keys), number in zip(path, numbers, strict=True):
                key = _list(explain_scalar(inner.scalar) for _, inner in keys)
                outer = _list(explain_scalar(outer.scalar) for outer, _ in keys)
                arrangements.setdefault((input, key))
                by = f" by ({key}) = ({outer})" if keys else ", all of it"
                if isinstance(operator, SpreadJoin):
                    by += " at all workers" if number else " at its owner"
                looked_up.append(f"operator {inputs[input]}{by}")
            if looked_up:
                paths.append(
                    f"Changes of operator {inputs[start]}: look up {', then '.join(looked_up)}"
                )
        kept = [
            f"Arrangement: rows of {self._arranged(operator, join, input)} by ({key})"
            for input, key in sorted(arrangements)
        ]
        named = [self._named(join, each) for each in (*kept, *paths)]
        return self._named(join, title), (*named, *self._chain(relation))

    def _arranged(self, operator: Join, join: ir.Join, input: int) -> str:
        """Return of what an input's look-ups find rows."""
        _, base = linear_chain(join.inputs[input])
        if operator.is_shared(input) and isinstance(base, ir.Get):
            return f"{self._name_of(base.id)}, shared,"
        return f"operator {operator.inputs[input]}"


def _reduce(reduce: ir.Reduce, on: str, *, monotonic: bool) -> tuple[str, Sequence[str]]:
    key = _list(map(explain_scalar, reduce.group_key))
    least = [explain_scalar(s) for s in reduce.group_key if has_many_forms(type_of(s))]
    shown = [f"Arrangement: ordered rows by ({key}): equal values of {each}" for each in least]
    if not reduce.aggregates:
        return f"Distinct {on} by ({key})", (f"Arrangement: counts by ({key})", *shown)
    lines = []
    for kind, kept in KINDS.items():
        made = [a for a in reduce.aggregates if kind_of_aggregate(a) == kind]
        if made or kind == "sums":
            functions = ", ".join(map(explain_aggregate, made)) or "rows"
            if kind == "extreme" and monotonic:
                kept = "first and last rows, as the input is monotonic,"
            lines.append(f"Arrangement: {kept} by ({key}): {functions}")
    return f"Reduce {on} by ({key})", (*lines, *shown)


def _reached(reach: Reach | None) -> str:
    """Return which rows are read for a change of a partition."""
    if reach is None:
        return "Changes: read the partition"
    if reach.known:
        return "Changes: read up to the next known values before and after"
    first = "the first peer" if reach.peers else "the changed row"
    if reach.to_end:
        after = f", and {2 * reach.rows} rows before" if reach.rows else ""
        return f"Changes: read from {first} on{after}"
    return (
        f"Changes: read {2 * reach.rows} rows before and after; {WHOLE_LEAST:,} changes or more:"
        f" the partitions, if 1/{WHOLE_SHARE} of their rows or more are between changes"
    )


def _lines(relation: ir.Relation | None) -> list[str]:
    assert relation is not None
    return explain_relation(relation).splitlines()


def _picked(source: Source) -> str:
    if len(source.picked) == len(source.columns):
        return ""
    return f" ({_list(f'#{i}' for i in source.picked)})"


def _operators(numbers: Sequence[int]) -> str:
    word = "operator" if len(numbers) == 1 else "operators"
    return f"{word} {_list(map(str, numbers))}"


def _list(parts: Iterable[str]) -> str:
    return ", ".join(parts)
