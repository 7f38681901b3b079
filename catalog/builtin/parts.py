"""Rows of builtin relations, kept in parts that follow the catalog.

Most relations of the catalog have rows for each item, and a statement of DDL changes a few items.
So the rows of such a relation are made for groups of items, and kept until an item of the group
changes, or one that its rows may mention: what it depends on, what depends on it, and what has its
name in another schema. What changes a role, a schema or a database is rare, and changes all parts.

A relation may be kept so if its rows are those of `snapshot.rest()` and of `snapshot.part(ids)` for
disjoint sets of ids, together.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.catalog.item import Item, Schema
from foreshore.catalog.state import State
from foreshore.ids import GlobalId, number_of
from foreshore.in_turns import Steps

GROUP = 16  # items, by their numbers
MOST_CHANGED = 256  # objects, for which those near to them are looked for: some milliseconds
MOST_RELATIONS = 512  # that are kept, of all databases, search paths and roles

PARTED = frozenset(
    "pg_attrdef pg_attribute pg_class pg_constraint pg_depend pg_description pg_enum pg_index"
    " pg_indexes pg_matviews pg_policies pg_policy pg_proc pg_rewrite pg_sequence pg_tables"
    " pg_type pg_views"
    " domains domain_constraints attributes user_defined_types routines parameters"
    " check_constraints"
    " view_table_usage view_column_usage view_routine_usage column_udt_usage element_types"
    " tables columns views sequences table_constraints key_column_usage constraint_column_usage"
    " constraint_table_usage referential_constraints table_privileges role_table_grants"
    " column_privileges role_column_grants usage_privileges role_usage_grants"
    " mz_objects mz_columns pg_object_definitions pg_relation_visibility"
    " mz_object_dependencies mz_object_rights".split()
)

_Group: TypeAlias = tuple[str, int]
_REST: _Group = ("", 0)  # what belongs to no item


@dataclass(frozen=True, slots=True)
class Origin:
    """The values that, with the catalog's state, determine the rows of a builtin relation."""

    relation: GlobalId
    database: str
    search_path: tuple[str, ...]  # empty if the rows do not depend on it
    role: str = ""  # the id of the current role, likewise


@dataclass(frozen=True, slots=True)
class RelationRead:
    """A read of the rows of a builtin relation in `state`, which `snapshot` shows."""

    state: State
    origin: Origin
    builtin: Builtin
    snapshot: Callable[[], IntrospectionSnapshot]
    is_own: bool = False  # whether the state is that of a transaction, which others do not see


class RelationRows:
    """The rows of a relation in one state of the catalog.

    A part is the same object as long as its rows are.
    """

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        self.parts = parts  # at least one
        self.made: Any = None  # of the rows, by who reads them
        self.count = sum(part.num_rows for part in parts)

    @cached_property
    def table(self) -> pa.Table:
        """Return all rows, in whole columns."""
        parts = self.parts
        return pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class _View:
    """The items of a state in groups, and the groups that differ from those of another view."""

    state: State = field(default_factory=State)
    groups: Mapping[_Group, frozenset[GlobalId]] = field(default_factory=dict)
    stale: frozenset[_Group] = frozenset()

    def at(self, state: State) -> "_View":
        """Return the view of `state`; its stale groups may have other rows than in this view.

        That is found out for a few changes. After many, as at a start, all groups are stale: to
        look for what each may mention would hold up other sessions for longer.
        """
        old, new = self.state.objects, state.objects
        changed = {*state.changed(self.state)}
        items = {id for id in changed if isinstance(new.get(id) or old[id], Item)}
        groups = dict(self.groups)
        for id in items:
            group, known = _group_of(id), frozenset((GlobalId(id),))
            ids = groups.pop(group, frozenset())
            ids = ids | known if id in new else ids - known
            if ids:
                groups[group] = ids
        if len(changed) > MOST_CHANGED:
            return _View(state, groups, frozenset((_REST, *self.groups, *groups)))
        near = {each for state in (self.state, state) for each in _near(state, items)}
        stale = {*map(_group_of, near)}
        if items != changed:
            stale.add(_REST)
        if any(id in old and id in new for id in changed - items):  # say, a new name
            stale |= groups.keys()
        return _View(state, groups, frozenset(stale))


def _group_of(id: str) -> _Group:
    return id[0], number_of(GlobalId(id)) // GROUP


def _near(state: State, changed: set[str]) -> set[str]:
    """Return the items of `state` whose rows may mention the items that have changed."""
    names = set()
    for id in changed:
        item = state.get(id)
        if isinstance(item, Item):
            names |= {item.name, *(each.name for each in item.constraints)}
    found = set(changed)
    for schema in state.all(Schema):
        for name in names:
            same = state.item_in(schema.id, name) or state.with_key(schema.id, name)
            found |= set() if same is None else {same.id}
    for id in tuple(found):
        found |= state.above(id)
        found |= {table for table, _ in state.references_to(GlobalId(id))}
    return found.union(*(_used(state, id) for id in found))


def _used(state: State, id: str) -> set[str]:
    """Return the items that an item uses or belongs to."""
    item = state.get(id)
    if not isinstance(item, Item):
        return set()
    used = {*item.depends_on, item.on or "", item.part_of or ""}
    used |= {key.references for key in item.foreign_keys or ()}
    used |= {item.owned_by.table} if item.owned_by else set()
    used |= {item.policy.table} if item.policy else set()
    return {each for each in used if isinstance(state.get(each), Item)}


class Parts:
    """The parts of relations in the newest state of the catalog that was asked about."""

    def __init__(self) -> None:
        self._view = _View()
        self._own = self._view, self._view  # that of a transaction, and the one it was made of
        self._kept: OrderedDict[Origin, dict[_Group, pa.Table]] = OrderedDict()

    def advance(self, state: State) -> None:
        """Make `state` the newest one, unless a newer one is known."""
        if state is not self._view.state and state.version >= self._view.state.version:
            self._view = self._view.at(state)
            for kept in self._kept.values():
                for group in self._view.stale & kept.keys():
                    del kept[group]

    def forget(self, is_over: Callable[[Origin], bool]) -> None:
        """Forget the relations whose origins are never asked for again."""
        for key in filter(is_over, [*self._kept]):
            del self._kept[key]

    def shows(self, state: State) -> bool:
        """Whether `state` is the newest one."""
        return state is self._view.state

    def rows(self, read: RelationRead) -> Steps[RelationRows]:
        """Return the rows of a relation.

        The state may be that of a transaction: where it differs from the newest one, its rows are
        not kept. Nor are they once a newer one has come between two steps.
        """
        newest = self._view
        own = not self.shows(read.state)
        view = self._view_of(read.state) if own else newest
        kept = self._kept.setdefault(read.origin, {})
        self._kept.move_to_end(read.origin)
        if len(self._kept) > MOST_RELATIONS:
            self._kept.popitem(last=False)
        known = {group: rows for group, rows in kept.items() if not (own and group in view.stale)}
        missing = (view.groups.keys() | {_REST}) - known.keys()
        if missing:
            whole = read.snapshot()
            for group in missing:
                part = whole.rest() if group is _REST else whole.part(view.groups[group])
                known[group] = yield from read.builtin.steps(part)
                if self._view is newest and not (own and group in view.stale):
                    kept[group] = known[group]
        tables = [known[group] for group in sorted(view.groups)]
        return RelationRows((known[_REST], *(table for table in tables if table.num_rows)))

    def _view_of(self, state: State) -> _View:
        """Return the view of a transaction's state, which is read several times in a row."""
        newest, (view, made_of) = self._view, self._own
        if view.state is not state or made_of is not newest:
            view = newest.at(state)
            self._own = view, newest
        return view
