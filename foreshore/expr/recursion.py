"""Recursions in one relation, as `LetRec`, and as the recursions of a block."""

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec

from foreshore.errors import FeatureNotSupported
from foreshore.expr.block import AnyRecursion, Block, MutualRecursion, Recursion
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
    Project,
    Reduce,
    Relation,
    Union,
)
from foreshore.expr.share import share
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import inputs_of, sources_of, walk_relations, with_inputs
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

MOST_ROUNDS = 1000  # of a maintained recursion without a limit of its own


def single_relation(block: Block) -> Relation:
    """Return a block as one relation; raises FeatureNotSupported.

    The step of WITH RECURSIVE reads only new rows. As one relation it reads all of them, which is
    the same if the step gives for several rows what it gives for each of them.
    """
    if not block.recursions:
        return block.relation
    numbers = count(_greatest_number(block) + 1)
    return _assembled(block, numbers)


def as_union(recursion: MutualRecursion, working: GlobalId) -> Recursion | None:
    """Return a recursion as WITH RECURSIVE computes it: its step reads only new rows, as `working`.

    None if it has not the form of `base UNION [ALL] step`, or the step does not treat each row by
    itself.
    """
    if len(recursion.blocks) > 1 or recursion.limit is not None:
        return None
    (block,), (id,) = recursion.blocks, recursion.collections
    lets, value = _without_lets(block.relation)
    distinct = isinstance(value, Reduce) and _is_distinct(value)
    union = value.input if isinstance(value, Reduce) and distinct else value
    if (
        not isinstance(union, Union)
        or block.recursions
        or any(id in sources_of(v) for _, v in lets)
    ):
        return None
    bases = tuple(each for each in union.inputs if id not in sources_of(each))
    steps = tuple(each for each in union.inputs if id in sources_of(each))
    if not bases or not steps:
        return None
    step = _with_lets(lets, Union(steps))
    if not _is_row_by_row(step, id, distinct=distinct):
        return None
    columns = recursion.columns[0]
    renamed = _replaced(step, {id: Get(working, columns)})
    return Recursion(working, id, Block(_with_lets(lets, Union(bases))), Block(renamed), distinct)


def _without_lets(relation: Relation) -> tuple[list[tuple[int, Relation]], Relation]:
    lets = []
    while isinstance(relation, Let):
        lets.append((relation.number, relation.value))
        relation = relation.body
    return lets, relation


def _with_lets(lets: Sequence[tuple[int, Relation]], body: Relation) -> Relation:
    for number, value in reversed(lets):
        body = Let(number, value, body)
    return share(body)


def _is_distinct(reduce: Reduce) -> bool:
    """Whether a reduction keeps each row once."""
    width = len(columns_of(reduce.input))
    places = [key.index for key in reduce.group_key if isinstance(key, Column)]
    return not reduce.aggregates and places == list(range(width)) == list(
        range(len(reduce.group_key))
    )


def has_recursion(relation: Relation) -> bool:
    """Whether a lowered relation has a recursion."""
    return any(isinstance(node, LetRec) for node in walk_relations(relation))


def is_used(recursion: LetRec) -> bool:
    """Whether the body of a recursion reads one of its values.

    What nobody reads in the body does not count.
    """
    return not _numbers_read(recursion.body, {}).isdisjoint(recursion.numbers)


def _numbers_read(relation: Relation, known: dict[Relation, frozenset[int]]) -> frozenset[int]:
    """Return the numbers of what a relation reads, but for what it binds and nobody reads."""
    found = known.get(relation)
    if found is not None:
        return found
    inner = inputs_of(relation)
    bound: tuple[int, ...] = ()
    found = frozenset((relation.number,) if isinstance(relation, LocalGet) else ())
    if isinstance(relation, Let | LetRec):
        bound = (relation.number,) if isinstance(relation, Let) else relation.numbers
        if _numbers_read(relation.body, known).isdisjoint(bound):
            inner = (relation.body,)
    found = found.union(*(_numbers_read(each, known) for each in inner)).difference(bound)
    known[relation] = found
    return found


def check_may_skip_errors(relation: Relation) -> None:
    """Raise FeatureNotSupported if a view of `relation` cannot leave rows with errors out."""
    if has_recursion(relation):
        raise FeatureNotSupported(
            "ON ERROR = SKIP of a recursive query is not supported",
            hint="Leave rows with errors out by a view that the recursion reads.",
        )


def may_fail(relation: Relation) -> bool:
    """Whether a lowered relation may have errors; a recursion may not converge."""
    return has_recursion(relation) or split_errors(relation)[1] is not None


def with_limits(relation: Relation) -> Relation:
    """Return a relation whose recursions all have a limit, as they are maintained."""
    inputs = tuple(map(with_limits, inputs_of(relation)))
    if inputs:
        relation = with_inputs(relation, inputs)
    if isinstance(relation, LetRec) and relation.limit is None:
        return msgspec.structs.replace(relation, limit=MOST_ROUNDS)
    return relation


def block_of(relation: Relation) -> Block:
    """Return a relation as a block, with its recursions in dependency order."""
    return _Taking(count(1)).block(relation, {})


def _greatest_number(block: Block) -> int:
    found = [0]
    for relation in block.relations():
        for node in walk_relations(relation):
            if isinstance(node, Let | LocalGet):
                found.append(node.number)
            elif isinstance(node, LetRec):
                found += node.numbers
    return max(found)


def _assembled(block: Block, numbers: Iterator[int]) -> Relation:
    found = block.relation
    for each in reversed(block.recursions):
        if isinstance(each, Recursion):
            value = _union(each, numbers)
            columns: tuple[tuple[ColumnType, ...], ...] = (_nullable(value),)
            ids: tuple[GlobalId, ...] = (each.result,)
            values: tuple[Relation, ...] = (value,)
            limit, fails = None, True
        else:
            columns, ids, limit, fails = each.columns, each.collections, each.limit, each.fails
            values = tuple(_assembled(inner, numbers) for inner in each.blocks)
        locals = {
            id: LocalGet(next(numbers), types) for id, types in zip(ids, columns, strict=True)
        }
        found = LetRec(
            tuple(local.number for local in locals.values()),
            columns,
            tuple(_with_locals(value, locals) for value in values),
            _with_locals(found, locals),
            limit,
            fails,
        )
    return found


def _union(recursion: Recursion, numbers: Iterator[int]) -> Relation:
    """Return the rows of one round of WITH RECURSIVE, which reads those of the round before."""
    base, step = (_assembled(block, numbers) for block in recursion.blocks)
    if not _is_row_by_row(step, recursion.working, distinct=recursion.distinct):
        raise FeatureNotSupported(
            "a recursive term that aggregates, orders or limits its rows is not supported in a view"
        )
    read = {recursion.working: Get(recursion.result, _nullable(base))}
    found = Union((base, _replaced(step, read)))
    if not recursion.distinct:
        return found
    columns = _nullable(base)
    return Reduce(found, tuple(Column(i, each.type) for i, each in enumerate(columns)), ())


def _is_row_by_row(relation: Relation, id: GlobalId, *, distinct: bool) -> bool:
    """Whether what a step gives for rows is what it gives for each; `distinct`: as a set."""
    varying: set[int] = set()  # numbers of Lets

    def reads(node: Relation) -> bool:
        return any(
            (isinstance(each, Get) and each.id == id)
            or (isinstance(each, LocalGet) and each.number in varying)
            for each in walk_relations(node)
        )

    def check(node: Relation) -> bool:
        if isinstance(node, Let) and reads(node.value):
            varying.add(node.number)
        if not reads(node):
            return True
        if isinstance(node, Join) and sum(map(reads, node.inputs)) > 1:
            return False
        plain = isinstance(node, Get | LocalGet | Let | Map | Filter | Project | FlatMap | Join)
        plain |= isinstance(node, Union)
        if distinct:
            plain |= isinstance(node, Reduce) and bool(node.group_key) and not node.aggregates
        else:
            plain |= isinstance(node, Negate)
        return plain and all(map(check, inputs_of(node)))

    return check(relation)


def _nullable(relation: Relation) -> tuple[ColumnType, ...]:
    return tuple(ColumnType(column.type) for column in columns_of(relation))


def _with_locals(relation: Relation, locals: dict[GlobalId, LocalGet]) -> Relation:
    return _replaced(relation, dict(locals))


def _replaced(relation: Relation, by: dict[GlobalId, Get] | dict[GlobalId, LocalGet]) -> Relation:
    """Return a relation that reads others in place of some collections."""
    if isinstance(relation, Get):
        return by.get(relation.id, relation)
    inputs = inputs_of(relation)
    changed = tuple(_replaced(each, by) for each in inputs)
    if all(a is b for a, b in zip(inputs, changed, strict=True)):
        return relation
    return with_inputs(relation, changed)


class _Taking:
    """Takes the recursions out of relations."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._found: list[AnyRecursion] = []

    def block(self, relation: Relation, bound: dict[int, Relation]) -> Block:
        """Return a relation as a block; `bound` has what LocalGets stand for.

        Lets are put in, since their values may have recursions, and made again for the rest.
        """
        before, self._found = self._found, []
        rest = self._rest(relation, bound)
        found, self._found = tuple(self._found), before
        return Block(share(rest), found)

    def _rest(self, node: Relation, bound: dict[int, Relation]) -> Relation:
        match node:
            case Let(number=number, value=value, body=body):
                return self._rest(body, {**bound, number: self._rest(value, bound)})
            case LocalGet(number=number):
                return bound.get(number, node)
            case LetRec() if not is_used(node):
                return self._rest(node.body, bound)
            case LetRec(numbers=numbers, columns=columns):
                ids = tuple(GlobalId(f"r{next(self._numbers)}") for _ in numbers)
                gets = [Get(id, types) for id, types in zip(ids, columns, strict=True)]
                bound = {**bound, **dict(zip(numbers, gets, strict=True))}
                blocks = tuple(self.block(value, bound) for value in node.values)
                self._found.append(MutualRecursion(ids, columns, blocks, node.limit, node.fails))
                return self._rest(node.body, bound)
            case _:
                inputs = tuple(self._rest(each, bound) for each in inputs_of(node))
                return with_inputs(node, inputs) if inputs else node
