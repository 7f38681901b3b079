"""The catalog's state: an immutable value for each version of the catalog.

A `State` is the catalog as of one moment. `Transaction` makes the next one: its methods check
PostgreSQL's rules and collect changes, which become durable in one append or not at all. Names are
found through dictionaries. Ids come from the `allotted` counters, which are part of the state and
never go back.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from foreshore.catalog.groups import (
    NO_IDS,
    SECURED,
    Group,
    Ids,
    depending_on,
    functions_named,
    groups_of,
    indexes_in,
    indexes_on,
    of_kind,
    owned_by,
    parts_of,
    policies_on,
    referring_to,
    views_named,
)
from foreshore.catalog.item import (
    PUBLIC_OID,
    Binding,
    Cluster,
    Connection,
    Database,
    Item,
    NetworkPolicy,
    Object,
    Replica,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.naming import NameKey, name_key, names_of_keys, parent_of, wholes_of
from foreshore.catalog.predefined import MONITOR, PREDEFINED, PREFIX
from foreshore.catalog.state_changes import StateChanges
from foreshore.errors import InternalError
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId, number_of
from foreshore.layered_map import LayeredMap
from foreshore.privileges import PUBLIC, Grant

PERMANENT = ""


O = TypeVar("O", bound=Object)  # noqa: E741 - an object of any one collection

# System schemas. Their items are builtin and not in the shard.
SYSTEM_SCHEMAS = tuple(
    Schema(f"n_{name}", oid, None, name, "o1")
    for name, oid in (
        ("pg_catalog", 11),
        ("information_schema", 13_000),
        ("mz_catalog", 13_001),
        ("mz_internal", 13_002),
        ("mz_introspection", 13_003),
    )
)
# Tables that only the system writes. They have shards, but no rows in the catalog's shard.
LAG_HISTORY = Item(
    GlobalId("s2"),
    13_010,
    "table",
    "n_mz_internal",
    "mz_wallclock_global_lag_history",
    "o1",
    "CREATE TABLE mz_internal.mz_wallclock_global_lag_history"
    " (object_id text NOT NULL, lag interval, occurred_at timestamptz NOT NULL)",
    grants=(Grant(PUBLIC, "o1", "r"),),
)
VIEW_ERRORS = Item(
    GlobalId("s3"),
    13_011,
    "table",
    "n_mz_internal",
    "mz_materialized_view_errors",
    "o1",
    "CREATE TABLE mz_internal.mz_materialized_view_errors"
    " (object_id text NOT NULL, sqlstate text, error text, at mz_timestamp NOT NULL)",
    grants=(),  # for superusers, as texts of errors have values of rows
)
AUDIT_EVENTS = Item(
    GlobalId("s4"),
    13_012,
    "table",
    "n_mz_catalog",
    "mz_audit_events",
    "o1",
    "CREATE TABLE mz_catalog.mz_audit_events"
    " (id int8 NOT NULL, event_type text NOT NULL, object_type text NOT NULL,"
    ' details jsonb NOT NULL, "user" text, occurred_at timestamptz NOT NULL)',
    grants=(Grant(MONITOR, "o1", "r"),),
)
SYSTEM_TABLES = (LAG_HISTORY, VIEW_ERRORS, AUDIT_EVENTS)
FIRST_USER_OID = 16_384


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A part of the catalog that changes independently; every change makes a new value.

    There is one part for each temporary schema, with the ids of its items, and one for all
    permanent objects. A session compares the parts that it sees to detect changes.
    """

    items: frozenset[str] = frozenset()


# Foreign keys, each with the id of the table that has it.
References: TypeAlias = tuple[tuple[GlobalId, ForeignKey], ...]

MOST_ASKED = 1024  # sets of items for which a state keeps what is under them


@dataclass(frozen=True, slots=True)
class State:
    """All objects at one version."""

    version: int = 0
    objects: LayeredMap[str, Object] = field(default_factory=LayeredMap)
    # (space, parent's id, name) -> id
    names: LayeredMap[NameKey, str] = field(default_factory=LayeredMap)
    allotted: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=lambda: {PERMANENT: Part()})
    # Ids of items by their oids.
    oids: LayeredMap[int, str] = field(default_factory=LayeredMap)
    # Objects as they were read, with the values of their rows, where this version would write
    # other ones: it is those rows that a change takes away.
    as_read: Mapping[str, tuple[Object, str]] = field(default_factory=dict)
    # Tables by the schema and the name of a unique constraint or index.
    keys: LayeredMap[tuple[str, str], str] = field(default_factory=LayeredMap)
    groups: LayeredMap[Group, Ids] = field(default_factory=LayeredMap)
    # What was asked of this version; see `altered_below`.
    _altered: dict[frozenset[GlobalId], dict[GlobalId, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def get(self, id: str) -> Object | None:
        """Return the object `id`, or None."""
        return self.objects.get(id)

    def item(self, id: str) -> Item:
        """Return the item `id`."""
        found = self.objects[id]
        assert isinstance(found, Item), found
        return found

    def all(self, type: type[O]) -> Iterator[O]:
        """Yield the objects of one type."""
        if type is Item:
            return (each for each in self.objects.values() if isinstance(each, type))
        return (each for each in self.grouped(of_kind(type.collection)) if isinstance(each, type))

    def grouped(self, group: Group) -> list[Object]:
        """Return the objects of a group (`groups.py`)."""
        return [self.objects[id] for id in self.groups.get(group, NO_IDS)]

    def dependents(self, id: str) -> KeysView[str]:
        """Return the ids of the items that depend on an item itself."""
        return self.groups.get(depending_on(id), NO_IDS).keys()

    def items_of(self, group: Group) -> list[Item]:
        """Return the items of a group, oldest first."""
        found = [each for each in self.grouped(group) if isinstance(each, Item)]
        return sorted(found, key=lambda item: number_of(item.id))

    def items(self, ids: Collection[str] | None = None) -> Iterator[Item]:
        """Yield the items, each after the items it depends on; with `ids`, only these."""
        done: set[str] = set()
        among = self.objects if ids is None else ids
        found = (each for each in map(self.objects.__getitem__, among) if isinstance(each, Item))
        # Most items depend on older ones only, but a replaced or renamed one may not.
        waiting = sorted(found, key=lambda item: number_of(item.id))
        while waiting:
            later = []
            for item in waiting:
                if all(need in done or need not in among for need in item.depends_on):
                    done.add(item.id)
                    yield item
                else:
                    later.append(item)
            if len(later) == len(waiting):
                raise InternalError(f"items depend on each other: {[item.id for item in later]}")
            waiting = later

    # --- by name -------------------------------------------------------------------------------

    def role(self, name: str) -> Role | None:
        """Return the role `name`."""
        return self._named(Role, "role", None, name)

    def database(self, name: str) -> Database | None:
        """Return the database `name`."""
        return self._named(Database, "database", None, name)

    def schema(self, database: str, name: str) -> Schema | None:
        """Return the schema `name` of the database with id `database`, or of the system."""
        return self._named(Schema, "schema", None, name) or self._named(
            Schema, "schema", database, name
        )

    def cluster(self, name: str) -> Cluster | None:
        """Return the cluster `name`."""
        return self._named(Cluster, "cluster", None, name)

    def replica(self, cluster: str, name: str) -> Replica | None:
        """Return the replica `name` of the cluster with id `cluster`."""
        return self._named(Replica, "replica", cluster, name)

    def network_policy(self, name: str) -> NetworkPolicy | None:
        """Return the network policy `name`."""
        return self._named(NetworkPolicy, "network policy", None, name)

    def item_in(self, schema: str, name: str) -> Item | None:
        """Return the item `name` of the schema with id `schema`."""
        return self._named(Item, "item", schema, name)

    def secret_in(self, schema: str, name: str) -> Secret | None:
        """Return the secret `name` of the schema with id `schema`."""
        return self._named(Secret, "secret", schema, name)

    def connection_in(self, schema: str, name: str) -> Connection | None:
        """Return the connection `name` of the schema with id `schema`."""
        return self._named(Connection, "connection", schema, name)

    def functions_in(self, schema: str, name: str) -> tuple[Item, ...]:
        """Return the functions `name` of the schema with id `schema`, oldest first."""
        return tuple(self.items_of(functions_named(schema, name)))

    def has_view(self, name: str) -> bool:
        """Return whether a view, or a materialized one, has this name in lower case."""
        return views_named(name) in self.groups

    def indexes_in(self, cluster: str) -> list[Item]:
        """Return the indexes that the cluster with id `cluster` maintains, oldest first."""
        return self.items_of(indexes_in(cluster))

    def policy_on(self, table: str, name: str) -> Item | None:
        """Return the policy `name` of the table with id `table`."""
        return self._named(Item, "policy", table, name)

    def policies_of(self, table: str) -> list[Item]:
        """Return the policies of a table, by name."""
        found = self.items_of(policies_on(table))
        return sorted(found, key=lambda each: each.name)

    @property
    def secured_tables(self) -> frozenset[str]:
        """Return the ids of the tables with row-level security."""
        return frozenset(self.groups.get(SECURED, NO_IDS))

    def is_taken(self, schema: str, name: str) -> bool:
        """Whether an item of the schema, or the index of a constraint, has this name."""
        return self.item_in(schema, name) is not None or self.with_key(schema, name) is not None

    def with_key(self, schema: str, name: str) -> Item | None:
        """Return the table of the schema with a unique constraint or index of this name."""
        id = self.keys.get((schema, name))
        return None if id is None else self.item(GlobalId(id))

    def _named(self, type: type[O], space: str, parent: str | None, name: str) -> O | None:
        id = self.names.get((space, parent, name))
        if id is None:
            return None
        found = self.objects[id]
        assert isinstance(found, type), found
        return found

    def item_with(self, oid: int) -> Item | None:
        """Return the item with this oid."""
        found = self.objects.get(self.oids.get(oid, ""))
        return found if isinstance(found, Item) else None

    # --- by session ----------------------------------------------------------------------------

    def parts_seen_with(self, temporary: str) -> tuple[Part, Part | None]:
        """Return the parts of the catalog seen by the session with this temporary schema."""
        return (self.parts[PERMANENT], self.parts.get(temporary))

    def temporary_items(self, schema: str) -> list[Item]:
        """Return the items of the temporary schema with id `schema`, none if it does not exist."""
        part = self.parts.get(schema)
        return [] if part is None else [self.item(id) for id in part.items]

    # --- by relation ---------------------------------------------------------------------------

    def indexes_on(self, id: str) -> list[Item]:
        """Return the indexes on relation `id`, oldest first."""
        return self.items_of(indexes_on(id))

    def altered(self, id: GlobalId) -> int | None:
        """Return the time at which a table was altered last, None if never.

        It cannot be read before that, and no index on it has its present rows.
        """
        item = self.get(id)
        if isinstance(item, Item) and item.on is not None:
            item = self.item(item.on)
        if not isinstance(item, Item) or item.type != "table":
            return None
        return max(item.since, item.constrained_since or 0) or None

    def altered_below(self, ids: frozenset[GlobalId]) -> Mapping[GlobalId, int]:
        """Return when the altered tables among `ids`, and under the views there, were altered.

        Each statement asks, so the answers are kept.
        """
        found = self._altered.get(ids)
        if found is None:
            named = self.tables_named(ids)
            found = {id: at for id in named if (at := self.altered(id)) is not None}
            if len(self._altered) >= MOST_ASKED:
                self._altered.clear()
            self._altered[ids] = found
        return found

    def tables_named(self, ids: Iterable[GlobalId]) -> set[GlobalId]:
        """Return the tables among `ids` and under the views among them."""
        found: set[GlobalId] = set()
        seen: set[GlobalId] = set()
        stack = list(ids)
        while stack:
            id = stack.pop()
            item = self.get(id)
            if id in seen or not isinstance(item, Item):
                continue
            seen.add(id)
            if item.type == "view":
                stack.extend(item.depends_on)
            elif item.type == "table":
                found.add(id)
        return found

    def above(self, id: str) -> set[str]:
        """Return all direct and indirect dependents of the object `id`, including itself."""
        found: set[str] = set()
        stack = [id]
        while stack:
            each = stack.pop()
            if each not in found:
                found.add(each)
                stack += self.dependents(each)
        return found

    def items_above(self, id: str) -> list[Item]:
        """Return the direct and indirect dependents of an item, in an order to plan them."""
        return list(self.items(self.above(id) - {id}))

    def foreign_keys_of(self, id: GlobalId) -> tuple[ForeignKey, ...]:
        """Return the foreign keys of table `id`."""
        item = self.objects.get(id)
        return (item.foreign_keys or ()) if isinstance(item, Item) else ()

    def has_foreign_keys(self, id: GlobalId) -> bool:
        """Whether a table refers to another one, or is referred to."""
        item = self.objects.get(id)
        if isinstance(item, Item) and item.foreign_keys:
            return True
        return referring_to(id) in self.groups and bool(self.references_to(id))

    def references_to(self, id: GlobalId) -> References:
        """Return the foreign keys that refer to table `id`, with their tables, oldest first."""
        if referring_to(id) not in self.groups:
            return ()
        found = [
            (item.id, key)
            for item in self.items_of(referring_to(id))
            for key in item.foreign_keys or ()
            if key.references == id
        ]
        return tuple(sorted(found, key=lambda pair: pair[1].oid))

    def sequences_of(self, id: str) -> list[Item]:
        """Return the sequences owned by columns of table `id`."""
        return self.items_of(owned_by(id))

    def parts_of(self, item: Item) -> list[Item]:
        """Return the indexes and policies on a relation, its columns' sequences, its error count.

        They have its owner and its schema.
        """
        counts = self.items_of(parts_of(item.id))
        on_counts = [index for each in counts for index in self.indexes_on(each.id)]
        parts = [*self.indexes_on(item.id), *self.policies_of(item.id)]
        return [*parts, *self.sequences_of(item.id), *counts, *on_counts]

    def replicas_of(self, cluster: str) -> list[Replica]:
        """Return the replicas of the cluster with id `cluster`."""
        return [each for each in self.all(Replica) if each.cluster == cluster]

    def children(self, id: str) -> list[Object]:
        """Return the direct contents of the database, schema or cluster `id`; none of others."""
        if isinstance(self.objects.get(id), Item):
            return []
        return [each for each in self.objects.values() if parent_of(each) == id] + [
            item for item in self.all(Item) if item.cluster == id
        ]

    def full_name(self, item: Item) -> tuple[str, str, str]:
        """Return database, schema and name of `item`; the database is empty for system items."""
        schema = self.objects[item.schema]
        assert isinstance(schema, Schema), schema
        database = self.objects[schema.database] if schema.database else None
        return (database.name if database else "", schema.name, item.name)

    def bindings(self, ids: Iterable[GlobalId]) -> tuple[Binding, ...]:
        """Return the present full names of items, with their ids."""
        return tuple((self.full_name(self.item(id)), id) for id in ids)

    def present_names(self, item: Item) -> dict[tuple[str, str, str], tuple[str, str, str]]:
        """Return the present full name for each full name in an item's statement."""
        return {then: self.full_name(self.item(id)) for then, id in item.bound}

    def changed(self, old: "State") -> list[str]:
        """Return the ids of the objects that another state lacks, has otherwise, or has alone."""
        return self.objects.keys_changed_since(old.objects)

    def check(self, changed: Iterable[str] | None = None) -> None:
        """Assert the invariants of every state; if only `changed` objects may break them, of these.

        The latter takes a time that depends on what has changed, not on the size of the catalog.
        """
        assert len(self.names) == len(self.objects), "two objects share a name, or a name is stale"
        for id in self.objects if changed is None else changed:
            self._check_object(id)
        if changed is None:
            self._check_indexes()

    def _check_object(self, id: str) -> None:
        each = self.objects.get(id)
        if each is None:
            assert not self.dependents(id), f"{self.dependents(id)} depend on the missing {id}"
            return
        assert each.id == id, (id, each)
        assert self.names[name_key(each)] == id, each
        assert all(whole in self.objects for whole in wholes_of(each)), each
        if isinstance(each, Item):
            assert self.oids[each.oid] == id, each
            for need in each.depends_on:
                assert need in self.objects, f"{id} depends on the missing {need}"
                assert id in self.dependents(need), (id, need)
            for key in each.foreign_keys or ():
                assert key.references in self.objects, (id, key)

    def _check_indexes(self) -> None:
        """Assert that the mappings over the objects are those of the present objects."""
        temporary: dict[str, set[str]] = {id: set() for id in self.parts}
        for item in self.all(Item):
            if item.temporary:
                temporary[item.schema].add(item.id)
        assert temporary == {id: part.items for id, part in self.parts.items()}, temporary
        counts = Counter(each.oid for each in self.objects.values() if each.oid != PUBLIC_OID)
        assert max(counts.values(), default=1) == 1, "two objects share an oid"
        oids = {item.oid: item.id for item in self.all(Item)}
        assert oids == self.oids, "an oid is stale"
        keys = {name: item.id for item in self.all(Item) for name in names_of_keys(item)}
        assert keys == self.keys, "the name of a key is stale"
        groups: dict[Group, set[str]] = {}
        for each in self.objects.values():
            for group in groups_of(each):
                groups.setdefault(group, set()).add(each.id)
        assert groups == {group: {*ids} for group, ids in self.groups.items()}, "a group is stale"


def with_objects(state: State, changes: Mapping[str, Object | None]) -> State:
    """Return a new version of `state` with objects added, replaced or (None) removed."""
    change = StateChanges(state.names, state.groups)
    for id in changes:
        if (old := state.objects.get(id)) is not None:
            change.remove(old)
    for id, new in changes.items():
        if new is not None:
            change.add(id, new)
    return State(
        version=state.version + 1,
        objects=state.objects.changed(changes),
        names=state.names.changed(change.names),
        allotted=state.allotted,
        parts=_parts(state, changes),
        oids=state.oids.changed(change.oids),
        as_read=state.as_read,
        keys=state.keys.changed(change.keys),
        groups=change.changed_groups(),
    )


def _parts(state: State, changes: Mapping[str, Object | None]) -> dict[str, Part]:
    """Return the parts of `state` after `changes`."""
    parts = dict(state.parts)
    for id, new in changes.items():
        for each in (state.objects.get(id), new):
            if each is None:
                continue
            part = _part_of(each)
            items = parts[part].items if part in parts else frozenset()
            if isinstance(each, Item) and part != PERMANENT:
                items = items - {id} if new is None else items | {id}
            parts[part] = Part(items)
    for id, new in changes.items():
        if new is None:
            parts.pop(id, None)
    return parts


def _part_of(each: Object) -> str:
    """Return the id of the part that `each` belongs to."""
    if isinstance(each, Item) and each.temporary:
        return each.schema
    return each.id if isinstance(each, Schema) and each.temporary else PERMANENT


def with_allotted(state: State, space: str, number: int) -> State:
    """Return `state` with the counter of `space` at `number`."""
    return replace(state, allotted={**state.allotted, space: number})


def empty() -> State:
    """Return the state before anything was created: only system schemas, tables and roles."""
    objects: tuple[Object, ...] = (*SYSTEM_SCHEMAS, *SYSTEM_TABLES, *PREDEFINED)
    return with_objects(State(), {each.id: each for each in objects})


def is_system(id: str | GlobalId) -> bool:
    """Whether the object with this id belongs to the system."""
    return id.startswith(("n_", "s", PREFIX))
