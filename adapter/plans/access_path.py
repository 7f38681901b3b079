"""Access paths: where the rows of a query come from, decided when it is planned.

    Constant    nowhere: the query reads nothing, and kernels compute it
    KeyLookup   the key index of a table, for keys that the statement names
    IndexRead   an index of the session's cluster, for literal keys or whole
    IndexLookups  several of these, for keys, or one of which more than rows is asked
    InProcess   an engine in this process: system relations, recursions, the transaction's writes
    Bulk        an engine of the session's cluster, over shards and indexes

A prepared statement keeps its `PeekPlan`. An execution only binds arguments and session values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from foreshore.adapter.plans.calls import call_nextval, calls_in
from foreshore.compute.local.given_arrays import reads_arrays
from foreshore.compute.local.linear import can_evaluate_locally
from foreshore.compute.local.streamed import can_stream
from foreshore.expr.cost import is_heavy, is_large
from foreshore.expr.ir import Column, Get, OrderKey, Relation, Scalar, single_input
from foreshore.expr.keys import Key, KeyRange
from foreshore.expr.python_calls import calls_python
from foreshore.expr.traversal import sources_of, walk_relations
from foreshore.ids import GlobalId, is_builtin, is_user
from foreshore.sql.optimize.key_range import key_range
from foreshore.sql.optimize.key_steps import (
    FEW,
    KeysOf,
    KeyStep,
    Restricted,
    Step,
    TableKey,
    TableKeys,
    WholeStep,
)
from foreshore.sql.optimize.lookup import literal_lookup
from foreshore.sql.optimize.optional import optional_steps
from foreshore.sql.optimize.pages import restricted_to_pages, restricted_to_ranges
from foreshore.sql.optimize.recursive_steps import RestrictedBlock, restricted_block
from foreshore.sql.optimize.restrict import restricted
from foreshore.sql.optimize.table_range import first_of_join, range_of_table, selectivity
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.bind_parameters import environment_names, is_open


@dataclass(frozen=True, slots=True)
class Constant:
    """The kernels compute `relation`, which reads nothing."""

    relation: Relation


@dataclass(frozen=True, slots=True)
class InProcess:
    """An engine in this process computes `relation`."""

    relation: Relation


@dataclass(frozen=True, slots=True)
class Bulk:
    """An engine of the session's cluster computes `relation`.

    `whole` are its collections, if all of them have an index, or had few rows when it was planned.
    """

    relation: Relation
    whole: tuple[WholeStep, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexRead:
    """`relation` (Map, Filter, Project) over rows of `on` in an index: under `keys`, or in `range`.

    Without either all rows are read. `whole` is the query over all rows, which are read if there
    are too many keys.
    """

    index: GlobalId
    on: GlobalId
    keys: tuple[Key, ...] | None
    relation: Relation
    whole: Relation
    range: KeyRange | None = None

    @property
    def reads_all(self) -> bool:
        """Whether all rows are read."""
        return self.keys is None and self.range is None


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """`relation` over the rows that `steps` find in the key indexes of tables.

    `otherwise` is used at times that a key index does not know, and if there are too many rows.
    """

    steps: tuple[Step, ...]
    relation: Relation
    otherwise: IndexRead | Bulk

    @property
    def named(self) -> KeyStep | None:
        """The only step, if its keys are known without reading a table."""
        step = self.steps[0]
        is_named = (
            len(self.steps) == 1
            and isinstance(step, KeyStep)
            and step.is_stable
            and not any(is_user(id) for source in step.sources for id in sources_of(source))
        )
        return step if isinstance(step, KeyStep) and is_named else None

    @property
    def tables(self) -> tuple[GlobalId, ...]:
        """The tables that are read."""
        return tuple(step.table for step in self.steps)


@dataclass(frozen=True, slots=True)
class IndexLookups:
    """`relation` over the rows that `steps` find in indexes of the cluster, or by tables' keys.

    `gets` are the collections as they are read. `otherwise` is used if there are too many rows.
    """

    steps: tuple[KeyStep, ...]
    relation: Relation
    gets: Mapping[GlobalId, Get]
    otherwise: Bulk

    @staticmethod
    def index_of(step: KeyStep) -> GlobalId | None:
        """Return the index in which a step finds its rows; None: it uses a table's own key."""
        return step.by.index

    @property
    def collections(self) -> frozenset[GlobalId]:
        """The indexes, and the tables looked up by their own keys."""
        return frozenset(self.index_of(step) or step.table for step in self.steps)


AccessPath: TypeAlias = Constant | KeyLookup | IndexRead | IndexLookups | InProcess | Bulk


@dataclass(frozen=True, slots=True)
class PeekPlan:
    """A query and its access path."""

    query: Query
    path: AccessPath
    sources: frozenset[GlobalId]
    shards: frozenset[GlobalId]  # the sources that are read as of a time: not the system's
    is_open: bool  # whether there are parameters or session values to bind
    is_timed: bool  # whether the answer depends on the time of the read
    has_side_effects: bool  # whether it calls functions with side effects
    calls_nextval: bool  # whether it calls nextval
    reads_nothing: bool  # except the rows of its init plans
    is_large: bool  # whether traversing its relation takes milliseconds
    has_arrays: bool  # whether arrays are among its inputs
    # Paths that are shorter unless the scalar before them, an argument's condition, is TRUE.
    optional: tuple[tuple[Scalar, KeyLookup], ...] = ()
    recursive: RestrictedBlock | None = None  # recursions of which keys find all rows

    @property
    def key(self) -> KeyLookup | None:
        """The lookup, if the rows come from a key index."""
        return self.path if isinstance(self.path, KeyLookup) else None

    @property
    def index(self) -> IndexRead | None:
        """The read, if the rows come from an index of the cluster; see `without_key`."""
        path = self.path.otherwise if isinstance(self.path, KeyLookup) else self.path
        return path if isinstance(path, IndexRead) else None

    @property
    def asks_cluster(self) -> bool:
        """Whether the session's cluster is asked, at least if a key index does not answer."""
        return not isinstance(self.path, Constant | InProcess)

    def without_key(self) -> "PeekPlan":
        """Return the plan without its key lookup."""
        path = self.path
        return replace(self, path=path.otherwise) if isinstance(path, KeyLookup) else self

    def without_lookups(self) -> "PeekPlan":
        """Return the plan without key lookup and without lookups in indexes."""
        path = self.path
        if isinstance(path, KeyLookup | IndexLookups):
            return replace(self, path=path.otherwise)
        return self

    def in_process(self) -> "PeekPlan":
        """Return the plan evaluated in this process, which alone knows uncommitted writes."""
        return replace(self, path=InProcess(self.query.relation))

    def reading_whole(self) -> "PeekPlan":
        """Return the plan with an index read as a whole instead of by keys."""
        path = self.path
        assert isinstance(path, IndexRead), path
        return replace(self, path=replace(path, keys=None, relation=path.whole))

    def bound_path(self, relation: Relation, *, has_long_values: bool = False) -> AccessPath:
        """Return the path for its bound `relation`: short arguments may need no engine."""
        if has_long_values and isinstance(self.path, Constant) and is_heavy(relation):
            return Constant(relation) if can_stream(relation) else InProcess(relation)
        if isinstance(self.path, InProcess) and not self.is_large and self.reads_nothing:
            return Constant(relation) if is_for_kernels(relation) else InProcess(relation)
        return (
            self.path if relation is self.path.relation else replace(self.path, relation=relation)
        )


@dataclass(frozen=True, slots=True)
class IndexOn:
    """An index that may be read: its id, and its key over the relation's columns."""

    id: GlobalId
    key: tuple[Scalar, ...]


def is_for_kernels(relation: Relation) -> bool:
    """Whether kernels compute a relation that reads nothing, at once or in parts."""
    return can_evaluate_locally(relation) or can_stream(relation)


GIVEN_ROWS = TableKeys(given=True)

Indexes = Callable[[GlobalId], Sequence[IndexOn]]


def plan_peek(query: Query, indexes: Indexes, keys: KeysOf, *, by_keys: bool = True) -> PeekPlan:
    """Return the plan of `query`.

    `indexes` returns the hydrated indexes of a relation, `keys` the keys of a table.
    Without `by_keys` an index is read whole.
    """
    block = query.block
    relations = list(block.relations())
    read = block.sources()
    sources = read - {each.id for each in query.changes} - {each.id for each in query.init_plans}
    calls = list(chain.from_iterable(map(calls_in, relations)))
    optional: tuple[tuple[Scalar, KeyLookup], ...] = ()
    recursive: RestrictedBlock | None = None
    path: AccessPath
    if not read and not query.recursions and is_for_kernels(query.relation):
        path = Constant(query.relation)
    elif query.recursions or not (sources or query.changes) or any(map(is_builtin, sources)):
        path = InProcess(query.relation)
        if query.recursions and by_keys and not calls and sources and all(map(is_user, read)):
            recursive = restricted_block(block, keys)
    elif query.engine is not None:
        path = Bulk(query.relation)
    else:
        path = find_index(query, indexes, by_keys=by_keys) or Bulk(query.relation)
        if isinstance(path, IndexRead) and path.reads_all and calls_python(query.relation):
            path = Bulk(query.relation)  # in a process that a cancellation ends
        if by_keys and not calls:
            given = read - sources | {each.id for each in query.changes}
            reads_all = isinstance(path, Bulk) or (
                isinstance(path, IndexRead) and path.keys is None
            )
            few = find_few(query, keys, given, reads_all=reads_all)
            if few is not None:
                path = KeyLookup(few.steps, few.relation, path)
            elif isinstance(path, Bulk) and not query.changes and not query.init_plans:
                whole = whole_collections(query.relation, indexes, keys)
                path = find_lookups(query.relation, indexes, keys) or replace(path, whole=whole)
            if not given and not (few is not None and isinstance(few.steps[0], KeyStep)):
                optional = tuple(
                    (unless, KeyLookup(each.steps, each.relation, Bulk(query.relation)))
                    for unless, each in optional_steps(query.relation, keys)
                )
    shards = frozenset(id for id in sources if not is_builtin(id))
    session_values = frozenset().union(*map(environment_names, relations))
    return PeekPlan(
        query,
        path,
        sources | {each.of for each in query.changes},
        shards,
        any(map(is_open, relations)) or query.limit is not None or query.offset is not None,
        bool(shards) or bool(query.changes) or "mz_now" in session_values,
        bool(calls),
        call_nextval(calls),
        not (sources or query.changes or query.recursions),
        any(map(is_large, relations)),
        any(map(reads_arrays, relations)),
        optional,
        recursive,
    )


def find_few(
    query: Query, keys: KeysOf, given: frozenset[GlobalId], *, reads_all: bool
) -> Restricted | None:
    """Return how the keys of tables find few rows that answer a query; None if they do not.

    The rows of `given` collections are known. Without it the query `reads_all` rows of tables.
    """
    relation = query.relation
    if given:
        return restricted(relation, lambda id: GIVEN_ROWS if id in given else keys(id))
    found = restricted_to_pages(relation, keys)
    if found is not None:
        return found
    found = restricted(relation, keys)
    if not reads_all and found is None:
        return None
    order = _cut_order(query)
    found = range_of_table(relation, keys, order, found) or found
    found = found or first_of_join(relation, keys, order or ())
    if found is None or found.reads_whole:
        return restricted_to_ranges(relation, keys) or found
    return found


def find_index(query: Query, indexes: Indexes, *, by_keys: bool) -> IndexRead | None:
    """Return the index read that answers a query, if there is one.

    It looks up most columns of a key, else reads a range, else all.
    """
    relation = query.relation
    get = single_input(relation)
    if get is None:
        return None
    ready = indexes(get.id)
    lookups = [
        (len(index.key), IndexRead(index.id, get.id, found.keys, found.residual, relation))
        for index in (ready if by_keys else ())
        if (found := literal_lookup(relation, index.key)) is not None
    ]
    if lookups:
        return max(lookups, key=lambda each: each[0])[1]
    if not ready:
        return None
    order = _cut_order(query) or ()
    ranges = [
        (selectivity(part), IndexRead(index.id, get.id, None, relation, relation, part))
        for index in (ready if by_keys else ())
        if (part := key_range(relation, index.key, order)) is not None
    ]
    if ranges:
        return max(ranges, key=lambda each: each[0])[1]
    return IndexRead(ready[0].id, get.id, None, relation, relation)


def whole_collections(relation: Relation, indexes: Indexes, keys: KeysOf) -> tuple[WholeStep, ...]:
    """Return what a relation reads, if all of it is small tables with keys and indexes."""
    steps = []
    for id in sources_of(relation):
        table = keys(id)
        if table.keys and table.rows is not None and table.rows <= FEW:
            steps.append(WholeStep(id))
        elif ready := indexes(id):
            steps.append(WholeStep(id, index=ready[0].id))
        else:
            return ()
    return tuple(steps)


def find_lookups(relation: Relation, indexes: Indexes, keys: KeysOf) -> IndexLookups | None:
    """Return the lookups in indexes, and by tables' keys, that find all rows of a relation."""

    def with_indexes(id: GlobalId) -> TableKeys:
        found = [
            TableKey(index.id, tuple(each.index for each in columns), index=index.id)
            for index in indexes(id)
            if len(columns := [e for e in index.key if isinstance(e, Column)]) == len(index.key)
        ]
        return TableKeys((*keys(id).keys, *found))

    few = restricted(relation, with_indexes)
    if few is None:
        return None
    steps = tuple(step for step in few.steps if isinstance(step, KeyStep))
    if len(steps) < len(few.steps) or not all(_is_whole(step) for step in steps):
        return None
    gets = {node.id: node for node in walk_relations(relation) if isinstance(node, Get)}
    return IndexLookups(steps, few.relation, gets, Bulk(relation))


def _is_whole(step: KeyStep) -> bool:
    """Whether a step names all columns of an index; a cluster cannot look up the first ones."""
    return step.by.index is None or step.columns == step.by.columns


def _cut_order(query: Query) -> Sequence[OrderKey] | None:
    """Return the order that LIMIT cuts off, without keys if it is any; None without LIMIT."""
    is_cut = query.limit is not None or query.finishing.limit is not None
    return query.finishing.order_by if is_cut and not query.row_outputs else None
