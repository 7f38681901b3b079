"""From a recursion of a plan to its iterations.

What does not read the recursion's values is computed once, outside of it. Only collections, perhaps
filtered and mapped, are read by each iteration: they are shared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foreshore.compute.flow.contents import Contents
from foreshore.compute.flow.errors import ERROR_LAYOUT, Port, may_be_negative
from foreshore.compute.flow.iteration import Iteration
from foreshore.compute.flow.layout import Layout, layout_of
from foreshore.compute.flow.linear_chain import linear_chain
from foreshore.compute.flow.operators.fixpoint import Fixpoint
from foreshore.compute.flow.operators.loop import Loop, LoopValue
from foreshore.compute.flow.operators.operator import Linear, Source
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.ranks import Ranks
from foreshore.compute.flow.round import Round, is_linear
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.recursion import MOST_ROUNDS
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder


@dataclass(frozen=True, slots=True)
class BuiltLoop:
    """What was built of a recursion: its operator's number, and the parts outside of it.

    `inner` has the operators of an iteration, of which `results` give the values.
    """

    number: int
    outside: Mapping[ir.Relation, ir.Get]
    inner: "Builder"
    previous: Sequence[GlobalId]
    results: Sequence[int]
    limit: int


def build_loop(builder: "Builder", loop: ir.LetRec) -> BuiltLoop:
    """Build a recursion; its LocalGets are then known to `builder`."""
    return _LoopBuilder(builder, loop).build()


@dataclass(slots=True)
class _LoopBuilder:
    outer: "Builder"
    loop: ir.LetRec
    outside: dict[ir.Relation, ir.Get] = field(default_factory=dict)
    varying: dict[ir.Relation, bool] = field(default_factory=dict)
    bound: dict[int, ir.Relation] = field(default_factory=dict)  # by the Lets of the values
    # What stands for a part: by that and its place, and with the Lets put in.
    done: dict[tuple[ir.Relation, int], ir.Relation] = field(default_factory=dict)
    whole: dict[ir.Relation, ir.Relation] = field(default_factory=dict)

    def build(self) -> BuiltLoop:
        outer, loop = self.outer, self.loop
        negative = {**outer.negative, **dict.fromkeys(loop.numbers, False)}
        signed = any(may_be_negative(value, dict(negative)) for value in loop.values)
        previous = [GlobalId(f"p{number}") for number in loop.numbers]
        values = [self.over(value, place) for place, value in enumerate(loop.values)]
        inner = outer.within(self._picked(values), previous)
        for number, value in zip(loop.numbers, values, strict=True):
            inner.bind(number, value)
        layouts = [layout_of(columns) for columns in loop.columns]
        results = [
            inner.in_layout(inner.node(value), layout)
            for value, layout in zip(values, layouts, strict=True)
        ]
        given = [id for id in inner.sources if id not in previous]
        limit = loop.limit or MOST_ROUNDS
        port = outer.port_of(loop, Port(signed=False))
        inputs = [self._input(inner, id) for id in given]
        operator: Loop | Fixpoint | None = None
        if len(values) == 1:
            operator = self._fixpoint(inner, values[0], results[0], inputs, given, limit, port)
        if operator is None:
            fresh = Iteration(
                inner.operators,
                {number: id for id, number in inner.sources.items()},
                results,
                inner.errors_of(values),
                inner.context,
            )
            operator = Loop(
                inputs, given, previous, layouts, fresh,
                self._unsettled(previous) if loop.fails else None,
                limit, port, self._contents(inputs, layouts), outer.context,
            )  # fmt: skip
        made = outer.add(outer.context.own(operator))
        for place, (number, layout) in enumerate(zip(loop.numbers, layouts, strict=True)):
            get = ir.Get(GlobalId(f"v{number}"), loop.columns[place])
            outer.built_as(get, outer.add(LoopValue(made, operator, place, layout)))
            outer.bind(number, get, negative=signed)
        return BuiltLoop(made, self.outside, inner, previous, results, limit)

    def _fixpoint(
        self,
        inner: "Builder",
        value: ir.Relation,
        result: int,
        inputs: Sequence[int],
        given: Sequence[GlobalId],
        limit: int,
        port: int,
    ) -> Fixpoint | None:
        """Return the recursion by the ranks of its rows, None if rounds do more than add rows."""
        if not isinstance(value, ir.Reduce):
            return None
        if any(may_be_negative(each, {}) for each in (value.input, *self.outside)):
            return None
        last: list[Linear] = []
        distinct = inner.operators[result]
        while isinstance(distinct, Linear):
            last.insert(0, distinct)
            distinct = inner.operators[distinct.inputs[0]]
        source = inner.sources.get(GlobalId(f"p{self.loop.numbers[0]}"))
        if not isinstance(distinct, Reduce) or not distinct.is_distinct or source is None:
            return None
        operators = inner.operators[: inner.operators.index(distinct)]
        if not is_linear(operators, source, distinct):
            return None
        sources = {number: id for id, number in inner.sources.items()}
        return Fixpoint(
            inputs, given, inner.operators[result].layout,
            Round(operators, sources, source, distinct, last),
            last, Ranks(distinct.key.words, limit, inner.context.seed),
            inner.errors_of((value,)), limit, port, self.outer.context, inner.context,
            fails=self.loop.fails,
        )  # fmt: skip

    def _contents(self, inputs: Sequence[int], values: Sequence[Layout]) -> Contents | None:
        """Return what is kept to compute the values anew, None if that may not be."""
        given = [self.outer.operators[number].layout for number in inputs]
        layouts = [*given, *values, ERROR_LAYOUT]
        if not inputs or not all(layout.words for layout in layouts):
            return None
        return Contents(layouts, self.outer.context)

    def _input(self, inner: "Builder", id: GlobalId) -> int:
        """Return the outer operator of a collection that iterations read."""
        for relation, get in self.outside.items():
            if get.id == id:
                return self.outer.in_layout(self.outer.node(relation), layout_of(get.columns))
        source = inner.operators[inner.sources[id]]
        assert isinstance(source, Source)
        return self.outer.node(ir.Get(id, source.columns))

    def _picked(self, values: Sequence[ir.Relation]) -> Mapping[GlobalId, tuple[int, ...]]:
        """Return the columns that are read of each collection: all of those of the recursion."""
        found = dict(self.outer.picked)
        seen: set[ir.Relation] = set()
        rest = list(values)
        while rest:
            node = rest.pop()
            if node not in seen:
                seen.add(node)
                rest.extend(inputs_of(node))
                if isinstance(node, ir.Get) and node.id not in found:
                    found[node.id] = tuple(range(len(node.columns)))
        return found

    # --- values over collections

    def over(self, node: ir.Relation, place: int) -> ir.Relation:
        """Return the value at `place`, or a part of it, over collections and earlier values.

        It is one object wherever the part occurs, so the time does not depend on the occurrences.
        """
        found = self.done.get((node, place))
        if found is None:
            found = self.done[node, place] = self._over(node, place)
        return found

    def _over(self, node: ir.Relation, place: int) -> ir.Relation:
        match node:
            case ir.Let(number=number, value=value, body=body):
                self._bind(number, value)
                return self.over(body, place)
            case ir.LocalGet(number=number) if number in self.bound:
                return self.over(self.bound[number], place)
            case ir.LocalGet(number=number) if number in self.loop.numbers:
                if self.loop.numbers.index(number) < place:
                    return node
                return ir.Get(GlobalId(f"p{number}"), node.columns)
        if not self.varies(node):
            return self._outside(node)
        if isinstance(node, ir.LetRec):
            raise Unsupported("a recursion within another")
        if isinstance(node, ir.TemporalFilter):
            raise Unsupported("a temporal filter within a recursion")
        return with_inputs(node, tuple(self.over(each, place) for each in inputs_of(node)))

    def _bind(self, number: int, value: ir.Relation) -> None:
        if self.bound.get(number) is not value:
            self.bound[number] = value
            for known in (self.varying, self.done, self.whole):  # parts may read what was bound
                known.clear()

    def _outside(self, node: ir.Relation) -> ir.Relation:
        """Return what stands in the recursion for a part that does not vary."""
        if isinstance(linear_chain(node)[1], ir.Get | ir.Constant):
            return node
        if isinstance(node, ir.Join) and not node.inputs:
            return node
        relation = self._inlined(node)
        found = self.outside.get(relation)
        if found is None:
            id = GlobalId(f"x{self.loop.numbers[0]}.{len(self.outside)}")
            found = self.outside[relation] = ir.Get(id, columns_of(relation))
        return found

    def _inlined(self, node: ir.Relation) -> ir.Relation:
        """Return a part with the Lets of the recursion's values put in."""
        found = self.whole.get(node)
        if found is None:
            if isinstance(node, ir.Let):
                self._bind(node.number, node.value)
                found = self._inlined(node.body)
            elif isinstance(node, ir.LocalGet) and node.number in self.bound:
                found = self._inlined(self.bound[node.number])
            else:
                inputs = tuple(map(self._inlined, inputs_of(node)))
                found = with_inputs(node, inputs) if inputs else node
            self.whole[node] = found
        return found

    def varies(self, node: ir.Relation) -> bool:
        """Whether a part reads a value of the recursion."""
        found = self.varying.get(node)
        if found is None:
            found = self.varying[node] = any(self._read(node))
        return found

    def _read(self, node: ir.Relation) -> Iterator[bool]:
        if isinstance(node, ir.LocalGet):
            if node.number in self.bound:
                yield self.varies(self.bound[node.number])
            yield node.number in self.loop.numbers
        for each in inputs_of(node):
            yield self.varies(each)

    # --- the limit

    def _unsettled(self, previous: list[GlobalId]) -> Iteration:
        """Return the operators of the rows in which two rounds differ."""
        differing: list[ir.Relation] = []
        for id, columns in zip(previous, self.loop.columns, strict=True):
            a, b = (ir.Get(GlobalId(f"{id}{which}"), columns) for which in "ab")
            for one, other in ((a, b), (b, a)):
                differing.append(ir.Threshold(ir.Union((one, ir.Negate(other)))))
        inner = self.outer.within(self._picked(differing), ())
        results = [inner.node(each) for each in differing]
        return Iteration(
            inner.operators,
            {number: id for id, number in inner.sources.items()},
            results,
            inner.errors_of(differing),
            inner.context,
        )
