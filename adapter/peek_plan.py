"""Peek plans: how a query will be answered, found once and kept with the prepared statement.

    constant   nothing is read: the kernels compute it at once
    index      Map, Filter and Project over a relation with an index: looked up by literal keys, or read
               whole, on a replica
    local      over the system's own relations, on an engine in this process
    bulk       everything else, on a replica of the session's cluster

What is left to do at each execution is to put arguments in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.adapter.local import is_linear
from foreshore.adapter.substitute import environment_names, is_open
from foreshore.expr.ir import (
    And,
    Call,
    Column,
    Filter,
    Get,
    Map,
    Or,
    Project,
    Relation,
    Scalar,
    operands_of,
    sources_of,
    walk_scalars,
    with_operands,
)
from foreshore.ids import GlobalId
from foreshore.sql.plan import Query

Way = OneOf["constant", "index", "local", "bulk"]


@dataclass(frozen=True, slots=True)
class IndexLookup:
    """The index to read, and the keys to look up: scalars without columns; None: all of it."""

    index: GlobalId
    on: GlobalId
    keys: tuple[tuple[Scalar, ...], ...] | None


@dataclass(frozen=True, slots=True)
class PeekPlan:
    """A query as it is run."""

    query: Query
    relation: Relation
    sources: frozenset[GlobalId]
    way: Way
    open: bool  # whether arguments or the environment go in
    environment: frozenset[str]
    lookup: IndexLookup | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the answer depends on the time of the read."""
        return self.lookup is not None or bool(self.shards) or "mz_now" in self.environment

    @property
    def shards(self) -> frozenset[GlobalId]:
        """The sources that are not the system's."""
        return frozenset(id for id in self.sources if not id.startswith("s"))


@dataclass(frozen=True, slots=True)
class IndexOn:
    """An index that may be used: its id and its key, scalars over the relation's columns."""

    id: GlobalId
    key: tuple[Scalar, ...]


def plan_peek(query: Query, indexes: Callable[[GlobalId], Sequence[IndexOn]]) -> PeekPlan:
    """Return how `query` will be answered; `indexes` tells those that are ready for a relation."""
    relation = query.relation
    sources = sources_of(relation)
    lookup = None
    way: Way
    if not sources and is_linear(relation):
        way = "constant"
    elif not sources or any(id.startswith("s") for id in sources):
        way = "local"
    else:
        lookup = find_lookup(relation, indexes)
        way = "index" if lookup is not None else "bulk"
    limits = [bound for bound in (query.limit, query.offset) if bound is not None]
    return PeekPlan(
        query,
        relation,
        sources,
        way,
        is_open(relation) or bool(limits),
        environment_names(relation),
        lookup,
    )


def find_lookup(
    relation: Relation, indexes: Callable[[GlobalId], Sequence[IndexOn]]
) -> IndexLookup | None:
    """Return how an index answers `relation`, if one does: by keys if possible, else whole."""
    found = _peeled(relation)
    if found is None:
        return None
    source, _, predicates = found
    ready = indexes(source.id)
    by_keys = [
        (len(index.key), IndexLookup(index.id, source.id, keys))
        for index in ready
        if (keys := _keys(index.key, predicates)) is not None
    ]
    if by_keys:
        return max(by_keys, key=lambda each: each[0])[1]
    return IndexLookup(ready[0].id, source.id, None) if ready else None


def _peeled(relation: Relation) -> tuple[Get, list[Scalar], list[Scalar]] | None:
    """Return the Get below linear operators, what the columns are of it, and all predicates."""
    match relation:
        case Get(columns=columns):
            return (
                relation,
                [Column(i, each.type, each.nullable) for i, each in enumerate(columns)],
                [],
            )
        case Map(input=input, scalars=scalars):
            below = _peeled(input)
            if below is None:
                return None
            source, outputs, predicates = below
            outputs = list(outputs)
            for scalar in scalars:
                outputs.append(_over(scalar, outputs))
            return source, outputs, predicates
        case Project(input=input, outputs=places):
            below = _peeled(input)
            if below is None:
                return None
            source, outputs, predicates = below
            return source, [outputs[i] for i in places], predicates
        case Filter(input=input, predicates=more):
            below = _peeled(input)
            if below is None:
                return None
            source, outputs, predicates = below
            added = [_over(part, outputs) for each in more for part in _conjuncts(each)]
            return source, outputs, [*predicates, *added]
        case _:
            return None


def _over(scalar: Scalar, columns: Sequence[Scalar]) -> Scalar:
    if isinstance(scalar, Column):
        return columns[scalar.index]
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(_over(operand, columns) for operand in operands))


def _conjuncts(predicate: Scalar) -> Sequence[Scalar]:
    return predicate.args if isinstance(predicate, And) else (predicate,)


def _keys(
    key: tuple[Scalar, ...], predicates: Sequence[Scalar]
) -> tuple[tuple[Scalar, ...], ...] | None:
    """Return the values that `predicates` allow for `key`, None if they do not say."""
    choices: list[tuple[Scalar, ...]] = []
    for part in map(_bare, key):
        values = next(
            (found for each in predicates if (found := _values(part, each)) is not None), None
        )
        if values is None:
            return None
        choices.append(values)
    keys: list[tuple[Scalar, ...]] = [()]
    for values in choices:
        keys = [(*prefix, value) for prefix in keys for value in values]
        if len(keys) > 1_000:
            return None
    return tuple(keys)


def _values(part: Scalar, predicate: Scalar) -> tuple[Scalar, ...] | None:
    """Return the constants to which `predicate` says `part` is equal."""
    match predicate:
        case Call(function="eq", args=(left, right)):
            for side, other in ((left, right), (right, left)):
                if _bare(side) == part and _is_free(other):
                    return (other,)
            return None
        case Or(args=args):
            found = [_values(part, each) for each in args]
            if any(each is None for each in found):
                return None
            return tuple(value for each in found if each is not None for value in each)
        case _:
            return None


def _bare(scalar: Scalar) -> Scalar:
    """Return `scalar` with columns stripped of nullability, to compare by meaning."""
    if isinstance(scalar, Column):
        return Column(scalar.index, scalar.type)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(map(_bare, operands)))


def _is_free(scalar: Scalar) -> bool:
    return not any(isinstance(each, Column) for each in walk_scalars(scalar))
