"""What a maintained relation will keep, before it is made: the parts of its state, to be counted.

The parts are those of the operators over arrangements (docs/engine.md): rows of what joins look up,
of what is ordered and of what extremes are found in; sums by group; counts of distinct rows. A
part's records are the rows of a relation, which a query counts (`counting`), so the prediction
needs the view's query to be run as far as its joins and groups. Inputs that joins look up are kept
once for all dataflows of a cluster (`shared`).

A record has its words (8 bytes each), a hash for each key, and places for each key but the first.
Strings are kept once, beside the records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from foreshore.compute.flow.join_plan import plans_of
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.linear_chain import linear_chain
from foreshore.expr import ir
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import inputs_of, sources_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.types import INT8, ColumnType

WORD = 8
PLACE = 4  # bytes of a row's number in an index
STRING_BYTES = 40  # of a string, its length, hash and share of the table
STRINGS = frozenset("text varchar bpchar json jsonb bytea name".split())
FEW = 4096  # rows up to which an arrangement is a hash table, with slots for each key
LEAST_GROUPS = 16
SLOT, LEAST = 64, 32  # its bytes for each row and each key, and its slots
GROUP_FREE = 1.5  # groups are in a hash table, a quarter of which at least is free


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the state; its records are the rows of `relation`."""

    name: str
    relation: ir.Relation
    record_bytes: float
    shared: GlobalId | None = None  # the collection whose rows dataflows share
    joins: frozenset[GlobalId] = frozenset()  # of what a join gives, which is not kept: its inputs
    keys: int = 0  # by which rows are found; 0: no rows are kept

    def bytes(self, records: int) -> float:
        """Return the size of so many records."""
        if self.keys and 0 < records <= FEW:
            return float(max(LEAST, 1 << (records - 1).bit_length()) * SLOT * (1 + self.keys))
        least = LEAST_GROUPS if self.name == "groups" else 0
        return max(records, least) * self.record_bytes


def parts_of(relation: ir.Relation) -> list[Part]:
    """Return the parts of the state of a maintained relation, its inputs' before its own."""
    shared: dict[GlobalId, tuple[ir.Get, set[int], set[object]]] = {}
    own: dict[tuple[str, ir.Relation], Part] = {}
    for node in _once(relation):
        for part in _own(node, shared):
            own.setdefault((part.name, part.relation), part)
    found = []
    for id, (get, columns, keys) in shared.items():
        kept = tuple(get.columns[i] for i in sorted(columns))
        found.append(Part("rows", get, _row_bytes(kept, len(keys)), id, keys=max(1, len(keys))))
        for i in sorted(columns):
            if get.columns[i].type.name in STRINGS:
                value = ir.Column(0, get.columns[i].type, get.columns[i].nullable)
                distinct = ir.Reduce(ir.Project(get, (i,)), (value,), ())
                found.append(Part("strings", distinct, STRING_BYTES, id))
    return [*found, *own.values()]


def inlined(relation: ir.Relation, values: Mapping[int, ir.Relation] | None = None) -> ir.Relation:
    """Return a relation with the values of its Lets in the places where they are used."""
    known = values or {}
    match relation:
        case ir.Let(number=number, value=value, body=body):
            return inlined(body, {**known, number: inlined(value, known)})
        case ir.LocalGet(number=number):
            return known[number]
        case _:
            inputs = tuple(inlined(each, known) for each in inputs_of(relation))
            return with_inputs(relation, inputs) if inputs else relation


def _once(relation: ir.Relation) -> Iterator[ir.Relation]:
    seen: set[ir.Relation] = set()
    stack = [relation]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack += inputs_of(node)


def _own(
    node: ir.Relation, shared: dict[GlobalId, tuple[ir.Get, set[int], set[object]]]
) -> Iterator[Part]:
    match node:
        case ir.Join(inputs=inputs):
            yield Part("joined rows", node, 0, joins=sources_of(node))
            keys: list[set[object]] = [set() for _ in inputs]
            for path in plans_of(node):
                for place, pairs in path:
                    keys[place].add(tuple(inner.scalar for _, inner in pairs))
            for place, input in enumerate(inputs):
                _, base = linear_chain(input)
                if isinstance(base, ir.Get):
                    _, columns, by = shared.setdefault(base.id, (base, set(), set()))
                    columns |= _used(input)
                    by |= {(id(input), key) for key in keys[place]} if keys[place] else set()
                elif keys[place]:
                    bytes = _row_bytes(columns_of(input), len(keys[place]))
                    yield Part("rows of a join", input, bytes, keys=len(keys[place]))
        case ir.Reduce(input=input, group_key=key, aggregates=aggregates):
            kept = tuple(ColumnType(type_of(scalar), True) for scalar in key)
            words = layout_of(kept).words if kept else 0
            sums = 1 + sum(2 for each in aggregates if each.function not in ("min", "max"))
            yield Part("groups", node, (WORD * (2 + words + sums)) * GROUP_FREE)
            if any(_keeps_rows(each) for each in aggregates):
                values = [scalar for each in aggregates for scalar in each.args]
                kept = (*kept, *(ColumnType(type_of(each), True) for each in values))
                yield Part("values by group", input, _row_bytes(kept, 1), keys=1)
        case ir.TopK(input=input, group_key=group, order_key=order):
            yield _ordered(input, len(group) + len(order))
        case ir.Window(input=input, partition=group, order_key=order):
            yield _ordered(input, len(group) + len(order))
        case ir.Threshold(input=input):
            bytes = _row_bytes(columns_of(input), 1) * GROUP_FREE
            yield Part("counts of rows", input, bytes)


def _ordered(input: ir.Relation, keys: int) -> Part:
    """Return rows in the order of keys and then of all columns, each with a word for NULL."""
    columns = tuple(columns_of(input))
    words = layout_of(columns).words + 2 * (keys + len(columns)) + 2
    return Part("ordered rows", input, float(WORD * words))


def _keeps_rows(aggregate: ir.Aggregate) -> bool:
    return aggregate.distinct or aggregate.function in ("min", "max", "array_agg", "string_agg")


def _used(input: ir.Relation) -> set[int]:
    """Return the columns of a collection that a chain of Map, Filter and Project over it uses."""
    chain, base = linear_chain(input)
    assert isinstance(base, ir.Get)
    of: list[set[int]] = [{i} for i in range(len(base.columns))]  # each column's own
    used: set[int] = set()
    for node in chain:
        match node:
            case ir.Map(scalars=scalars):
                for scalar in scalars:
                    of.append(set().union(*(of[i] for i in columns_used(scalar))))
            case ir.Filter(predicates=predicates):
                for predicate in predicates:
                    used.update(*(of[i] for i in columns_used(predicate)))
            case ir.Project(outputs=outputs):
                of = [of[i] for i in outputs]
            case _:
                pass
    return used.union(*of)


def _row_bytes(columns: Sequence[ColumnType], keys: int) -> float:
    words = layout_of(tuple(columns)).words if columns else 0
    return float(WORD * (words + 1) + max(0, keys - 1) * (WORD + PLACE))


def counting(parts: Sequence[Part]) -> ir.Relation:
    """Return a relation of rows (number of a part, its records)."""
    count = ir.Aggregate("count", (), INT8)
    return ir.Union(
        tuple(
            ir.Project(
                ir.Map(
                    ir.Reduce(part.relation, (), (count,)),
                    (ir.Literal(number, INT8),),
                ),
                (1, 0),
            )
            for number, part in enumerate(parts)
        )
    )
