"""Where a relation reads tables, and which of the reads only repeat rows of another.

    UPDATE t SET ... FROM s WHERE t.id = s.id        Join(Get t, TopK(Join(Get t, Get s)))

joins the rows of t with matches that begin with rows of t: the first read repeats the second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Filter,
    Get,
    Join,
    Let,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    TopK,
    single_input,
)
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import inputs_of
from foreshore.sql.optimize.lookup import definitions_of
from foreshore.sql.optimize.scalars import substitute

Lets: TypeAlias = tuple[tuple[int, Relation], ...]  # those around a relation, outermost first


@dataclass(frozen=True, slots=True)
class TableRead:
    """Map, Filter, Project over a table, perhaps as an input of a join, or grouped in one.

    `definitions` are the columns of the input over those of the table; None is one that other rows
    than those with equal values in the others decide.
    """

    get: Get
    chain: Relation
    lets: Lets
    join: Join | None = None
    place: int = 0  # among the inputs of the join
    definitions: Sequence[Scalar | None] = ()

    def over_table(self, scalar: Scalar) -> Scalar | None:
        """Return a scalar over the input as one over the table."""
        if any(self.definitions[i] is None for i in columns_used(scalar)):
            return None
        return substitute(scalar, self.definitions)


def table_reads(relation: Relation) -> Iterator[TableRead]:
    """Yield the reads of tables in `relation`, in its order."""
    stack: list[tuple[Relation | TableRead, Lets]] = [(relation, ())]
    while stack:
        node, lets = stack.pop()
        if isinstance(node, TableRead):
            yield node
            continue
        get = single_input(node)
        if get is not None:
            yield TableRead(get, node, lets)
            continue
        below: list[tuple[Relation | TableRead, Lets]]
        match node:
            case Let(number=number, value=value, body=body):
                below = [(value, lets), (body, (*lets, (number, value)))]
            case Join(inputs=inputs):
                below = [(_of_join(node, i, lets) or input, lets) for i, input in enumerate(inputs)]
            case _:
                below = [(input, lets) for input in inputs_of(node)]
        stack.extend(reversed(below))


def _of_join(join: Join, place: int, lets: Lets) -> TableRead | None:
    """Return the read of a table that an input of a join is, perhaps grouped."""
    found = _grouped(join.inputs[place])
    if found is None:
        return None
    chain, definitions = found
    get = single_input(chain)
    assert get is not None, chain
    return TableRead(get, chain, lets, join, place, definitions)


_Grouped: TypeAlias = tuple[Relation, Sequence[Scalar | None]]  # a chain, definitions


def _grouped(relation: Relation) -> _Grouped | None:
    """Return the chain below, and the columns by which its rows decide those of `relation`."""
    if single_input(relation) is not None:
        definitions = definitions_of(relation)
        return None if definitions is None else (relation, definitions)
    match relation:
        case Filter(input=input):
            return _grouped(input)
        case Project(input=input, outputs=outputs):
            below = _grouped(input)
            return None if below is None else (below[0], [below[1][i] for i in outputs])
        case Map(input=input, scalars=scalars):
            below = _grouped(input)
            return None if below is None else (below[0], [*below[1], *[None for _ in scalars]])
        case TopK(input=input, group_key=group_key):
            below = _grouped(input)
            if below is None:
                return None
            return below[0], [e if i in group_key else None for i, e in enumerate(below[1])]
        case Reduce(input=input, group_key=group_key, aggregates=aggregates) if group_key:
            below = _grouped(input)
            if below is None:
                return None
            known = [
                substitute(key, below[1])
                if all(below[1][i] is not None for i in columns_used(key))
                else None
                for key in group_key
            ]
            return below[0], [*known, *[None for _ in aggregates]]
        case _:
            return None


def starts_of(join: Join) -> list[int]:
    """Return the positions of the first columns of the inputs of a join, and its width."""
    return list(accumulate((len(columns_of(input)) for input in join.inputs), initial=0))


def repeats(read: TableRead, reads: Sequence[TableRead], columns: Sequence[int]) -> bool:
    """Return whether `read` is joined, on all of `columns`, with a relation over another read."""
    if read.join is None:
        return False
    beside = {each.place for each in reads if each.join is read.join}
    definitions = read.definitions
    starts = starts_of(read.join)
    start, end = starts[read.place], starts[read.place + 1]
    origins: list[set[int]] = []  # for each column: which of `reads` have equal values
    for column in columns:
        equal = set()
        for pair in read.join.equivalences:
            places = [each.index for each in pair if isinstance(each, Column)]
            if any(start <= i < end and _is(definitions[i - start], column) for i in places):
                for i in places:
                    at = next(n for n in range(len(starts)) if i < starts[n + 1])
                    other = read.join.inputs[at]
                    if at not in beside:
                        equal |= _origins(other, i - starts[at], reads, column)
        origins.append(equal)
    return bool(set.intersection(*origins)) if origins else False


def _is(scalar: object, column: int) -> bool:
    return isinstance(scalar, Column) and scalar.index == column


def _origins(relation: Relation, place: int, reads: Sequence[TableRead], column: int) -> set[int]:
    """Return which of `reads` give a column of `relation` the value of `column` of the table."""
    for number, read in enumerate(reads):
        if relation is read.chain:
            definitions = definitions_of(relation)
            is_column = definitions is not None and _is(definitions[place], column)
            return {number} if is_column else set()
    match relation:
        case Filter(input=input) | TopK(input=input):
            return _origins(input, place, reads, column)
        case Project(input=input, outputs=outputs):
            return _origins(input, outputs[place], reads, column)
        case Map(input=input, scalars=scalars):
            width = len(columns_of(input))
            if place < width:
                return _origins(input, place, reads, column)
            scalar = scalars[place - width]
            if not isinstance(scalar, Column) or scalar.index >= width:
                return set()
            return _origins(input, scalar.index, reads, column)
        case Reduce(input=input, group_key=group_key) if place < len(group_key):
            key = group_key[place]
            return _origins(input, key.index, reads, column) if isinstance(key, Column) else set()
        case Join(inputs=inputs):
            starts = starts_of(relation)
            at = next(i for i in range(len(inputs)) if place < starts[i + 1])
            return _origins(inputs[at], place - starts[at], reads, column)
        case _:
            return set()
