"""Syntax of DDL statements."""

from typing import Any, TypeAlias
from typing import Literal as OneOf

import msgspec

from foreshore.foreign_key import Action
from foreshore.role_options import RoleName
from foreshore.sql.ast.changes import AsOf
from foreshore.sql.ast.expressions import Expression, Syntax, TypeName
from foreshore.sql.ast.query import Query, TableRef
from foreshore.sql.ast.upkeep import Hydrate, MemoryLimit, Retain
from foreshore.sql.ast.watermarks import WatermarkDefinition


class Identity(Syntax):
    """GENERATED ALWAYS or BY DEFAULT AS IDENTITY."""

    always: bool
    options: "SequenceOptions"


class ColumnDefinition(Syntax):
    """A column of CREATE TABLE; `nullable` if NULL was written.

    `default_text` is the default as written, at offset `default_at`; likewise the expression that a
    stored column is `generated` by.
    """

    name: str
    type: TypeName
    not_null: bool
    default: Expression | None
    at: int
    default_text: str = ""
    nullable: bool = False
    identity: Identity | None = None
    is_new: bool = True  # its sequence, if any, does not exist yet
    default_at: int = 0
    generated: Expression | None = None
    generated_text: str = ""
    generated_at: int = 0
    collated_at: int | None = None  # the offset of COLLATE


class LikeTable(Syntax):
    """LIKE table in CREATE TABLE; `including` are the properties to copy, as words."""

    table: TableRef
    including: frozenset[str]


class ConstraintDefinition(Syntax):
    """A constraint of a table or column; `text` at `text_at` is a CHECK's condition as written."""

    kind: OneOf["primary key", "unique", "check"]
    name: str | None
    columns: tuple[tuple[str, int], ...]
    condition: Expression | None
    text: str
    nulls_distinct: bool
    at: int
    text_at: int = 0
    is_index: bool = False  # a unique index instead of a constraint


class ForeignKeyDefinition(Syntax):
    """A foreign key; `referenced` is empty if the columns of the primary key are meant."""

    name: str | None
    columns: tuple[tuple[str, int], ...]
    table: TableRef
    referenced: tuple[tuple[str, int], ...]
    at: int
    match_full: bool = False
    on_delete: Action = "no action"
    on_update: Action = "no action"
    delete_columns: tuple[tuple[str, int], ...] = ()
    deferrable: bool = False
    deferred: bool = False
    valid: bool = True


TableConstraint: TypeAlias = ConstraintDefinition | ForeignKeyDefinition
OnCommit: TypeAlias = OneOf["preserve rows", "delete rows", "drop"]


class CreateTableStatement(Syntax):
    """CREATE TABLE."""

    name: TableRef
    elements: tuple[ColumnDefinition | LikeTable, ...]
    constraints: tuple[ConstraintDefinition, ...]
    if_not_exists: bool
    retain: "Retain | None" = None
    temporary: bool = False
    on_commit: OnCommit | None = None
    foreign_keys: tuple[ForeignKeyDefinition, ...] = ()
    indexes: tuple[tuple[str | None, str], ...] = ()  # names, and texts of the keys
    append_only: bool = False
    watermark: WatermarkDefinition | None = None

    @property
    def columns(self) -> tuple[ColumnDefinition, ...]:
        """The columns, once each LIKE has been replaced by some."""
        assert not any(isinstance(each, LikeTable) for each in self.elements)
        return self.elements  # type: ignore[return-value]


class CreateTableAsStatement(Syntax):
    """CREATE TABLE ... AS and SELECT ... INTO; `columns` rename the first columns of the query."""

    name: TableRef
    columns: tuple[str, ...]
    query: Query
    with_data: bool
    if_not_exists: bool
    temporary: bool = False
    on_commit: OnCommit | None = None
    as_of: AsOf | None = None


class AddConstraint(Syntax):
    """ADD [CONSTRAINT name] ..."""

    constraint: TableConstraint


class DropConstraint(Syntax):
    """DROP CONSTRAINT, or DROP INDEX of a unique index."""

    name: str
    if_exists: bool
    is_index: bool = False
    cascade: bool = False


class RenameConstraint(Syntax):
    """RENAME CONSTRAINT name TO ..."""

    name: str
    to: str
    is_index: bool = False  # ALTER INDEX ... RENAME TO, also of the index of a constraint


class SetNotNull(Syntax):
    """ALTER COLUMN ... SET NOT NULL, or DROP NOT NULL."""

    column: str
    not_null: bool


class SetDefault(Syntax):
    """ALTER COLUMN ... SET DEFAULT, with `text` at `text_at`, or DROP DEFAULT (None)."""

    column: str
    default: Expression | None
    text: str
    text_at: int


class ValidateConstraint(Syntax):
    """VALIDATE CONSTRAINT, which has an effect on a foreign key that is NOT VALID."""

    name: str


class WithoutEffect(Syntax):
    """A setting of PostgreSQL's storage or replication, of a table, a column, or by an index."""

    column: str | None = None
    index: str | None = None


class AlterColumnType(Syntax):
    """ALTER COLUMN ... TYPE ... [USING ...]."""

    column: str
    type: TypeName
    using: Expression | None


class AddIdentity(Syntax):
    """ALTER COLUMN ... ADD GENERATED ... AS IDENTITY."""

    column: str
    identity: Identity


class SetIdentity(Syntax):
    """ALTER COLUMN ... SET GENERATED (`always`, None if not given), SET option, RESTART.

    `options` are those of the column's sequence.
    """

    column: str
    always: bool | None
    options: "SequenceOptions"


class DropIdentity(Syntax):
    """ALTER COLUMN ... DROP IDENTITY."""

    column: str
    if_exists: bool


class RenameColumn(Syntax):
    """RENAME [COLUMN] name TO ..."""

    name: str
    to: str


class AddColumn(Syntax):
    """ADD [COLUMN] with its constraints."""

    column: ColumnDefinition
    constraints: tuple[TableConstraint, ...]
    if_not_exists: bool


class DropColumn(Syntax):
    """DROP [COLUMN]."""

    name: str
    if_exists: bool
    cascade: bool


TableAction: TypeAlias = (
    AddConstraint
    | DropConstraint
    | RenameConstraint
    | SetNotNull
    | SetDefault
    | AlterColumnType
    | ValidateConstraint
    | WithoutEffect
    | AddIdentity
    | SetIdentity
    | DropIdentity
    | RenameColumn
    | AddColumn
    | DropColumn
)


class AlterTableStatement(Syntax):
    """ALTER TABLE except RENAME TO; the actions are applied in the order of their kinds."""

    name: TableRef
    actions: tuple[TableAction, ...]
    if_exists: bool


class CreateUniqueIndexStatement(Syntax):
    """CREATE UNIQUE INDEX; `if_not_exists` asks whether its name is taken."""

    on: TableRef
    index: ConstraintDefinition
    if_not_exists: bool


class TruncateStatement(Syntax):
    """TRUNCATE; with CASCADE also of the tables that refer to those named."""

    tables: tuple[TableRef, ...]
    restart_identity: bool
    cascade: bool = False


class LockTableStatement(Syntax):
    """LOCK TABLE; `mode` is one of PostgreSQL's in lower case."""

    tables: tuple[TableRef, ...]
    mode: str
    nowait: bool


class SequenceOptions(Syntax):
    """Options of a sequence, each with its offset in `at`; options not given are absent.

    Values are numbers, except for `as` (TypeName), `cycle` (a truth value), `owned by` (a dotted
    name, empty for NONE) and `sequence name` (TableRef). None stands for NO MINVALUE, NO MAXVALUE,
    and RESTART without a number.
    """

    given: dict[str, Any]
    at: dict[str, int]


class CreateEnumStatement(Syntax):
    """CREATE TYPE ... AS ENUM; `labels` with their offsets."""

    name: TableRef
    labels: tuple[tuple[str, int], ...]


class CreateStructuredStatement(Syntax):
    """CREATE TYPE ... AS (column type, ...), AS LIST or AS MAP.

    The one column of a list or map is its items, without a name; `key` is the type of a map's keys.
    """

    name: TableRef
    kind: OneOf["record", "list", "map"]
    columns: tuple[tuple[str, TypeName], ...]
    key: TypeName | None = None


class CreateDomainStatement(Syntax):
    """CREATE DOMAIN; its type, default and constraints are those of a column."""

    name: TableRef
    value: ColumnDefinition
    constraints: tuple[ConstraintDefinition, ...]


class AlterEnumStatement(Syntax):
    """ALTER TYPE ... ADD VALUE, or RENAME VALUE if `renamed` is the label's present name.

    A label is added `before` or after the label `beside`, or at the end.
    """

    name: TableRef
    label: str
    renamed: str | None = None
    if_not_exists: bool = False
    beside: str | None = None
    before: bool = False


class CreateSequenceStatement(Syntax):
    """CREATE SEQUENCE."""

    name: TableRef
    options: SequenceOptions
    if_not_exists: bool
    temporary: bool = False


class AlterSequenceStatement(Syntax):
    """ALTER SEQUENCE except RENAME TO."""

    name: TableRef
    options: SequenceOptions
    if_exists: bool


class RefreshOption(Syntax):
    """REFRESH ..., or TARGET LAG: an interval's text, and the time of AT or ALIGNED TO.

    A lag without an interval is DOWNSTREAM.
    """

    kind: OneOf["commit", "creation", "at", "every", "lag"]
    interval: str | None
    time: Expression | None
    at: int


class RefreshOptions(Syntax):
    """The options of a materialized view that say when it is refreshed."""

    refreshes: tuple[RefreshOption, ...]
    policy: str | None
    at: int


class RefreshViewStatement(Syntax):
    """REFRESH MATERIALIZED VIEW."""

    view: TableRef


class VerifyViewStatement(Syntax):
    """VERIFY MATERIALIZED VIEW."""

    view: TableRef
    as_of: AsOf | None = None
    engine: str | None = None


class Expectation(Syntax):
    """CONSTRAINT name EXPECT (condition) ON VIOLATION ...; `start` and `end` enclose it."""

    name: str
    condition: Expression
    action: OneOf["fail", "drop row", "warn"]
    at: int
    start: int
    end: int
    text: str = ""  # of a condition that is in a string


class ViewChecks(Syntax):
    """What is expected of a view's rows, and columns that must not be NULL, with offsets.

    An assertion expects that there are no rows. With `skip_errors` rows with errors are left out.
    """

    expectations: tuple[Expectation, ...] = ()
    not_null: tuple[tuple[str, int], ...] = ()
    assertion: bool = False
    skip_errors: bool = False


class CreateViewStatement(Syntax):
    """CREATE [MATERIALIZED] VIEW; `at` and `end` enclose the query's text."""

    name: TableRef
    columns: tuple[str, ...]
    query: Query
    materialized: bool
    cluster: str | None
    or_replace: bool
    if_not_exists: bool
    at: int
    end: int
    retain: "Retain | None" = None
    temporary: bool = False
    as_of: AsOf | None = None  # for materialized views
    memory_limit: "MemoryLimit | None" = None
    refresh: RefreshOptions | None = None
    checks: ViewChecks = msgspec.field(default_factory=ViewChecks)
    security_invoker: bool = False
    hydrate: "Hydrate | None" = None
    emit_at: int | None = None  # where EMIT ON WINDOW CLOSE is
    partition_by: tuple[tuple[str, int], ...] = ()  # columns with their offsets


class CreateIndexStatement(Syntax):
    """CREATE [DEFAULT] INDEX; `keys_at` and `keys_end` enclose the keys' text."""

    name: str | None
    on: TableRef
    keys: tuple[Expression, ...]
    default: bool
    cluster: str | None
    if_not_exists: bool
    at: int
    keys_at: int
    keys_end: int
    retain: "Retain | None" = None
    memory_limit: "MemoryLimit | None" = None
    included: tuple[tuple[str, int], ...] = ()  # columns of INCLUDE, with offsets
    hydrate: "Hydrate | None" = None
    as_of: "AsOf | None" = None  # the time from which it can be read


class CreateNamespaceStatement(Syntax):
    """CREATE DATABASE and CREATE SCHEMA."""

    kind: OneOf["database", "schema"]
    name: tuple[str, ...]
    if_not_exists: bool
    at: int
    owner: RoleName | None = None


class CreateClusterStatement(Syntax):
    """CREATE CLUSTER."""

    name: str
    options: dict[str, str]
    replicas: tuple[tuple[str, dict[str, str]], ...] | None
    if_not_exists: bool
    at: int


class CreateReplicaStatement(Syntax):
    """CREATE CLUSTER REPLICA cluster.name."""

    cluster: str
    name: str
    options: dict[str, str]
    at: int


class ClusterWait(Syntax):
    """WITH (WAIT UNTIL READY (...)), or WITH (WAIT FOR ...) if not `until_ready`."""

    until_ready: bool
    duration: str  # the longest, or for WAIT FOR the whole
    on_timeout: OneOf["commit", "rollback"]
    at: int


class AlterClusterStatement(Syntax):
    """ALTER CLUSTER ... SET, or RESET: options with None as the value are reset."""

    name: TableRef
    options: dict[str, str | None]
    wait: ClusterWait | None
    if_exists: bool
    at: int


class SwapStatement(Syntax):
    """ALTER CLUSTER or SCHEMA ... SWAP WITH."""

    kind: OneOf["cluster", "schema"]
    name: TableRef
    other: TableRef


class SetClusterStatement(Syntax):
    """ALTER MATERIALIZED VIEW ... SET CLUSTER."""

    name: TableRef
    cluster: str
    if_exists: bool


class DropStatement(Syntax):
    """DROP; `assertions` if it names assertions, which are materialized views."""

    kind: str
    names: tuple[TableRef, ...]
    if_exists: bool
    cascade: bool
    assertions: bool = False


class RenameStatement(Syntax):
    """ALTER ... RENAME TO."""

    kind: str
    name: TableRef
    to: str
    if_exists: bool


class RenameColumnStatement(Syntax):
    """ALTER [MATERIALIZED] VIEW ... RENAME [COLUMN] ... TO."""

    kind: str
    name: TableRef
    column: str
    to: str
    if_exists: bool


class OwnerStatement(Syntax):
    """ALTER ... OWNER TO."""

    kind: str
    name: TableRef
    role: RoleName
    if_exists: bool


class SetSchemaStatement(Syntax):
    """ALTER ... SET SCHEMA."""

    kind: str
    name: TableRef
    schema: str
    if_exists: bool


class SecurityInvokerStatement(Syntax):
    """ALTER VIEW ... SET (security_invoker = ...), or RESET (`invoker` False)."""

    name: TableRef
    invoker: bool
    if_exists: bool


class LimitMemoryStatement(Syntax):
    """ALTER ... SET (MEMORY LIMIT = ...), or RESET (`limit` None)."""

    kind: str
    name: TableRef
    limit: MemoryLimit | None
    if_exists: bool


class RetainStatement(Syntax):
    """ALTER ... SET (RETAIN HISTORY FOR ...), or RESET (`retain` None)."""

    kind: str
    name: TableRef
    retain: Retain | None
    if_exists: bool


class CommentStatement(Syntax):
    """COMMENT ON; the name of a column follows its relation's. `text` None is IS NULL.

    The `name` of a `constraint` is its table's.
    """

    kind: str
    name: TableRef
    text: str | None
    constraint: str | None = None
