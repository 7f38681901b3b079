"""Catalog transactions: check PostgreSQL's rules and collect changes, to commit all or none.

A `Transaction` starts from a `State`. Its methods see the changes collected so far. The adapter
makes `state` durable in one append and only then publishes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from foreshore.burst import Burst
from foreshore.catalog.acl import owned_by
from foreshore.catalog.default_rights import grants_of_new, listed_if_public
from foreshore.catalog.dropped import Dropped, is_required, objects_to_drop
from foreshore.catalog.forgetting import without
from foreshore.catalog.item import (
    AT_COMMIT,
    PUBLIC_OID,
    Cluster,
    ColumnOf,
    Connection,
    Database,
    ForeignKeyOf,
    Item,
    ItemType,
    KnownColumn,
    NamedConstraint,
    NetworkPolicy,
    Object,
    OnCommit,
    OwnedBy,
    Replica,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.naming import parent_of
from foreshore.catalog.rekeyed import rekeyed
from foreshore.catalog.state import FIRST_USER_OID, State, is_system, with_allotted, with_objects
from foreshore.errors import (
    DuplicateDatabase,
    DuplicateObject,
    DuplicateSchema,
    DuplicateTable,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidName,
)
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId, global_id, is_temporary
from foreshore.privileges import RIGHTS
from foreshore.python_functions.handler import Handler
from foreshore.refresh import Refresh
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.spec import Feed
from foreshore.types import TYPES

if TYPE_CHECKING:
    from foreshore.catalog.planned import Planned

# Oids of system types that are in the range of users' oids.
_SYSTEM_OIDS = {oid for info in TYPES.values() for oid in (info.oid, info.array_oid)}

O = TypeVar("O", bound=Object)  # noqa: E741 - an object of any one collection
V = TypeVar("V")


class Transaction:
    """Changes on top of a state.

    `planned` are the plans of new and changed items. `constrained_since` gives for tables with
    added constraints the earliest time at which their committed rows satisfy these.
    """

    def __init__(self, state: State, counters: dict[str, int] | None = None) -> None:
        self.base = state
        self.state = state
        self.user = ""  # for whom the change is made, as the audit tells
        self.planned: dict[GlobalId, Planned] = {}
        self.constrained_since: dict[GlobalId, int] = {}
        self._counters = counters if counters is not None else dict(state.allotted)

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.state is not self.base

    def fork(self) -> "Transaction":
        """Return an independent transaction with the same changes."""
        return self.rebased(self.base, self.state)

    def rebased(self, base: State, state: State) -> "Transaction":
        """Return a transaction with the same plans that changes `base` to `state`."""
        forked = Transaction(base, self._counters)
        forked.state = state
        forked.user = self.user
        forked.planned = dict(self.planned)
        forked.constrained_since = dict(self.constrained_since)
        return forked

    # --- ids -----------------------------------------------------------------------------------

    def allot(self, space: str) -> int:
        """Return the next unused number of `space`."""
        number = self._counters.get(space, FIRST_USER_OID if space == "oid" else 1)
        self._counters[space] = number + 1
        self.state = with_allotted(self.state, space, number + 1)
        return number

    def allot_item(self) -> GlobalId:
        """Return an id for a new item."""
        return global_id("u", self.allot("u"))

    # --- create --------------------------------------------------------------------------------

    def create_role(self, name: str, **attributes: Any) -> Role:
        """Create role `name` with attributes of `Role`."""
        if self.state.role(name) is not None:
            raise DuplicateObject(f'role "{name}" already exists')
        return self.put(Role(f"o{self.allot('o')}", self.allot("oid"), name, **attributes))

    def create_database(self, name: str, owner: str, oid: int | None = None) -> Database:
        """Create database `name` with its schema `public`, which all may use."""
        if self.state.database(name) is not None:
            raise DuplicateDatabase(f'database "{name}" already exists')
        oid = oid or self.allot("oid")
        database = self.put(Database(f"d{self.allot('d')}", oid, name, owner))
        self.put(database.public_schema(f"n{self.allot('n')}", PUBLIC_OID))
        return database

    def create_schema(self, database: str, name: str, owner: str) -> Schema:
        """Create schema `name` in the database with id `database`."""
        check_not_system_name(name, "schema")
        if self.state.schema(database, name) is not None:
            raise DuplicateSchema(f'schema "{name}" already exists')
        id, grants = f"n{self.allot('n')}", grants_of_new(self.state, owner, "schema", None)
        new = Schema(id, self.allot("oid"), database, name, owner, grants=grants)
        return self.put(listed_if_public(new))

    def temporary_schema(self, id: str, database: str, owner: str) -> Schema:
        """Return the temporary schema `id`, creating it in `database` if necessary."""
        found = self.state.get(id)
        if found is None:
            found = self.put(Schema(id, self.allot("oid"), database, id, owner))
        assert isinstance(found, Schema), found
        return found

    def drop_temporary(self, schema: str) -> None:
        """Drop the temporary schema with id `schema` and its contents."""
        ids = (*self.state.parts[schema].items, schema)
        self.state = with_objects(self.state, without(self.state, ids))

    def create_cluster(
        self,
        name: str,
        owner: str,
        size: str,
        options: dict[str, str],
        replicas: Sequence[tuple[str, str]],
        *,
        managed: bool,
        burst: Burst | None = None,
    ) -> tuple[Cluster, list[Replica]]:
        """Create cluster `name` with replicas (name, size)."""
        check_not_system_name(name, "cluster")
        if self.state.cluster(name) is not None:
            raise DuplicateObject(f'cluster "{name}" already exists')
        cluster = self.put(
            Cluster(
                f"c{self.allot('c')}",
                self.allot("oid"),
                name,
                owner,
                size,
                len(replicas),
                managed,
                options,
                burst,
            )
        )
        return cluster, [
            self.create_replica(cluster, each, owner, each_size, options)
            for each, each_size in replicas
        ]

    def create_replica(
        self,
        cluster: Cluster,
        name: str,
        owner: str,
        size: str,
        options: dict[str, str],
        *,
        id: str | None = None,
    ) -> Replica:
        """Create replica `name` of `cluster`, with an `id` if one was allotted for it."""
        if self.state.replica(cluster.id, name) is not None:
            raise DuplicateObject(f'cluster replica "{cluster.name}.{name}" already exists')
        if id is not None:
            following = max(self.state.allotted.get("r", 1), int(id[1:]) + 1)
            self.state = with_allotted(self.state, "r", following)
        return self.put(
            Replica(
                id or f"r{self.allot('r')}",
                self.allot("oid"),
                cluster.id,
                name,
                owner,
                size,
                options,
            )
        )

    def alter_cluster(self, cluster: Cluster) -> Cluster:
        """Replace a cluster by `cluster`, which has the same id."""
        self._check_not_system(cluster)
        return self.put(cluster)

    def create_item(
        self,
        id: GlobalId,
        type: ItemType,
        schema: Schema,
        name: str,
        owner: str,
        create_sql: str,
        depends_on: Iterable[GlobalId],
        *,
        cluster: str | None = None,
        on: GlobalId | None = None,
        constraints: Sequence[tuple[str, bool]] = (),
        retain_ms: int | None = None,
        owned_by: OwnedBy | None = None,
        on_commit: OnCommit | None = None,
        since: int = 0,
        refresh: Refresh | None = None,
        enum_values: tuple[str, ...] | None = None,
        memory_limit: int | None = None,
        arguments: tuple[str, ...] | None = None,
        part_of: GlobalId | None = None,
        feed: Feed | None = None,
        sink: SinkSpec | None = None,
        handler: Handler | None = None,
    ) -> Item:
        """Create an item under an id from `allot_item`.

        `constraints`: name, and whether it has an index; `since`: a view's first time.
        """
        if arguments is None:  # functions of several types may have one name
            self.check_name_free(schema, name)
        self._check_index_names_free(schema, (name,), constraints)
        needs = tuple(sorted(depends_on))
        oid = self.allot("oid")
        while type in ("type", "domain") and {oid, oid + 1} & _SYSTEM_OIDS:
            oid = self.allot("oid")
        if type in ("type", "domain"):
            self.allot("oid")  # of its arrays, the next number
        kind = "type" if type == "domain" else "table" if type.endswith("view") else type
        grants = (
            grants_of_new(self.state, owner, kind, schema.id) if kind in RIGHTS else msgspec.UNSET
        )
        return self.put(
            Item(
                id,
                oid,
                type,
                schema.id,
                name,
                owner,
                create_sql,
                needs,
                cluster,
                on,
                self.state.bindings(needs),
                constraints=self._named_constraints(constraints, ()),
                retain_ms=msgspec.UNSET if retain_ms is None else retain_ms,
                owned_by=owned_by or msgspec.UNSET,
                on_commit=on_commit or msgspec.UNSET,
                since=since,
                refresh=refresh or msgspec.UNSET,
                enum_values=msgspec.UNSET if enum_values is None else enum_values,
                memory_limit=msgspec.UNSET if memory_limit is None else memory_limit,
                keeps_digits=True,
                arguments=msgspec.UNSET if arguments is None else arguments,
                part_of=part_of or msgspec.UNSET,
                feed=feed or msgspec.UNSET,
                sink=sink or msgspec.UNSET,
                handler=handler or msgspec.UNSET,
                grants=grants,
            )
        )

    def alter_enum(self, type: Item, create_sql: str, values: tuple[str, ...]) -> Item:
        """Change the labels of an enum; `values` are their stored forms."""
        return self.put(msgspec.structs.replace(type, create_sql=create_sql, enum_values=values))

    def limit_memory(self, item: Item, limit: int | None) -> Item:
        """Set how many bytes the dataflow of `item` may take, None for no limit of its own."""
        kept = msgspec.UNSET if limit is None else limit
        return self.put(msgspec.structs.replace(item, memory_limit=kept))

    def retain(self, item: Item, retain_ms: int | None) -> Item:
        """Set how far back `item` stays readable, None for the default."""
        kept = msgspec.UNSET if retain_ms is None else retain_ms
        return self.put(msgspec.structs.replace(item, retain_ms=kept))

    def alter_table(
        self,
        table: Item,
        create_sql: str,
        constraints: Sequence[tuple[str, bool]],
        since: int,
        depends_on: Iterable[GlobalId],
        stored_names: Sequence[str] = (),
        columns: Sequence[int | None] | None = None,
        *,
        adds_constraints: bool = False,
    ) -> Item:
        """Change `table` to `create_sql`, with contents that begin at `since`.

        `adds_constraints` states that constraints were added, which hold from the commit on.
        `constraints` are all of the table's, as for `create_item`; those with a known name stay the
        same objects. `stored_names` are the column names in the shard, if they differ. `columns`
        gives each column's former position, None for a new column; by default positions are
        unchanged.
        """
        schema = self.state.objects[table.schema]
        assert isinstance(schema, Schema)
        known = {each.name for each in table.constraints if each.has_index}
        new = [each for each in constraints if each[0] not in known]
        needs = tuple(sorted(depends_on))
        self._check_index_names_free(schema, (), new)
        comments, grants = table.column_comments or {}, table.column_grants or {}
        if columns is not None:
            comments, grants = _moved(comments, columns), _moved(grants, columns)
        return self.put(
            msgspec.structs.replace(
                table,
                create_sql=create_sql,
                constraints=self._named_constraints(constraints, table.constraints),
                since=since,
                constrained_since=AT_COMMIT if adds_constraints else table.constrained_since,
                depends_on=needs,
                bound=self.state.bindings(needs),
                stored_names=tuple(stored_names) or msgspec.UNSET,
                column_comments=comments or msgspec.UNSET,
                column_grants=grants or msgspec.UNSET,
            )
        )

    def rekey(self, ids: Mapping[GlobalId, GlobalId]) -> None:
        """Give items new ids because they have new collections, and update references."""
        changes: dict[str, Object | None] = dict.fromkeys(ids)
        for item in self.state.all(Item):
            new = rekeyed(item, ids)
            if new != item:
                changes[new.id] = new
        self.state = with_objects(self.state, changes)

    def set_foreign_keys(self, table: Item, keys: Sequence[ForeignKey]) -> Item:
        """Let `keys` be the foreign keys of a table; new ones, which have oid 0, get oids."""
        kept = tuple(
            key if key.oid else msgspec.structs.replace(key, oid=self.allot("oid")) for key in keys
        )
        table = self.state.item(table.id)
        return self.put(msgspec.structs.replace(table, foreign_keys=kept or msgspec.UNSET))

    def remember(
        self,
        item: Item,
        table: GlobalId,
        columns: Sequence[KnownColumn],
        keys: Sequence[tuple[str, ...]] | None = None,
    ) -> Item:
        """Record the columns and keys of `table` that the definition of `item` refers to."""
        known = {**(item.known or {}), table: tuple(columns)}
        known_keys = item.known_keys
        if keys is not None:
            known_keys = {**(known_keys or {}), table: tuple(keys)}
        return self.put(msgspec.structs.replace(item, known=known, known_keys=known_keys))

    def set_constraint_times(self, tables: Iterable[GlobalId], time: int) -> None:
        """Set the time from which the new constraints of `tables` hold to `time`, the commit's."""
        items = map(self.state.item, tables)
        changes: dict[str, Object | None] = {
            item.id: msgspec.structs.replace(item, constrained_since=time) for item in items
        }
        self.state = with_objects(self.state, changes)

    def alter_subscription(
        self, item: Item, create_sql: str, depends_on: Iterable[GlobalId], sink: SinkSpec
    ) -> Item:
        """Let a sink write the relation of another statement."""
        needs = tuple(sorted(depends_on))
        return self.put(
            msgspec.structs.replace(
                item,
                create_sql=create_sql,
                depends_on=needs,
                bound=self.state.bindings(needs),
                known=msgspec.UNSET,
                known_keys=msgspec.UNSET,
                sink=sink,
            )
        )

    def alter_index(self, index: Item, create_sql: str) -> Item:
        """Replace the statement of `index` by an equivalent one."""
        return self.put(msgspec.structs.replace(index, create_sql=create_sql))

    def alter_sequence(
        self, sequence: Item, create_sql: str, *, generation: int | None, owned_by: OwnedBy | None
    ) -> Item:
        """Change `sequence` to `create_sql` and to another owning column.

        With a `generation`, the sequence is restarted under that number.
        """
        return self.put(
            msgspec.structs.replace(
                sequence,
                create_sql=create_sql,
                generation=generation or sequence.generation,
                owned_by=owned_by or msgspec.UNSET,
            )
        )

    def own_sequence(self, sequence: Item, owner: OwnedBy) -> Item:
        """Record the new name of the column that owns `sequence`."""
        return self.put(msgspec.structs.replace(sequence, owned_by=owner))

    def _named_constraints(
        self, constraints: Sequence[tuple[str, bool]], known: Sequence[NamedConstraint]
    ) -> tuple[NamedConstraint, ...]:
        kept = {(each.name, each.has_index): each for each in known}
        return tuple(
            kept.get(each) or NamedConstraint(each[0], self.allot("oid"), each[1])
            for each in constraints
        )

    def _check_index_names_free(
        self, schema: Schema, taken: Sequence[str], constraints: Sequence[tuple[str, bool]]
    ) -> None:
        for name, has_index in constraints:
            if has_index and (name in taken or self.state.is_taken(schema.id, name)):
                raise DuplicateTable(f'relation "{name}" already exists')

    def check_name_free(self, schema: Schema, name: str) -> None:
        """Raise if `schema` is the system's, or if `name` is taken in it."""
        if is_system(schema.id):
            raise InsufficientPrivilege(f"permission denied for schema {schema.name}")
        if (found := self.state.item_in(schema.id, name)) is not None and found.is_type:
            raise DuplicateObject(f'type "{name}" already exists')
        if self.state.is_taken(schema.id, name):
            raise DuplicateTable(f'relation "{name}" already exists')

    def free_name(self, schema: Schema, base: str) -> str:
        """Return the first free name in `schema` of `base`, `base1`, `base2`, ..."""
        for number in count():
            name = f"{base}{number or ''}"
            if not self.state.is_taken(schema.id, name):
                return name
        raise AssertionError

    # --- change --------------------------------------------------------------------------------

    def rename(self, target: Object, to: str) -> Object:
        """Give `target` the name `to`."""
        self._check_not_system(target)
        match target:
            case Item():
                schema = self.state.objects[target.schema]
                assert isinstance(schema, Schema)
                self.check_name_free(schema, to)
            case Secret(schema=id) if self.state.secret_in(id, to) is not None:
                raise DuplicateObject(f'secret "{to}" already exists')
            case Connection(schema=id) if self.state.connection_in(id, to) is not None:
                raise DuplicateObject(f'connection "{to}" already exists')
            case Database() if self.state.database(to) is not None:
                raise DuplicateDatabase(f'database "{to}" already exists')
            case Schema(database=database):
                check_not_system_name(to, "schema")
                if self.state.schema(database or "", to) is not None:
                    raise DuplicateSchema(f'schema "{to}" already exists')
            case NetworkPolicy():
                raise FeatureNotSupported("network policies cannot be renamed")
            case Cluster() if self.state.cluster(to) is not None:
                raise DuplicateObject(f'cluster "{to}" already exists')
            case Replica(cluster=cluster) if self.state.replica(cluster, to) is not None:
                raise DuplicateObject(f'cluster replica "{to}" already exists')
            case _:
                pass
        renamed = msgspec.structs.replace(target, name=to)
        return self.put(listed_if_public(renamed) if isinstance(renamed, Schema) else renamed)

    def set_owner(self, target: Object, role: Role) -> None:
        """Give `target` to a role; what is part of a relation has its owner.

        The role gets the rights of the former owner, and has given what that one has given.
        """
        self._check_not_system(target)
        changed = [target, *(self.state.parts_of(target) if isinstance(target, Item) else ())]
        self.state = with_objects(
            self.state, {each.id: owned_by(each, role.id) for each in changed}
        )

    def set_schema(self, target: Item, schema: Schema) -> None:
        """Move a relation to another schema, with its parts."""
        self._check_not_system(target)
        if is_system(schema.id):
            raise InsufficientPrivilege(f"permission denied for schema {schema.name}")
        if target.temporary or is_temporary(schema.id):
            raise FeatureNotSupported("cannot move objects into or out of temporary schemas")
        if target.schema == schema.id:
            return
        moved = [target, *self.state.parts_of(target)]
        keys = [each.name for item in moved for each in item.constraints if each.has_index]
        for name in (*(each.name for each in moved if not each.is_policy), *keys):
            if self.state.is_taken(schema.id, name):
                raise DuplicateTable(f'relation "{name}" already exists in schema "{schema.name}"')
        self.state = with_objects(
            self.state, {each.id: msgspec.structs.replace(each, schema=schema.id) for each in moved}
        )

    def swap(self, one: Object, other: Object) -> None:
        """Exchange the names of two objects of a kind, which belong to the same parent."""
        for each in (one, other):
            self._check_not_system(each)
        if parent_of(one) != parent_of(other):
            raise FeatureNotSupported(
                f"cannot swap {one.kind} {one.name} with one of another database"
            )
        if one is not other:
            first = msgspec.structs.replace(one, name=other.name)
            second = msgspec.structs.replace(other, name=one.name)
            self.state = with_objects(self.state, {one.id: first, other.id: second})

    def set_cluster(self, item: Item, cluster: Cluster) -> Item:
        """Let another cluster maintain a materialized view."""
        return self.put(msgspec.structs.replace(item, cluster=cluster.id))

    def comment(self, target: Object, text: str | None) -> Object:
        """Set the comment on `target`, None to remove it."""
        self._check_not_system(target)
        return self.put(msgspec.structs.replace(target, comment=text or msgspec.UNSET))

    def _check_not_system(self, target: Object) -> None:
        if is_required(target):
            raise InsufficientPrivilege(
                f"permission denied: {target.name} is a system {target.kind}"
            )

    def drop(
        self,
        targets: Sequence[Object | ColumnOf],
        *,
        cascade: bool,
        describe: Callable[[Object | ColumnOf | ForeignKeyOf], str],
        drop_default: Callable[[Item, Item], str] | None = None,
    ) -> Dropped:
        """Drop `targets` and, if `cascade`, all that depends on them; see `objects_to_drop`."""
        dropped = objects_to_drop(self.state, targets, cascade, describe, drop_default)
        for each in dropped.objects:
            if isinstance(each, ForeignKeyOf):
                keys = self.state.foreign_keys_of(each.table.id)
                self.set_foreign_keys(each.table, [key for key in keys if key.name != each.name])
        ids = [each.id for each in dropped.objects if not isinstance(each, ForeignKeyOf)]
        self.state = with_objects(self.state, without(self.state, ids))
        return dropped

    def put(self, each: O) -> O:
        """Add an object, or replace the one with its id; return it."""
        self.state = with_objects(self.state, {each.id: each})
        return each


def _moved(by_position: dict[int, V], columns: Sequence[int | None]) -> dict[int, V]:
    """Return values by column positions from 1, where columns have these former positions."""
    return {
        place: by_position[was + 1]
        for place, was in enumerate(columns, 1)
        if was is not None and was + 1 in by_position
    }


def check_not_system_name(name: str, kind: str) -> None:
    """Raise if `name` has a prefix reserved for the system."""
    if name.startswith(("pg_", "mz_")):
        raise InvalidName(
            f'unacceptable {kind} name "{name}"',
            sqlstate="42939",
            detail='The prefixes "mz_" and "pg_" are reserved for the system.',
        )
