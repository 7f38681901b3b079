"""The memory that a plan takes beside an engine's limit, estimated from what it reads.

An engine spills rows that it sorts, joins or groups. It does not count the lists of array_agg, the
texts of string_agg and the floats that are added exactly; and it hands a chunk of rows at once to
the kernels, whatever their size:

    select array_remove(a, g) from (select array_agg(n) a from ...), generate_series(1, 1000) g

So rows, and sizes of their values, are estimated from the bottom of a plan to its top. What is read
has the sizes that the caller knows. Filters are taken to leave all rows, joins only to lose some
where they are by a key, and all rows to be in one group, or each in its own, whichever takes more.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import pyarrow as pa

from foreshore.expr import ir
from foreshore.expr.block import Block
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.cost import MOST, SMALL, USUAL, cost_of_call, size_of
from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import inputs_of, operands_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.ranges import BOUNDS, MULTIRANGES
from foreshore.types import SqlType, arrow_type

CHUNK = 2048  # rows that an engine hands over at once
MUCH = 32 << 20  # bytes: what takes more has a process of its own
RECURSED = 10_000  # rows that a recursion is taken to find
WIDE = 4 << 10  # bytes of a value from which on chunks of them count
PER_BYTE = 32  # bytes of objects for a byte of a value that is read element by element
# They hold a value of each row, which no limit of an engine counts.
GATHERING = frozenset(("array_agg", "string_agg", "sum_float", "comoment_float"))


@dataclass(frozen=True, slots=True)
class Shape:
    """How many rows there are, and the bytes of a value of each column."""

    rows: int
    sizes: tuple[int, ...]


_CONSTANT = -1  # among the inputs of a join

Known = Mapping[GlobalId, Shape]  # of what a plan reads


def holds_much(relation: ir.Relation, known: Known) -> bool:
    """Whether a plan takes more than `MUCH` bytes beside the limit of an engine."""
    has_long_values = any(size > WIDE for each in known.values() for size in each.sizes)
    if not has_long_values and not any(map(_may_gather, walk_relations(relation))):
        return False  # what makes long values is left to `cost.is_heavy`
    for most_groups in (1, MOST):
        estimate = _Estimate(known, most_groups)
        estimate.of(relation)
        if estimate.most > MUCH:
            return True
    return False


def block_holds_much(block: Block, known: Known) -> bool:
    """Whether a relation of a block, or of its recursions, takes more than `MUCH` bytes."""
    known = _with_recursions(block, known)
    return any(holds_much(each, known) for each in block.relations())


def _with_recursions(block: Block, known: Known) -> Known:
    """Return also the shapes of recursions' results, whose number of rows nothing tells."""
    found = dict(known)
    for recursion in block.recursions:
        for id, inner in zip(recursion.collections, recursion.blocks, strict=True):
            found.update(_with_recursions(inner, found))
            shape = _Estimate(found, 1).of(inner.relation)
            found[id] = Shape(max(shape.rows, RECURSED), shape.sizes)
    return found


def _may_gather(node: ir.Relation) -> bool:
    match node:
        case ir.Reduce(aggregates=made) | ir.Window(functions=made):
            return any(each.function in GATHERING for each in made)
        case _:
            return False


class _Estimate:
    """Shapes of relations; `most` is what the hungriest of them takes."""

    def __init__(self, known: Known, most_groups: int) -> None:
        self._known = known
        self._most_groups = most_groups
        self._locals: dict[int, Shape] = {}
        self.most = 0

    def of(self, relation: ir.Relation) -> Shape:
        match relation:
            case ir.Let(number=number, value=value, body=body):
                self._locals[number] = self.of(value)
                return self.of(body)
            case ir.LetRec(numbers=numbers, columns=columns, values=values, body=body):
                for number, each in zip(numbers, columns, strict=True):  # before the first round
                    self._locals[number] = Shape(1, tuple(usual_size(c.type) for c in each))
                for number, value in zip(numbers, values, strict=True):
                    self._locals[number] = self.of(value)
                return self.of(body)
            case ir.LocalGet(number=number):
                return self._locals[number]
            case ir.Get(id=id, columns=columns):
                return self._known.get(id) or Shape(1, tuple(usual_size(c.type) for c in columns))
            case ir.Constant(columns=columns):
                largest = tuple(usual_size(column.type) for column in columns)
                for row, _ in relation.rows[:CHUNK]:
                    largest = tuple(map(max, largest, map(size_of, row)))
                return Shape(sum(abs(count) for _, count in relation.rows), largest)
            case ir.Union(inputs=inputs):
                shapes = [self.of(each) for each in inputs]
                widest = map(max, zip(*(each.sizes for each in shapes), strict=True))
                return Shape(sum(each.rows for each in shapes), tuple(widest))
        return self._above(relation, [self.of(each) for each in inputs_of(relation)])

    def _above(self, relation: ir.Relation, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of a relation over inputs of these shapes."""
        counts = [each.rows for each in inputs]
        if isinstance(relation, ir.Join):
            counts = _added_counts(relation, inputs)
        rows = min(prod(counts), MOST)
        sizes = [size for each in inputs for size in each.sizes]
        if isinstance(relation, ir.Map):
            for scalar in relation.scalars:  # which may use those before it
                sizes.append(_size(scalar, sizes))
        shape = Shape(rows, tuple(sizes))
        self._count_calls(scalars_of(relation), shape)
        match relation:
            case ir.Project(outputs=outputs):
                return Shape(rows, tuple(shape.sizes[each] for each in outputs))
            case ir.FlatMap():
                elements = max(_size(each, shape.sizes) for each in relation.arrays) // SMALL
                added = columns_of(relation)[len(shape.sizes) :]
                sizes.extend(usual_size(column.type) for column in added)
                return Shape(min(rows * max(elements, 1), MOST), tuple(sizes))
            case ir.Reduce(group_key=keys, aggregates=aggregates):
                groups = max(min(rows, self._most_groups), 1) if keys else 1
                made = [_size(each, shape.sizes) for each in keys]
                made += [self._made(each, shape, groups) for each in aggregates]
                return Shape(groups, tuple(made))
            case ir.Window(functions=functions):
                made = [self._made(each, shape) for each in functions]
                for each, size in zip(functions, made, strict=True):
                    if each.function in GATHERING and size > WIDE:
                        # Each row may have the values of all rows before it.
                        self.most = max(self.most, size * rows)
                return Shape(rows, (*shape.sizes, *made))
            case _:
                return shape

    def _made(self, maker: ir.Aggregate | ir.WindowFunction, shape: Shape, groups: int = 1) -> int:
        """Return the bytes of a value that is made of the rows of a group; count what is kept."""
        size = sum(_size(each, shape.sizes) for each in maker.args)
        if maker.function in GATHERING:
            kept = min(shape.rows * size, MOST)
            self.most = max(self.most, kept)
            size = kept // groups
        return SMALL if _is_fixed(maker.type) else max(size, USUAL)

    def _count_calls(self, scalars: Iterable[ir.Scalar], shape: Shape) -> None:
        """Count chunks of the arguments of calls, if these are long."""
        if not any(size > WIDE for size in shape.sizes):
            return
        for scalar in scalars:
            longest = _longest_arguments(scalar, shape.sizes, _is_of_kernel)
            if longest > WIDE:
                self.most = max(self.most, longest * min(shape.rows, CHUNK))
                read = _longest_arguments(scalar, shape.sizes, _reads_elements)
                self.most = max(self.most, read * PER_BYTE)


def _added_counts(join: ir.Join, inputs: Sequence[Shape]) -> list[int]:
    """Return by how much each input multiplies the rows of larger ones: by 1 if they have its key.

    They have it if each of its columns equals a constant, or something of theirs.
    """
    starts = list(accumulate((len(each.sizes) for each in inputs), initial=0))
    equal_to: dict[tuple[int, int], set[int]] = {}  # other inputs, by an input and its column
    for n, equivalence in enumerate(join.equivalences):
        if n in join.null_safe:  # there may be many NULLs
            continue
        used = [columns_used(scalar) for scalar in equivalence]
        linked = {bisect(starts, min(each)) - 1 if each else _CONSTANT for each in used}
        for scalar in equivalence:
            if isinstance(scalar, ir.Column):
                i = bisect(starts, scalar.index) - 1
                equal_to.setdefault((i, scalar.index - starts[i]), set()).update(linked - {i})
    counts = [each.rows for each in inputs]
    joined = {_CONSTANT}
    for i in sorted(range(len(inputs)), key=counts.__getitem__, reverse=True):
        for key in _keys(join.inputs[i]):
            if all(not joined.isdisjoint(equal_to.get((i, column), ())) for column in key):
                counts[i] = 1
        joined.add(i)
    return counts


def _keys(relation: ir.Relation) -> Iterable[Sequence[int]]:
    """Return the columns of each key of a relation's rows that is easily known."""
    match relation:
        case ir.Get(keys=keys):
            return keys
        case ir.Filter(input=input) | ir.Map(input=input):
            return _keys(input)
        case ir.Project(input=input, outputs=outputs):
            places = {column: place for place, column in enumerate(outputs)}
            shown = (key for key in _keys(input) if places.keys() >= {*key})
            return [[places[each] for each in key] for key in shown]
        case ir.Reduce(group_key=group_key):
            return [range(len(group_key))]
        case _:
            return []


def _size(scalar: ir.Scalar, sizes: Sequence[int]) -> int:
    """Return the bytes of a scalar's value over columns of these sizes."""
    match scalar:
        case ir.Column(index=index):
            return sizes[index]
        case ir.Literal(value=value):
            return size_of(value)
        case ir.Call(function=key, args=args):
            values = [each.value if isinstance(each, ir.Literal) else None for each in args]
            given = [_size(each, sizes) for each in args]
            size, _ = cost_of_call(key, values, given)
            if _is_fixed(scalar.type):
                return SMALL
            known = all(isinstance(each, ir.Literal) for each in args) or size < MOST
            return size if known else sum(given) + USUAL  # it is refused by its length
        case _:
            made = [_size(each, sizes) for each in operands_of(scalar)]
            return SMALL if _is_fixed(type_of(scalar)) else max(made, default=USUAL)


def _longest_arguments(
    scalar: ir.Scalar, sizes: Sequence[int], counts: Callable[[ir.Call], bool]
) -> int:
    """Return the bytes of the longest arguments that a call within `scalar` that counts has."""
    operands = operands_of(scalar)
    longest = max((_longest_arguments(each, sizes, counts) for each in operands), default=0)
    if isinstance(scalar, ir.Call) and counts(scalar):
        longest = max(longest, sum(_size(each, sizes) for each in operands))
    return longest


def _is_of_kernel(call: ir.Call) -> bool:
    return scalar_function(call.function).duckdb is None


def _reads_elements(call: ir.Call) -> bool:
    """Return whether a call makes an array, a range or a row of the parts of one value."""
    type, is_of_text = call.type, any(arrow_type(type_of(a)) == pa.string() for a in call.args)
    if type.name == "shaped":
        return True
    is_made = (
        pa.types.is_nested(arrow_type(type)) or type.name in BOUNDS or type.name in MULTIRANGES
    )
    return is_made and is_of_text and call.function.startswith("cast(")


def _is_fixed(type: SqlType) -> bool:
    return bool(pa.types.is_primitive(arrow_type(type)))


def usual_size(type: SqlType) -> int:
    """Return the bytes of a value of which nothing else is known."""
    return SMALL if _is_fixed(type) else USUAL
