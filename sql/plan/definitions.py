"""Plans of what makes, alters and drops what the catalog holds."""

from dataclasses import dataclass, field
from typing import Literal as OneOf

from foreshore.constraint import Constraint
from foreshore.expr.ir import Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sequence import Generated, Sequence
from foreshore.sql.plan.query import AsOf, Name, ObjectKind, Query, WritePlan
from foreshore.types import RelationDesc


@dataclass(frozen=True, slots=True)
class CreateDatabase(WritePlan):
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSchema(WritePlan):
    database: str
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSequence(WritePlan):
    """`owned_by` is a table and the name of its column: the sequence goes with it."""

    name: Name
    sequence: Sequence
    owned_by: tuple[GlobalId, str] | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class AlterSequence(WritePlan):
    """`id` None: there is no such sequence, and it is well. `owned_by` empty: by nothing.

    `restart` is the number to be given out next; None: as if nothing had happened.
    """

    id: GlobalId | None
    sequence: Sequence
    restart: int | None
    owned_by: tuple[GlobalId, str] | tuple[()] | None
    sql: str
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnSequence:
    """A sequence that a column gets with its definition; an identity column cannot be without."""

    column: int
    name: Name
    sequence: Sequence
    identity: bool


@dataclass(frozen=True, slots=True)
class CreateTable(WritePlan):
    """`sql` is the statement with all names qualified, from which the item is planned anew.

    If there are `sequences` they have to be made first; then `sql` is planned, and `defaults` says
    what a column has that takes its numbers from one of them.
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
    retain_ms: int | None = None  # how far back it stays readable; None: as far as everything
    on_commit: OneOf["delete rows", "drop"] | None = None  # what goes whenever the session commits


@dataclass(frozen=True, slots=True)
class CreateTableAs(WritePlan):
    """The rows of `source`, if `with_data`, make the table `definition`."""

    definition: CreateTable
    source: Relation
    row_outputs: tuple[Scalar, ...]  # what the rows are over `source`, as in Query
    with_data: bool
    if_not_exists: bool
    as_of: AsOf | None = None  # when `source` is read


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


@dataclass(frozen=True, slots=True)
class Truncate(WritePlan):
    tables: tuple[GlobalId, ...]  # each once
    restart_identity: bool


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


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(WritePlan):
    """A view whose rows are kept; `as_of` is from when on, None: from when it is created."""

    name: Name
    query: Query
    cluster: str | None  # None: the session's
    or_replace: bool
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str
    retain_ms: int | None = None
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex(WritePlan):
    """`key` are scalars over the columns of `on`; `name` None asks for a free default one."""

    name: str | None
    on: GlobalId
    key: tuple[Scalar, ...]
    default: bool
    cluster: str | None
    if_not_exists: bool
    sql: str
    retain_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CreateSubscription(WritePlan):
    name: Name
    query: Query
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str


@dataclass(frozen=True, slots=True)
class Advance(WritePlan):
    """`to` and `since`, where it has to be, are times as in AS OF.

    `id` None: there is no such subscription, and it is well.
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
    replicas: tuple[tuple[str, str], ...] | None = None  # (name, size) where listed one by one
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateClusterReplica(WritePlan):
    cluster: str
    name: str
    size: str
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop(WritePlan):
    kind: ObjectKind
    names: tuple[Name, ...]  # a replica's schema is its cluster
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class Retain(WritePlan):
    """From now on it stays readable so far back; None: as far as everything does."""

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
class Comment(WritePlan):
    """COMMENT ON an object or, if `column` is given, on that column of the relation `name`."""

    kind: ObjectKind
    name: Name
    column: str | None
    text: str | None  # None: the comment goes
