"""Peek plans: how a query will be answered, found once and kept with the prepared statement.

    constant   nothing is read: the kernels compute it at once
    index      Map, Filter and Project over a relation with an index: looked up by literal keys, or
               read whole, on a replica
    local      over the system's own relations, on an engine in this process
    bulk       everything else, on a replica of the session's cluster

A query that asks a table for literal keys is answered from the table's key index, in this process
and at once, if that is readable at the time; otherwise in one of the ways above.

What is left to do at each execution is to put arguments in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal as OneOf

from foreshore.adapter.session.side_effects import calls_in, draws
from foreshore.compute.local.linear import can_evaluate_locally
from foreshore.constraint import Unique
from foreshore.expr.block import Block
from foreshore.expr.cost import is_large
from foreshore.expr.ir import (
    Column,
    Filter,
    Finishing,
    Get,
    Map,
    Project,
    Relation,
    Scalar,
    columns_of,
)
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.optimize.lookup import literal_lookup
from foreshore.sql.plan import InitPlan, Query
from foreshore.sql.rewrite.bind_parameters import Replace, bind_block, environment_names, is_open
from foreshore.types import RelationDesc

Way = OneOf["constant", "index", "local", "bulk"]


@dataclass(frozen=True, slots=True)
class IndexLookup:
    """The index to read, and the keys to look up: scalars without columns; None: all of it."""

    index: GlobalId
    on: GlobalId
    keys: tuple[tuple[Scalar, ...], ...] | None


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The unique constraint of a table by which to look `keys` up, and what to make of the rows."""

    table: GlobalId
    constraint: Unique
    keys: tuple[tuple[Scalar, ...], ...]
    residual: Relation


@dataclass(frozen=True, slots=True)
class PeekPlan:
    """A query as it is run."""

    query: Query
    relation: Relation
    sources: frozenset[GlobalId]
    shards: frozenset[GlobalId]  # the sources that are read as of a time, but for the system's
    way: Way
    open: bool  # whether arguments or the environment go in
    is_timed: bool  # whether the answer depends on the time of the read
    acts: bool  # whether it calls functions that act on the session
    draws: bool  # whether one of them draws numbers
    is_large: bool  # whether looking through it takes so long that nobody should wait for it
    lookup: IndexLookup | None = None
    key: KeyLookup | None = None

    def way_of(self, relation: Relation) -> Way:
        """Return how the query is answered when all is put in: what is short needs no engine."""
        if self.is_large:
            return self.way
        if self.way == "local" and self.reads_nothing and can_evaluate_locally(relation):
            return "constant"
        return self.way

    @property
    def reads_nothing(self) -> bool:
        """Whether the answer comes from nothing but the query's text and what is put in.

        So does what its init plans have found.
        """
        return not (self.sources or self.query.changes or self.query.recursions)

    def block(
        self, relation: Relation, replace: Replace, finishing: Finishing | None = None
    ) -> Block:
        """Return `relation` with the query's recursions, into which `replace` puts what it has.

        It needs to have no more rows than `finishing` will let through.
        """
        recursions = self.query.recursions
        if not recursions:
            return Block(relation)
        bound = bind_block(Block(relation, recursions), replace)
        wanted = None
        if finishing is not None and finishing.limit is not None and not finishing.order_by:
            wanted = finishing.limit + finishing.offset
        return Block(relation, bound.recursions, wanted)


@dataclass(frozen=True, slots=True)
class IndexOn:
    """An index that may be used: its id and its key, scalars over the relation's columns."""

    id: GlobalId
    key: tuple[Scalar, ...]


Indexes = Callable[[GlobalId], Sequence[IndexOn]]


def plan_peek(
    query: Query,
    indexes: Indexes,
    keys: Callable[[GlobalId], Sequence[Unique]],
    *,
    by_keys: bool = True,
) -> PeekPlan:
    """Return how `query` will be answered.

    `indexes` tells those that are ready for a relation, `keys` the unique constraints of a table.
    Without `by_keys` an index is read whole, and the plan's relation is all of the query.
    """
    relation = query.relation
    block = Block(relation, query.recursions)
    read = block.sources()
    changes = {each.id for each in query.changes}
    sources = read - changes - {each.id for each in query.init_plans}
    environment = frozenset().union(*map(environment_names, block.relations()))
    lookup = key = None
    calls = list(chain.from_iterable(map(calls_in, block.relations())))
    acts = bool(calls)
    way: Way
    if query.recursions:
        way = "local"
    elif not read and can_evaluate_locally(relation):
        way = "constant"
    elif not (sources or query.changes) or any(is_builtin(id) for id in sources):
        way = "local"
    else:
        key = find_key(relation, keys) if by_keys and not acts else None
        found = find_lookup(relation, indexes, by_keys=by_keys)
        way = "bulk"
        if found is not None:
            way = "index"
            lookup, relation = found
    shards = frozenset(id for id in sources if not is_builtin(id))
    return PeekPlan(
        query,
        relation,
        sources | {each.of for each in query.changes},
        shards,
        way,
        any(map(is_open, block.relations())) or query.limit is not None or query.offset is not None,
        bool(shards) or bool(query.changes) or "mz_now" in environment,
        acts,
        draws(calls),
        any(map(is_large, block.relations())),
        lookup,
        key,
    )


def whole(relation: Relation, init_plans: tuple[InitPlan, ...] = ()) -> Query:
    """Return the query for all rows of `relation`, in any order."""
    columns = columns_of(relation)
    names = tuple(f"c{i}" for i in range(len(columns)))
    finishing = Finishing((), None, 0, tuple(range(len(columns))))
    return Query(relation, finishing, RelationDesc(names, columns), init_plans=init_plans)


def find_key(relation: Relation, keys: Callable[[GlobalId], Sequence[Unique]]) -> KeyLookup | None:
    """Return how a key index answers `relation`, if it is about literal keys of one table."""
    below = relation
    while isinstance(below, Map | Filter | Project):
        below = below.input
    if not isinstance(below, Get):
        return None
    for constraint in keys(below.id):
        columns = [
            Column(i, below.columns[i].type, below.columns[i].nullable) for i in constraint.columns
        ]
        found = literal_lookup(relation, columns)
        if found is not None:
            return KeyLookup(below.id, constraint, found.keys, found.residual)
    return None


def find_lookup(
    relation: Relation, indexes: Indexes, *, by_keys: bool = True
) -> tuple[IndexLookup, Relation] | None:
    """Return how an index answers `relation`, if one does: by keys if possible, else whole.

    The second is what remains to be computed of the rows found.
    """
    below = relation
    while isinstance(below, Map | Filter | Project):
        below = below.input
    if not isinstance(below, Get):
        return None
    ready = indexes(below.id)
    found_by_keys = [
        (len(index.key), IndexLookup(index.id, below.id, found.keys), found.residual)
        for index in (ready if by_keys else ())
        if (found := literal_lookup(relation, index.key)) is not None
    ]
    if found_by_keys:
        _, lookup, residual = max(found_by_keys, key=lambda each: each[0])
        return lookup, residual
    return (IndexLookup(ready[0].id, below.id, None), relation) if ready else None
