"""What the catalog is made of: objects with an id for ever, an oid, a name and an owner.

Each object is a value; a change is a new value under the same id. Ids of databases, schemas,
clusters, replicas and roles are text too (`d1`, `n2`, `c3`, `r4`, `o5`), allotted like those of
items and never bound again. `kind` is the word PostgreSQL uses for the object in messages.
"""

from typing import ClassVar, TypeAlias
from typing import Literal as OneOf

import msgspec

from foreshore.ids import GlobalId, is_temporary
from foreshore.types import SqlType

ItemType = OneOf["table", "view", "materialized view", "index", "sequence", "subscription"]
OnCommit = OneOf["delete rows", "drop"]


Binding: TypeAlias = tuple[tuple[str, str, str], GlobalId]

AT_COMMIT = -1  # for `Item.promised`, before the transaction's time is known


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What COMMENT ON says of an object; where it says nothing, the object's row has no such field.

    So objects without comments are written as they were before there were any.
    """

    comment: str | msgspec.UnsetType = msgspec.UNSET


class Role(Described, frozen=True):
    """Who may connect, and own."""

    collection: ClassVar[str] = "role"
    kind: ClassVar[str] = "role"
    id: str
    oid: int
    name: str
    superuser: bool = True


class Database(Described, frozen=True):
    """A set of schemas; a session sees one."""

    collection: ClassVar[str] = "database"
    kind: ClassVar[str] = "database"
    id: str
    oid: int
    name: str
    owner: str


class Schema(Described, frozen=True):
    """A namespace of items; without a database it is one of the system's, seen from all of them."""

    collection: ClassVar[str] = "schema"
    kind: ClassVar[str] = "schema"
    id: str
    oid: int
    database: str | None  # the database's id
    name: str
    owner: str

    @property
    def temporary(self) -> bool:
        """Whether it is a session's own and ends with it."""
        return is_temporary(self.id)


class Cluster(Described, frozen=True):
    """A named set of replicas that all maintain the same dataflows."""

    collection: ClassVar[str] = "cluster"
    kind: ClassVar[str] = "cluster"
    id: str
    oid: int
    name: str
    owner: str
    size: str
    replication_factor: int
    managed: bool = True
    options: dict[str, str] = {}


class Replica(Described, frozen=True):
    """A process that does the work of its cluster."""

    collection: ClassVar[str] = "replica"
    kind: ClassVar[str] = "cluster replica"
    id: str
    oid: int
    cluster: str  # the cluster's id
    name: str
    owner: str
    size: str
    options: dict[str, str] = {}


class NamedConstraint(msgspec.Struct, frozen=True):
    """A constraint of a table: its name and its oid, which that of its index is too, if it has one.

    What it says is in the table's statement.
    """

    name: str
    oid: int
    has_index: bool  # as unique ones have: its name is one of the schema's relations


class OwnedBy(msgspec.Struct, frozen=True):
    """The column of a table with which a sequence goes; of an identity column it is a part."""

    table: GlobalId
    column: str
    identity: bool = False


class KnownColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a table as a definition knows it, and what has become of it."""

    name: str
    now: str | None  # its name in the table; None: it was dropped, nothing had used it
    type: SqlType | None = None  # that it had, if it was dropped
    nullable: bool = False  # it could be NULL then, whatever the table says of it now


class Item(Described, frozen=True):
    """A relation, an index or a subscription, by the statement that defines it.

    `create_sql` has all names qualified; from it the item is planned anew at every start.
    `depends_on` are the items that the definition names; an index depends on its relation.
    """

    collection: ClassVar[str] = "item"
    id: GlobalId
    oid: int
    type: ItemType
    schema: str  # the schema's id
    name: str
    owner: str
    create_sql: str
    depends_on: tuple[GlobalId, ...] = ()
    cluster: str | None = None  # of a materialized view and of an index: the cluster's id
    on: GlobalId | None = None  # of an index: its relation
    # What the names in `create_sql` meant when it was written: full names, each with its id. They
    # keep meaning that when the object gets another name.
    bound: tuple[Binding, ...] = ()
    # The columns that tables had when the statement was written, where they have others now. They
    # keep meaning that, like the names.
    known: dict[GlobalId, tuple[KnownColumn, ...]] | msgspec.UnsetType = msgspec.UNSET
    # The keys that tables had then, by the columns' names of then: what is maintained has a past in
    # which there were no others. A table that is not here has those that it had.
    known_keys: dict[GlobalId, tuple[tuple[str, ...], ...]] | msgspec.UnsetType = msgspec.UNSET
    # Of a table of which a column was renamed: the names in its shard, which stay.
    stored_names: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    # How far back it stays readable, in milliseconds, where RETAIN HISTORY says so.
    retain_ms: int | msgspec.UnsetType = msgspec.UNSET
    # What COMMENT ON COLUMN says, by the column's position from 1.
    column_comments: dict[int, str] | msgspec.UnsetType = msgspec.UNSET
    constraints: tuple[NamedConstraint, ...] = ()  # of a table
    # Since when the contents are there: a table got other columns then, a materialized view was
    # made AS OF then. Earlier is not to be read.
    since: int = 0
    # Since when all rows of a table agree with what the statement promises, if it came to promise
    # more. Earlier is not to be read as what the table is now.
    promised: int | msgspec.UnsetType = msgspec.UNSET

    # Of a sequence: the number that it got when it was restarted, and the column that it goes with.
    generation: int | msgspec.UnsetType = msgspec.UNSET
    owned_by: OwnedBy | msgspec.UnsetType = msgspec.UNSET

    # Of a temporary table: what goes whenever its session commits, its rows or all of it.
    on_commit: OnCommit | msgspec.UnsetType = msgspec.UNSET

    @property
    def temporary(self) -> bool:
        """Whether it is a session's own and ends with it; then it is never written down."""
        return is_temporary(self.schema)

    @property
    def kind(self) -> str:
        """What messages call it."""
        return self.type

    @property
    def is_collection(self) -> bool:
        """Whether it has contents of its own, from some time on to another."""
        return self.type in ("table", "materialized view", "index")


class ColumnOf(msgspec.Struct, frozen=True):
    """A column that is to be dropped, as if it were an object; its `parts` go with it."""

    kind: ClassVar[str] = "column"
    id: str  # like no object's
    name: str
    table: Item
    parts: tuple[Item, ...]
    users: tuple[Item, ...]  # what is no part of it, and cannot be without it


Object: TypeAlias = Role | Database | Schema | Cluster | Replica | Item

OBJECTS: tuple[type[Object], ...] = (Role, Database, Schema, Cluster, Replica, Item)
