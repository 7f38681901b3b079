"""From the plan of a view to its operators."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.build_closing import build_closing, closed_by, closed_joins
from foreshore.compute.flow.build_join import build_join
from foreshore.compute.flow.build_loop import BuiltLoop, build_loop
from foreshore.compute.flow.build_reduce import build_reduce, require_canonical
from foreshore.compute.flow.build_window import build_window
from foreshore.compute.flow.collection import Collections, Import
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.convert import words_of
from foreshore.compute.flow.errors import ErrorOutput, Port, may_be_negative
from foreshore.compute.flow.folds import with_folds
from foreshore.compute.flow.join_inputs import Lookup
from foreshore.compute.flow.layout import Layout, composed, layout_of
from foreshore.compute.flow.linear_chain import LINEAR, linear_chain
from foreshore.compute.flow.operators.exchange import Broadcast, Exchange
from foreshore.compute.flow.operators.flat_map import FlatMap
from foreshore.compute.flow.operators.operator import Constant, Linear, Operator, Source, Union
from foreshore.compute.flow.operators.temporal import TemporalFilter
from foreshore.compute.flow.operators.topk import NO_LIMIT, Threshold, TopK
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.peers import Peers
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.flow.waiting import Waiting
from foreshore.datum import to_array
from foreshore.expr import ir
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Scalar
from foreshore.expr.monotonic import is_monotonic
from foreshore.expr.recursion import is_used
from foreshore.expr.split import can_fail
from foreshore.expr.traversal import inputs_of, walk_relations
from foreshore.expr.watermarks import Closing
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import Timestamp

MOST_COUNT = 1 << 20  # of one error, which counts as often as its part occurs in the plan


class Builder:
    """Builds the operators of one dataflow, each part of the plan once."""

    def __init__(
        self, collections: Collections, as_of: Timestamp, peers: Peers | None = None
    ) -> None:
        self.operators: list[Operator] = []
        self.sources: dict[GlobalId, int] = {}
        self.imports: dict[GlobalId, Import] = {}
        self.context = Context(collections.interner, collections.seed, peers)
        self._collections = collections
        self._as_of = as_of
        self._built: dict[ir.Relation, int] = {}
        self._values: dict[int, ir.Relation] = {}  # of Lets
        self.negative: dict[int, bool] = {}
        self._ports: list[Port] = []
        self._ports_of: dict[ir.Relation, list[int]] = {}
        self._constant_errors: list[str] = []
        # The columns of each collection that are read.
        self.picked: Mapping[GlobalId, tuple[int, ...]] = {}
        self._outer: Context | None = None  # of the dataflow, if this builds iterations
        self._varying: frozenset[GlobalId] = frozenset()
        self.loops: dict[ir.Relation, BuiltLoop] = {}
        self.lookups: dict[ir.Join, list[Lookup | None]] = {}  # in the inputs of joins

    def output(
        self, relation: ir.Relation, placed_by: Sequence[int] | None = None
    ) -> tuple[int, ErrorOutput]:
        """Build a plan; return the number of the operator of its rows, and its errors.

        The rows have the layout of the plan's columns. Equal ones are with one worker, those with
        equal values in the columns `placed_by` if there are any. Raises Unsupported.
        """
        columns = columns_of(relation)
        relation = with_folds(relation)
        self.picked = columns_read(relation)
        if self.context.peers is None:
            self._import_joined(relation)
        number = self.in_layout(self.node(relation), layout_of(columns))
        return self.by_columns(number, placed_by), self.errors_of((relation,))

    def errors_of(self, relations: Sequence[ir.Relation]) -> ErrorOutput:
        """Return the errors of plans that were built."""
        counts: Counter[int] = Counter()
        known: dict[ir.Relation, Counter[int]] = {}
        for relation in relations:
            counts.update(self._port_counts(relation, known))
        counts = Counter({port: min(count, MOST_COUNT) for port, count in counts.items()})
        return ErrorOutput(self._ports, counts, self._constant_errors)

    def within(
        self, picked: Mapping[GlobalId, tuple[int, ...]], varying: Sequence[GlobalId]
    ) -> "Builder":
        """Return a builder of iterations, which read the same collections and have own errors.

        All others than the `varying` ones are the same for all iterations.
        """
        inner = Builder(self._collections, self._as_of)
        inner.context.obey(self.context)
        inner.imports, inner.picked = self.imports, picked
        inner._outer, inner._varying = self.context, frozenset(varying)
        return inner

    def owner_of(self, relation: ir.Relation) -> Context | None:
        """Return who owns what is kept of a relation, if all iterations share it."""
        fixed = isinstance(relation, ir.Get) and relation.id not in self._varying
        return self._outer if fixed else None

    def bind(self, number: int, value: ir.Relation, *, negative: bool = False) -> None:
        """Let `LocalGet(number)` stand for a value."""
        self._values[number] = value
        self.negative[number] = negative

    def built_as(self, relation: ir.Relation, number: int) -> None:
        """Note that an operator computes a relation."""
        self._built[relation] = number

    @property
    def built(self) -> Mapping[ir.Relation, int]:
        """Return the operators' numbers by the parts of the plan that they compute."""
        return self._built

    @property
    def failing(self) -> tuple[int, ...]:
        """Return the numbers of the operators that note errors, in order."""
        numbers = {relation: loop.number for relation, loop in self.loops.items()}
        built = {**self._built, **numbers}
        return tuple(sorted({built[relation] for relation in self._ports_of}))

    def _import_joined(self, relation: ir.Relation) -> None:
        """Import the collections that are inputs of joins, perhaps filtered and mapped."""
        for base in collections_joined(relation):
            if base.id not in self.imports:
                self.imports[base.id] = self._collections.open(
                    base.id, base.columns, self.picked[base.id], self._as_of
                )

    def import_of(self, relation: ir.Relation) -> Import | None:
        """Return what is imported of a collection, None if nothing is."""
        return self.imports.get(relation.id) if isinstance(relation, ir.Get) else None

    def node(self, relation: ir.Relation) -> int:
        """Return the number of the operator of `relation`, built if need be."""
        found = self._built.get(relation)
        if found is None:
            found = self._built[relation] = self._node(relation)
        return found

    def add(self, operator: Operator) -> int:
        """Add an operator; return its number."""
        self.operators.append(operator)
        return len(self.operators) - 1

    def compiler(self, number: int) -> Compiler:
        """Return a compiler over the output of an operator."""
        operator = self.operators[number]
        compiler = Compiler(operator.layout, self.context.interner)
        while isinstance(operator, Exchange):
            operator = self.operators[operator.inputs[0]]
        if isinstance(operator, Source):
            given = dict(zip(operator.picked, compiler.columns, strict=True))
            compiler.columns = [
                given.get(i, ir.Literal(None, column.type))
                for i, column in enumerate(operator.columns)
            ]
        return compiler

    def in_layout(self, number: int, layout: Layout) -> int:
        """Return the number of an operator with the rows of another in a layout."""
        if self.operators[number].layout == layout:
            return number
        compiler = self.compiler(number)
        compiler.put_row(layout.columns)
        return self.add(Linear(number, layout, compiler.program(), self.context))

    @property
    def owns_empty_key(self) -> bool:
        """Whether this worker, or the only one there is, has what belongs to no key."""
        peers = self.context.peers
        return peers is None or peers.owns_empty_key

    def at_owners(self, number: int, scalars: Sequence[Scalar]) -> int:
        """Return the number of an operator with the rows of another, placed by the scalars' values.

        The scalars are over the rows; a worker gets all rows of a key. If one worker has all rows,
        that is the operator itself.
        """
        context = self.context
        if context.peers is None:
            return number
        compiler = self.compiler(number)
        key = [compiler.resolved(scalar) for scalar in scalars]
        types = tuple(ColumnType(type_of(scalar)) for scalar in key)
        compiler.put(types, key, "key")
        layout = self.operators[number].layout
        exchange = Exchange(number, layout, scalars, compiler.program(), context.peers, context)
        return self.add(exchange)

    def by_columns(self, number: int, columns: Sequence[int] | None = None) -> int:
        """Return the number of an operator with the rows of another, placed by some columns.

        Without `columns` they are placed by all, as they are bit by bit.
        """
        context = self.context
        if context.peers is None:
            return number
        layout = self.operators[number].layout
        compiler = Compiler(layout, context.interner)
        scalars = list(compiler.columns)
        if columns is None:
            compiler.put_row(layout.columns)
        else:
            scalars = [compiler.columns[i] for i in columns]
            compiler.put(tuple(ColumnType(type_of(each)) for each in scalars), scalars, "key")
        exchange = Exchange(number, layout, scalars, compiler.program(), context.peers, context)
        return self.add(exchange)

    def at_all(self, number: int) -> int:
        """Return the number of an operator with the rows of another, at each worker."""
        peers = self.context.peers
        if peers is None:
            return number
        return self.add(Broadcast(number, self.operators[number].layout, peers))

    def is_monotonic(self, relation: ir.Relation) -> bool:
        """Return whether a part of the plan never loses rows, outside of recursions."""
        return self._outer is None and is_monotonic(relation, self._values)

    def spine(self, key: int, texts: Ints) -> OrderedSpine:
        """Return an empty ordered spine."""
        context = self.context
        return context.own(OrderedSpine(key, texts, context.interner, context.seed))

    # --- errors

    def port(self, top: ir.Relation, input: ir.Relation) -> int:
        """Return a new port for the errors of rows of `input` in what is built for `top`."""
        return self.port_of(top, Port(signed=may_be_negative(input, dict(self.negative))))

    def port_of(self, top: ir.Relation, port: Port) -> int:
        """Return the number of a port, whose errors are those of what is built for `top`."""
        self._ports.append(port)
        number = len(self._ports) - 1
        self._ports_of.setdefault(top, []).append(number)
        return number

    def checked(self, top: ir.Relation, input: ir.Relation, scalars: Sequence[Scalar]) -> int:
        """Return the number of the operator of `input` without the rows for which a scalar fails.

        The errors are those of `top`.
        """
        number = self.node(input)
        if not any(map(can_fail, scalars)):
            return number
        compiler = self.compiler(number)
        compiler.check(scalars, self.port(top, input))
        layout = layout_of(self.operators[number].layout.columns)
        compiler.put_row(layout.columns)
        return self.add(Linear(number, layout, compiler.program(), self.context))

    def _port_counts(
        self, relation: ir.Relation, known: dict[ir.Relation, Counter[int]]
    ) -> Counter[int]:
        """Return how often the errors of each port count in a part of the plan as it was built.

        `known` has the counts of parts that were counted before.
        """
        found = known.get(relation)
        if found is None:
            own = () if isinstance(relation, ir.Let) else self._ports_of.get(relation, ())
            found = Counter(own)
            for part in self._parts(relation):
                found.update(self._port_counts(part, known))
            known[relation] = found
        return found

    def _parts(self, relation: ir.Relation) -> Sequence[ir.Relation]:
        """Return the parts on which a part of the plan was built."""
        if isinstance(relation, ir.Let):
            body = relation.body
            return (relation.value, body) if _reads(body, relation.number) else (body,)
        if isinstance(relation, ir.LetRec):
            loop = self.loops.get(relation)  # not there if nobody reads its values
            return (*(() if loop is None else loop.outside), relation.body)
        if isinstance(relation, LINEAR):
            _, base = linear_chain(relation)
            return base.inputs if isinstance(base, ir.Join) else (base,)
        return inputs_of(relation)

    # --- nodes

    def _node(self, relation: ir.Relation) -> int:
        match relation:
            case ir.Get(id=id, columns=columns):
                if id not in self.sources:
                    self.sources[id] = self.add(self._source(id, columns))
                return self.sources[id]
            case ir.Let(number=number, value=value, body=body):
                self._values[number] = value
                self.negative[number] = may_be_negative(value, dict(self.negative))
                return self.node(body)
            case ir.LetRec(body=body) if not is_used(relation):
                return self.node(body)
            case ir.LetRec(body=body):
                self.loops[relation] = build_loop(self, relation)
                return self.node(body)
            case ir.LocalGet(number=number):
                return self.node(self._values[number])
            case ir.Constant(rows=rows, columns=columns):
                return self.add(self._constant(rows, layout_of(columns)))
            case ir.Map() | ir.Filter() | ir.Project() | ir.Negate():
                return self._linear(relation)
            case ir.Union(inputs=inputs):
                layout = layout_of(columns_of(relation))
                parts = tuple(self.in_layout(self.node(input), layout) for input in inputs)
                return self.add(Union(parts, layout))
            case ir.Join():
                return build_join(self, relation, relation, ())
            case ir.Reduce():
                return build_reduce(self, relation)
            case ir.TopK():
                return self._top_k(relation)
            case ir.Window():
                return build_window(self, relation)
            case ir.Threshold():
                return self._threshold(relation)
            case ir.FlatMap():
                return self._flat_map(relation)
            case ir.TemporalFilter(input=input, conditions=conditions):
                layout = layout_of(columns_of(relation))
                number = self.by_columns(self.in_layout(self.node(input), layout))
                waiting = self.context.own(Waiting(layout.words, self.context.seed))
                return self.add(TemporalFilter(number, layout, conditions, waiting))
            case _:
                raise Unsupported(type(relation).__name__)

    def _source(self, id: GlobalId, columns: tuple[ColumnType, ...]) -> Source:
        found = self.imports.get(id)
        if found is None:
            picked = self.picked[id]
            return Source(columns, picked, layout_of(tuple(columns[i] for i in picked)))
        return Source(columns, found.collection.picked, found.collection.layout)

    def _linear(self, relation: ir.Relation) -> int:
        chain, base = linear_chain(relation)
        closed = self._closed_by(chain)
        if closed is not None:
            number, chain = self._built_closing(chain, closed), chain[1:]
        elif isinstance(base, ir.Join):
            return build_join(self, base, relation, chain)
        else:
            number = self.node(base)
        compiler = self.compiler(number)
        self.compile_chain(compiler, chain, relation)
        layout = layout_of(columns_of(relation))
        compiler.put_row(layout.columns)
        return self.add(Linear(number, layout, compiler.program(), self.context))

    def _closed_by(self, chain: Sequence[ir.Relation]) -> Closing | None:
        """Return the filter by watermarks with which a chain begins, if it has an operator."""
        return closed_by(chain) if self._outer is None else None

    def _built_closing(self, chain: Sequence[ir.Relation], closed: Closing) -> int:
        found = self._built.get(chain[0])
        if found is None:
            found = self._built[chain[0]] = build_closing(self, closed)
        return found

    def compile_chain(
        self,
        compiler: Compiler,
        chain: Sequence[ir.Relation],
        top: ir.Relation,
        ports: dict[int, int] | None = None,
    ) -> None:
        """Compile Map, Filter, Project and Negate, the lowest first, with their checks.

        `ports` keeps the port of each node of the chain for another call.
        """
        ports = {} if ports is None else ports
        for place, node in enumerate(chain):
            scalars: tuple[Scalar, ...] = ()
            match node:
                case ir.Map(scalars=scalars):
                    width = len(compiler.columns)
                    compiler.map(scalars)
                    scalars = tuple(compiler.columns[width:])
                case ir.Filter(predicates=predicates):
                    scalars = (predicates[0] if len(predicates) == 1 else ir.And(predicates),)
                    scalars = tuple(map(compiler.resolved, scalars))
                case ir.Project(outputs=outputs):
                    compiler.project(outputs)
                case ir.Negate():
                    compiler.sign = -compiler.sign
                case _:
                    raise AssertionError(node)
            if any(map(can_fail, scalars)):
                if place not in ports:
                    ports[place] = self.port(top, node.input)
                compiler.check(scalars, ports[place])
            if isinstance(node, ir.Filter):
                compiler.filter_resolved(scalars)

    def _constant(self, rows: Sequence[tuple[tuple[object, ...], int]], layout: Layout) -> Constant:
        arrays = [
            to_array([row[i] for row, _ in rows], place.type)  # type: ignore[misc]
            for i, place in enumerate(layout.places)
        ]
        words = words_of(arrays, len(rows), layout, self.context.interner)
        diffs = np.array([count for _, count in rows], np.int64)
        if not self.owns_empty_key:
            words, diffs = words[:0], diffs[:0]
        self.context.interner.pin(words)
        return Constant(layout, Batch(words, np.zeros(len(words), np.int64), diffs))

    def _top_k(self, top_k: ir.TopK) -> int:
        scalars = [key.expr for key in top_k.order_key]
        input = self.checked(top_k, top_k.input, scalars)
        columns = columns_of(top_k.input)
        input = self.at_owners(input, _columns(columns, top_k.group_key))
        compiler = self.compiler(input)
        columns = self.operators[input].layout.columns
        group = [compiler.columns[i] for i in top_k.group_key]
        compiler.put([columns[i] for i in top_k.group_key], group, "key")
        key = len(compiler.texts)
        for order in top_k.order_key:
            nulls = -1 if order.nulls_first else 1
            compiler.put_order(order.expr, descending=order.descending, nulls=nulls)
        for scalar in compiler.columns:
            compiler.put_order(scalar, descending=False, nulls=1)
        for scalar in compiler.columns:
            compiler.put_shown(scalar)
        row = len(compiler.texts)
        layout = layout_of(columns_of(top_k))
        compiler.put_row(layout.columns)
        program = compiler.program()
        spine = self.spine(key, program.texts)
        offset, limit = self._bound(top_k.offset) or 0, self._bound(top_k.limit)
        limit = NO_LIMIT if limit is None else limit
        monotonic = self.is_monotonic(top_k.input)
        return self.add(
            TopK(
                input, layout, program, spine, row, offset, limit, self.context, monotonic=monotonic
            )
        )

    def constant_error(self, scalar: Scalar) -> None:
        """Note the error of a scalar without columns, if it fails."""
        found = constant(scalar)
        if isinstance(found, str) and self.owns_empty_key:
            self._constant_errors.append(found)

    def _bound(self, scalar: Scalar | None) -> int | None:
        if scalar is None:
            return None
        found = constant(scalar)
        if isinstance(found, str):
            self.constant_error(scalar)
            return None
        value = found.value
        assert value is None or isinstance(value, int), value
        return value

    def _threshold(self, threshold: ir.Threshold) -> int:
        layout = layout_of(columns_of(threshold))
        for place in layout.places:
            require_canonical(place.type)
        input = self.node(threshold.input)
        input = self.at_owners(input, _columns(columns_of(threshold.input)))
        compiler = self.compiler(input)
        compiler.put(layout.columns, compiler.columns, "key")
        return self.add(Threshold(input, layout, compiler.program(), self.context))

    def _flat_map(self, flat_map: ir.FlatMap) -> int:
        arrays = flat_map.arrays
        input = self.checked(flat_map, flat_map.input, arrays)
        over = self.operators[input].layout
        added = layout_of(flat_map.columns)
        layout = composed([over, added])
        return self.add(FlatMap(input, over, layout, arrays, added, self.context))


def collections_joined(relation: ir.Relation) -> Iterator[ir.Get]:
    """Yield the collections that are inputs of joins, perhaps filtered and mapped."""
    without = set(closed_joins(relation))
    for node in walk_relations(relation):
        if isinstance(node, ir.Join) and len(node.inputs) > 1 and node not in without:
            for input in node.inputs:
                base = linear_chain(input)[1]
                if isinstance(base, ir.Get):
                    yield base


def columns_imported(relation: ir.Relation) -> dict[GlobalId, frozenset[int]]:
    """Return the columns that a plan reads of the collections that it shares with others."""
    picked = columns_read(relation)
    return {base.id: frozenset(picked[base.id]) for base in collections_joined(relation)}


def columns_read(relation: ir.Relation) -> dict[GlobalId, tuple[int, ...]]:
    """Return the columns that a plan reads of each collection, in order.

    They are all columns, unless each Get is under a Project.
    """
    found: dict[GlobalId, set[int]] = {}
    stack = [relation]
    while stack:
        node = stack.pop()
        match node:
            case ir.Project(input=ir.Get(id=id), outputs=outputs):
                found.setdefault(id, set()).update(outputs)
            case ir.Get(id=id, columns=columns):
                found.setdefault(id, set()).update(range(len(columns)))
            case _:
                stack.extend(inputs_of(node))
    return {id: tuple(sorted(columns)) for id, columns in found.items()}


def _columns(columns: Sequence[ColumnType], numbers: Sequence[int] | None = None) -> list[Scalar]:
    """Return the columns with these numbers, by default all, as scalars."""
    picked = range(len(columns)) if numbers is None else numbers
    return [ir.Column(i, columns[i].type, columns[i].nullable) for i in picked]


def _reads(relation: ir.Relation, number: int) -> bool:
    return any(
        isinstance(node, ir.LocalGet) and node.number == number for node in walk_relations(relation)
    )
