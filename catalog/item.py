"""Catalog objects: each has a permanent id, an oid, a name and an owner.

Objects are values; a change is a new value under the same id. Ids of databases, schemas, clusters,
replicas, roles, secrets and connections are text too (`d1`, `n2`, `c3`, `r4`, `o5`, `x6`, `l7`).
Like those of items they are allotted and never reused. `kind` is PostgreSQL's word for the object
in messages.
"""

from typing import ClassVar, TypeAlias
from typing import Literal as OneOf

import msgspec

from foreshore.burst import Burst
from foreshore.connection_spec import ConnectionSpec, KeyPair
from foreshore.foreign_key import ForeignKey
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId, is_temporary
from foreshore.metric_spec import MetricSpec
from foreshore.network_policy import NetworkRule
from foreshore.policy import PolicyOf
from foreshore.privileges import Grant, open_to_all
from foreshore.python_functions.handler import Handler
from foreshore.refresh import Refresh
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.spec import Feed
from foreshore.types import SqlType

ItemType = OneOf[
    "table",
    "view",
    "materialized view",
    "index",
    "sequence",
    "subscription",
    "type",
    "domain",
    "function",
    "policy",
]
OnCommit = OneOf["delete rows", "drop"]


Binding: TypeAlias = tuple[tuple[str, str, str], GlobalId]

AT_COMMIT = -1  # a placeholder until the transaction's time is known


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """An object's COMMENT ON text. Objects without a comment have no such field in their rows."""

    comment: str | msgspec.UnsetType = msgspec.UNSET


class Granted(Described, frozen=True, kw_only=True):
    """An object on which there are rights: those of `grants`, or `privileges.initial` if unset."""

    grants: tuple[Grant, ...] | msgspec.UnsetType = msgspec.UNSET


class Membership(msgspec.Struct, frozen=True):
    """A role's being a member of another one, by their ids."""

    role: str
    grantor: str
    admin: bool = False  # whether the member may make others members


class DefaultGrants(msgspec.Struct, frozen=True):
    """Rights on objects that a role will create, by ALTER DEFAULT PRIVILEGES."""

    kind: str  # of `privileges.RIGHTS`
    schema: str | None  # the schema's id; None: in all schemas
    grants: tuple[Grant, ...]
    oid: int = 0


class Token(msgspec.Struct, frozen=True):
    """An access token of a role, as it is kept; times are in microseconds since 1970."""

    number: int
    name: str
    digest: str
    created_at: int
    valid_until: int | None  # None: for ever


class Role(Described, frozen=True):
    """A role, which can own objects, be granted rights, and connect if `login`."""

    collection: ClassVar[str] = "role"
    kind: ClassVar[str] = "role"
    id: str
    oid: int
    name: str
    superuser: bool = True
    login: bool = True
    inherit: bool = True  # whether it has the rights of the roles that it is a member of
    create_role: bool = False
    create_db: bool = False
    create_cluster: bool = False
    create_network_policy: bool = False
    bypass_rls: bool = False
    connection_limit: int = -1  # none
    verifier: str | None = None  # SCRAM-SHA-256$..., as PostgreSQL keeps it
    valid_until: int | None = None  # of the password, in microseconds since 1970
    settings: dict[str, str] = {}  # of ALTER ROLE ... SET
    database_settings: dict[str, dict[str, str]] = {}  # those IN DATABASE, by its id
    member_of: tuple[Membership, ...] = ()
    default_grants: tuple[DefaultGrants, ...] = ()
    tokens: tuple[Token, ...] = ()


class Database(Granted, frozen=True):
    """A set of schemas. A session uses one database."""

    collection: ClassVar[str] = "database"
    kind: ClassVar[str] = "database"
    id: str
    oid: int
    name: str
    owner: str
    settings: dict[str, str] = {}  # of ALTER DATABASE ... SET

    def public_schema(self, id: str, oid: int) -> "Schema":
        """Return the schema that each database begins with, which everybody may use."""
        grants = open_to_all("schema", self.owner, "U")
        return Schema(id, oid, self.id, "public", self.owner, grants=grants)


FIRST_ROLE_ID = "o1"  # of the superuser that each directory begins with
PUBLIC_OID = 2200  # of schema `public` of each database, as in PostgreSQL


class Schema(Granted, frozen=True):
    """A namespace of items. System schemas have no database and are visible from all."""

    collection: ClassVar[str] = "schema"
    kind: ClassVar[str] = "schema"
    id: str
    oid: int
    database: str | None  # the database's id
    name: str
    owner: str

    @property
    def temporary(self) -> bool:
        """Whether the schema belongs to a session and ends with it."""
        return is_temporary(self.id)


class Secret(Granted, frozen=True):
    """A value that connections may use and nobody can read back."""

    collection: ClassVar[str] = "secret"
    kind: ClassVar[str] = "secret"
    id: str
    oid: int
    schema: str  # the schema's id
    name: str
    owner: str
    sealed: str  # as `foreshore.secret_box` writes it


class Connection(Granted, frozen=True):
    """How to reach an external system, which sources and sinks may use."""

    collection: ClassVar[str] = "connection"
    kind: ClassVar[str] = "connection"
    id: str
    oid: int
    schema: str  # the schema's id
    name: str
    owner: str
    spec: ConnectionSpec
    keys: tuple[KeyPair, ...] = ()  # by which an SSH server knows us


class Cluster(Granted, frozen=True):
    """A named set of replicas that maintain the same dataflows."""

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
    burst: Burst | None = None


class Replica(Described, frozen=True):
    """A process that runs its cluster's dataflows."""

    collection: ClassVar[str] = "replica"
    kind: ClassVar[str] = "cluster replica"
    id: str
    oid: int
    cluster: str  # the cluster's id
    name: str
    owner: str
    size: str
    options: dict[str, str] = {}


class SystemSettings(Described, frozen=True):
    """The settings of ALTER SYSTEM; there is one such object, or none."""

    collection: ClassVar[str] = "system"
    kind: ClassVar[str] = "system"
    id: str
    oid: int
    name: str
    owner: str
    settings: dict[str, str] = {}


class NetworkPolicy(Described, frozen=True):
    """From which addresses clients may connect."""

    collection: ClassVar[str] = "network policy"
    kind: ClassVar[str] = "network policy"
    id: str
    oid: int
    name: str
    owner: str
    rules: tuple[NetworkRule, ...] = ()


class NamedConstraint(msgspec.Struct, frozen=True):
    """A constraint's name and oid, which its index, if it has one, shares.

    The definition is in the table's statement.
    """

    name: str
    oid: int
    has_index: bool  # for unique constraints, whose names are relation names too


class OwnedBy(msgspec.Struct, frozen=True):
    """The column that owns a sequence; a sequence of an identity column is part of it."""

    table: GlobalId
    column: str
    identity: bool = False


class KnownColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a table as a definition knows it, and the column's current name."""

    name: str
    now: str | None  # None: it was dropped, and nothing used it
    type: SqlType | None = None  # the type it had, if it was dropped
    nullable: bool = False  # whether it was nullable then


class Item(Granted, frozen=True):
    """A relation, index, sequence, subscription or type, given by its statement.

    `create_sql` has all names qualified; the item is planned from it at every start. `depends_on`
    are the items that the definition names; an index depends on its relation.
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
    cluster: str | None = None  # of a materialized view or an index: the cluster's id
    on: GlobalId | None = None  # the relation of an index
    # The meaning of the names in `create_sql` when it was written: full names with their ids. It
    # stays valid when the objects are renamed.
    bound: tuple[Binding, ...] = ()
    # The columns of tables when the statement was written, for tables whose columns changed since.
    known: dict[GlobalId, tuple[KnownColumn, ...]] | msgspec.UnsetType = msgspec.UNSET
    # The keys of tables at that time, by the column names of that time, because a maintained view
    # has history from before newer keys. Tables that are not listed have kept their keys.
    known_keys: dict[GlobalId, tuple[tuple[str, ...], ...]] | msgspec.UnsetType = msgspec.UNSET
    # The column names in the shard of a table, if a column was renamed.
    stored_names: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    # How far back the item stays readable, in milliseconds, by RETAIN HISTORY.
    retain_ms: int | msgspec.UnsetType = msgspec.UNSET
    # The bytes that the dataflow of a materialized view or an index may take, by MEMORY LIMIT.
    memory_limit: int | msgspec.UnsetType = msgspec.UNSET
    # By which engine it is hydrated, by HYDRATE, if not as its cluster says.
    hydrate: HydrateMode | msgspec.UnsetType = msgspec.UNSET
    # Of a materialized view: when ON ERROR was altered, times that may still be readable.
    error_policy_changes: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    # Of a materialized view: when it is refreshed, if not at every change.
    refresh: Refresh | msgspec.UnsetType = msgspec.UNSET
    # Of a materialized view that counts violations of expectations: the view with these.
    part_of: GlobalId | msgspec.UnsetType = msgspec.UNSET
    # COMMENT ON COLUMN texts by column position, from 1.
    column_comments: dict[int, str] | msgspec.UnsetType = msgspec.UNSET
    # Rights on single columns, by position, from 1.
    column_grants: dict[int, tuple[Grant, ...]] | msgspec.UnsetType = msgspec.UNSET
    constraints: tuple[NamedConstraint, ...] = ()  # of a table
    # COMMENT ON CONSTRAINT texts by the constraints' oids.
    constraint_comments: dict[int, str] | msgspec.UnsetType = msgspec.UNSET
    # The earliest readable time: when a table's columns changed, or a materialized view's AS OF.
    since: int = 0
    # Stored as `promised`: earliest time at which all rows of a table satisfy its constraints, if
    # constraints were added. Earlier times are not readable with the table's current definition.
    constrained_since: int | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="promised"
    )

    # Of a table: its foreign keys, which are no part of its statement.
    foreign_keys: tuple[ForeignKey, ...] | msgspec.UnsetType = msgspec.UNSET

    # Of a function in Python: what its source defines for it.
    handler: Handler | msgspec.UnsetType = msgspec.UNSET

    # Whether a numeric without a scale keeps the digits of each value, which directories of older
    # versions had not: their items have numerics of 20 digits after the point.
    keeps_digits: bool | msgspec.UnsetType = msgspec.UNSET

    # Of a view: whether who reads it needs the rights on what it reads, in place of its owner.
    security_invoker: bool | msgspec.UnsetType = msgspec.UNSET

    # Of a table: whether its policies count, and also for its owner.
    row_security: bool | msgspec.UnsetType = msgspec.UNSET
    force_row_security: bool | msgspec.UnsetType = msgspec.UNSET

    # Of a policy: what it is for. Its table is its schema's, and it is dropped with it.
    policy: PolicyOf | msgspec.UnsetType = msgspec.UNSET

    # Of a table that a source writes, which is shown as a source: what it gets.
    feed: Feed | msgspec.UnsetType = msgspec.UNSET

    # Of a subscription whose consumer is an external system, which is shown as a sink.
    sink: SinkSpec | msgspec.UnsetType = msgspec.UNSET

    # Of a view whose rows are the series of a metric, which is shown as one.
    metric: MetricSpec | msgspec.UnsetType = msgspec.UNSET

    # Of a sequence: its number after a restart, and the column that owns it.
    generation: int | msgspec.UnsetType = msgspec.UNSET
    owned_by: OwnedBy | msgspec.UnsetType = msgspec.UNSET

    # Of an enum: the stored forms of its labels, in the order of `create_sql`.
    enum_values: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    # Of a function: the keys of its parameters' types, which are part of its name.
    arguments: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    # Of a temporary table: what happens to its rows at each commit of its session.
    on_commit: OnCommit | msgspec.UnsetType = msgspec.UNSET

    @property
    def temporary(self) -> bool:
        """Whether the item belongs to a session and ends with it; it is then never stored."""
        return is_temporary(self.schema)

    @property
    def kind(self) -> str:
        """Return the word for the item in messages."""
        if self.metric:
            return "metric"
        return "source" if self.feed else "sink" if self.sink else self.type

    @property
    def has_key_indexes(self) -> bool:
        """Whether rows are found by its keys in this process: what sources write are not."""
        return self.type == "table" and not self.feed

    @property
    def is_type(self) -> bool:
        """Whether the item is a type, which is no relation."""
        return self.type in ("type", "domain")

    @property
    def is_function(self) -> bool:
        """Whether the item is a function, which is no relation."""
        return self.type == "function"

    @property
    def is_policy(self) -> bool:
        """Whether the item is a policy, which is no relation."""
        return self.type == "policy"

    @property
    def is_collection(self) -> bool:
        """Whether the item has contents of its own."""
        return self.type in ("table", "materialized view", "index")

    @property
    def is_marks(self) -> bool:
        """Whether it has to what the clock has moved the watermark of what it is a part of."""
        return self.type == "table" and bool(self.part_of) and not self.feed


class ColumnOf(msgspec.Struct, frozen=True):
    """A column to drop, treated as an object; its `parts` are dropped with it."""

    kind: ClassVar[str] = "column"
    id: str  # differs from all object ids
    name: str
    table: Item
    parts: tuple[Item, ...]
    users: tuple[Item, ...]  # not parts of it, but dependent on it


class ForeignKeyOf(msgspec.Struct, frozen=True):
    """A foreign key of a table, treated as an object to drop."""

    kind: ClassVar[str] = "constraint"
    id: str  # differs from all object ids
    name: str
    table: Item


Grantable: TypeAlias = Database | Schema | Secret | Connection | Cluster | Item
Object: TypeAlias = Role | Grantable | Replica | SystemSettings | NetworkPolicy

OBJECTS: tuple[type[Object], ...] = (
    Role,
    Database,
    Schema,
    Secret,
    Connection,
    Cluster,
    Replica,
    SystemSettings,
    NetworkPolicy,
    Item,
)
