"""Plans of DDL statements."""

from dataclasses import dataclass, field
from typing import Literal as OneOf

from foreshore.burst import Burst
from foreshore.constraint import Constraint
from foreshore.domain import Domain
from foreshore.expr.ir import Relation, Scalar
from foreshore.foreign_key import ForeignKey
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.privileges import Need
from foreshore.role_options import RoleName
from foreshore.sequence import Generated, Sequence
from foreshore.sql.plan.query import AsOf, ObjectKind, Query, WritePlan
from foreshore.sql_function import SqlFunction, Volatility
from foreshore.types import RelationDesc, SqlType


@dataclass(frozen=True, slots=True)
class CreateDatabase(WritePlan):
    """Create a database; without an `owner` it is the current role's, as is a schema."""

    name: str
    if_not_exists: bool
    owner: RoleName | None = None


@dataclass(frozen=True, slots=True)
class CreateSchema(WritePlan):
    database: str
    name: str
    if_not_exists: bool
    owner: RoleName | None = None


@dataclass(frozen=True, slots=True)
class CreateEnum(WritePlan):
    """CREATE TYPE ... AS ENUM."""

    name: Name
    labels: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class CreateStructured(WritePlan):
    """CREATE TYPE of records, lists or maps; `depends_on` are the types that it names."""

    name: Name
    type: SqlType
    depends_on: frozenset[GlobalId]
    sql: str


@dataclass(frozen=True, slots=True)
class CreateDomain(WritePlan):
    """CREATE DOMAIN; `depends_on` are the types and sequences that it names."""

    name: Name
    domain: Domain
    depends_on: frozenset[GlobalId]
    sql: str


@dataclass(frozen=True, slots=True)
class CreateFunction(WritePlan):
    """CREATE FUNCTION; `depends_on` are what its body and its types name."""

    name: Name
    function: SqlFunction
    depends_on: frozenset[GlobalId]
    or_replace: bool
    sql: str


@dataclass(frozen=True, slots=True)
class DropFunction(WritePlan):
    """DROP FUNCTION: names, with the types of their parameters or None if not given."""

    functions: tuple[tuple[tuple[str, ...], tuple[SqlType, ...] | None], ...]
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class AlterFunction(WritePlan):
    """ALTER FUNCTION or COMMENT ON FUNCTION, of a name with its parameters' types or None.

    `value` is the name, schema or comment; attributes that are None stay.
    """

    name: tuple[str, ...]
    types: tuple[SqlType, ...] | None
    action: OneOf["rename", "owner", "schema", "attributes", "comment"]
    value: str | None
    strict: bool | None
    volatility: Volatility | None
    role: RoleName | None


@dataclass(frozen=True, slots=True)
class AlterEnum(WritePlan):
    """ALTER TYPE ... ADD VALUE, or RENAME VALUE if `renamed` is the label's present name.

    A label is added `before` or after the label `beside`, or at the end.
    """

    name: Name
    label: str
    renamed: str | None
    if_not_exists: bool
    beside: str | None
    before: bool


@dataclass(frozen=True, slots=True)
class CreateSequence(WritePlan):
    """CREATE SEQUENCE; `owned_by` is a table and the name of its column (OWNED BY)."""

    name: Name
    sequence: Sequence
    owned_by: tuple[GlobalId, str] | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class AlterSequence(WritePlan):
    """ALTER SEQUENCE; `id` is None if it does not exist and IF EXISTS was given.

    An empty `owned_by` is OWNED BY NONE. `restart` is the next number to return; None leaves the
    position as it is.
    """

    id: GlobalId | None
    sequence: Sequence
    restart: int | None
    owned_by: tuple[GlobalId, str] | tuple[()] | None
    sql: str
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnSequence:
    """A sequence that is created with a column; an identity column cannot exist without it."""

    column: int
    name: Name
    sequence: Sequence
    identity: bool


@dataclass(frozen=True, slots=True)
class CreateTable(WritePlan):
    """CREATE TABLE; `sql` is the statement with qualified names, which defines the item.

    If there are `sequences`, they are created first. Then `sql` is planned again to obtain the
    `defaults` of columns that use the sequences.
    """

    name: Name
    desc: RelationDesc
    defaults: tuple[Scalar, ...]
    constraints: tuple[Constraint, ...]
    if_not_exists: bool
    sql: str
    generated: tuple[Generated | None, ...] = ()
    sequences: tuple[ColumnSequence, ...] = ()
    depends_on: frozenset[GlobalId] = frozenset()  # sequences
    retain_ms: int | None = None  # RETAIN HISTORY; None: the server's default
    # what happens at each commit of the session
    on_commit: OneOf["delete rows", "drop"] | None = None
    # the generated columns, with their values over the table's row
    computed: tuple[tuple[int, Scalar], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()  # without oids; THIS_TABLE stands for its own id
    indexes: tuple[str, ...] = ()  # statements that create indexes on it


@dataclass(frozen=True, slots=True)
class CreateTableAs(WritePlan):
    """CREATE TABLE AS: create `definition`, with the rows of `source` if `with_data`."""

    definition: CreateTable
    source: Relation
    row_outputs: tuple[Scalar, ...]  # see Query
    with_data: bool
    if_not_exists: bool
    as_of: AsOf | None = None  # the time at which `source` is read


@dataclass(frozen=True, slots=True)
class ForeignKeyChanges:
    """Changes of the foreign keys of a table, by their names; `cascade` of a dropped key."""

    added: tuple[ForeignKey, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    validated: tuple[str, ...] = ()
    cascade: bool = False  # whether the foreign keys that need a dropped key are dropped too


NO_FOREIGN_KEYS = ForeignKeyChanges()


@dataclass(frozen=True, slots=True)
class AlterTable(WritePlan):
    """Replace the definition of `table` by `definition`.

    `table` is None if the table does not exist and IF EXISTS was given. `columns` maps each column
    of the definition to its previous position in the table (None: a new column). `dropped` lists
    the dropped columns, each with whether CASCADE applies. `altered_sequences` are new definitions
    of sequences of identity columns; `dropped_sequences` belong to columns that remain but are no
    longer identity columns. `tag` is the command tag, as statements about unique indexes also give
    this plan.
    """

    table: GlobalId | None
    definition: CreateTable | None
    notices: tuple[str, ...]
    columns: tuple[int | None, ...] = ()
    dropped: tuple[tuple[int, bool], ...] = ()
    altered_sequences: tuple[AlterSequence, ...] = ()
    dropped_sequences: tuple[GlobalId, ...] = ()
    tag: str = "ALTER TABLE"
    converted: tuple[tuple[int, Scalar], ...] = ()  # columns of other types; values over old rows
    foreign: ForeignKeyChanges = NO_FOREIGN_KEYS


@dataclass(frozen=True, slots=True)
class Truncate(WritePlan):
    tables: tuple[GlobalId, ...]  # without duplicates
    restart_identity: bool
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateView(WritePlan):
    name: Name
    query: Query
    or_replace: bool
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str
    notices: tuple[str, ...] = ()
    depends_on_zone: bool = False  # whether its rows depend on the reader's time zone
    needs: tuple[Need, ...] = ()  # the rights that its query needs
    security_invoker: bool = False  # whether who reads it needs them, in place of its owner


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """When a materialized view is refreshed; see `foreshore.refresh`. The times are scalars.

    A lag without `every_ms` is DOWNSTREAM.
    """

    every_ms: int | None
    aligned_to: Scalar | None
    at: tuple[Scalar, ...]
    is_lag: bool
    policy: str  # auto, incremental or full


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(WritePlan):
    """A view whose rows are kept; `as_of` is the first readable time, None: the creation time."""

    name: Name
    query: Query
    cluster: str | None  # None: the session's cluster
    or_replace: bool
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str
    retain_ms: int | None = None
    as_of: AsOf | None = None
    memory_limit: int | None = None  # in bytes
    refresh: RefreshOptions | None = None  # None: it follows every change at once
    violations: str | None = None  # the statement of the view that counts violations
    needs: tuple[Need, ...] = ()
    hydrate: HydrateMode | None = None  # None: as its cluster says


@dataclass(frozen=True, slots=True)
class CreateIndex(WritePlan):
    """CREATE INDEX; `key` are scalars over columns of `on`; `name` None asks for a default name."""

    name: str | None
    on: GlobalId
    key: tuple[Scalar, ...]
    default: bool
    cluster: str | None
    if_not_exists: bool
    sql: str
    retain_ms: int | None = None
    memory_limit: int | None = None  # in bytes
    hydrate: HydrateMode | None = None  # None: as its cluster says
    as_of: AsOf | None = None  # the time from which it can be read


@dataclass(frozen=True, slots=True)
class CreateSubscription(WritePlan):
    name: Name
    query: Query
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance(WritePlan):
    """ALTER SUBSCRIPTION ... ADVANCE; `to` and the expected position `since` are times as in AS OF.

    `id` is None if the subscription does not exist and IF EXISTS was given.
    """

    id: GlobalId | None
    since: Scalar | None
    to: Scalar
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateCluster(WritePlan):
    name: str
    size: str
    replication_factor: int
    options: dict[str, str]
    replicas: tuple[tuple[str, str], ...] | None = None  # (name, size) if listed one by one
    if_not_exists: bool = False
    burst: Burst | None = None


@dataclass(frozen=True, slots=True)
class CreateClusterReplica(WritePlan):
    cluster: str
    name: str
    size: str | None  # None: that of the cluster
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterWait:
    """How ALTER CLUSTER waits for new replicas before the old ones end.

    They are waited for until they are ready, but for at most `timeout_ms`; if not `until_ready`,
    for `timeout_ms` whatever their state. With `roll_back` the statement fails after the time-out.
    """

    until_ready: bool
    timeout_ms: int
    roll_back: bool


@dataclass(frozen=True, slots=True)
class AlterCluster(WritePlan):
    """Options to change; None leaves them as they are. In `options`, None resets an option.

    `burst` is None if there is to be none.
    """

    name: Name
    size: str | None
    replication_factor: int | None
    managed: bool | None
    options: dict[str, str | None]
    wait: ClusterWait | None
    if_exists: bool
    burst: Burst | None | OneOf["keep"] = "keep"


@dataclass(frozen=True, slots=True)
class Swap(WritePlan):
    """Exchange the names of two clusters or schemas."""

    kind: ObjectKind
    name: Name
    other: Name


@dataclass(frozen=True, slots=True)
class SetCluster(WritePlan):
    """Let another cluster maintain a materialized view."""

    name: Name
    cluster: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Drop(WritePlan):
    kind: ObjectKind
    names: tuple[Name, ...]  # the schema of a replica's name is its cluster
    if_exists: bool
    cascade: bool
    assertions: bool = False  # whether only assertions are meant


@dataclass(frozen=True, slots=True)
class SetSecurityInvoker(WritePlan):
    """Say whether who reads a view needs the rights on what it reads, in place of its owner."""

    kind: ObjectKind
    name: Name
    invoker: bool
    if_exists: bool


@dataclass(frozen=True, slots=True)
class LimitMemory(WritePlan):
    """Set how many bytes the dataflow of an object may take; None: as many as there are."""

    kind: ObjectKind
    name: Name
    memory_limit: int | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetErrorPolicy(WritePlan):
    """Set whether a materialized view leaves rows with errors out, ON ERROR."""

    kind: ObjectKind
    name: Name
    skips: bool
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Retain(WritePlan):
    """Set RETAIN HISTORY of an object; None resets it to the server's default."""

    kind: ObjectKind
    name: Name
    retain_ms: int | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Rename(WritePlan):
    kind: ObjectKind
    name: Name
    to: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameViewColumn(WritePlan):
    """Rename a column of a view or materialized view; kind "table" takes either."""

    kind: ObjectKind
    name: Name
    column: str
    to: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetOwner(WritePlan):
    """Give an object to a role."""

    kind: ObjectKind
    name: Name
    role: RoleName
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetSchema(WritePlan):
    """Move a relation, with its indexes and sequences, to another schema of its database."""

    kind: ObjectKind
    name: Name
    schema: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Comment(WritePlan):
    """COMMENT ON an object or, if `column` is given, on that column of the relation `name`.

    If the kind is a constraint, `column` is its name.
    """

    kind: ObjectKind
    name: Name
    column: str | None
    text: str | None  # None removes the comment
