"""The syntax tree: what a statement says, before any name in it means anything.

One class for each production of PostgreSQL's grammar that binding tells apart. `at` is the offset
in the text of the token that PostgreSQL would point to in an error.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias
from typing import Literal as OneOf

import msgspec


class Syntax(msgspec.Struct):
    """A node of the tree."""


def nodes_of(tree: object) -> Iterator[Syntax]:
    """Yield the nodes of a tree, or of a tuple of trees, each before those below it."""
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from nodes_of(each)
    elif isinstance(tree, Syntax):
        yield tree
        for name in tree.__struct_fields__:
            yield from nodes_of(getattr(tree, name))


# --- expressions ---------------------------------------------------------------------------


class ColumnRef(Syntax):
    """`[[schema.]table.]column`."""

    parts: tuple[str, ...]
    at: int


class Star(Syntax):
    """`*` or `t.*`."""

    qualifier: tuple[str, ...]
    at: int


class Number(Syntax):
    """A number as written, with its sign if it was folded in."""

    text: str
    at: int


class String(Syntax):
    """A string constant, whose type is still unknown."""

    value: str
    at: int


class Bits(Syntax):
    """A bit string constant."""

    text: str
    at: int


class Boolean(Syntax):
    """TRUE or FALSE."""

    value: bool
    at: int


class Null(Syntax):
    """NULL."""

    at: int


class ParameterRef(Syntax):
    """`$1`."""

    number: int
    at: int


class TypeName(Syntax):
    """A type as written: `numeric(10, 2)[]`."""

    name: tuple[str, ...]
    modifiers: tuple[int, ...]
    dimensions: int
    at: int
    fields: str | None = None  # of an interval: `day to second`


class SortKey(Syntax):
    """One expression of ORDER BY."""

    expr: "Expression"
    descending: bool
    nulls_first: bool | None
    at: int


class FunctionCall(Syntax):
    """A call by name, of a function or an aggregate."""

    name: tuple[str, ...]
    args: tuple["Expression", ...]
    at: int
    star: bool = False
    distinct: bool = False
    variadic: bool = False
    order_by: tuple[SortKey, ...] = ()
    filter: "Expression | None" = None
    over: bool = False
    within_group: bool = False


class Special(Syntax):
    """COALESCE, NULLIF, GREATEST or LEAST: syntax, not functions."""

    kind: OneOf["coalesce", "nullif", "greatest", "least"]
    args: tuple["Expression", ...]
    at: int


class SqlValue(Syntax):
    """CURRENT_DATE and its kin, which are called without parentheses."""

    name: str
    precision: int | None
    at: int


class Operation(Syntax):
    """A prefix (`left` is None) or infix operator."""

    operator: str
    left: "Expression | None"
    right: "Expression"
    at: int


class Connective(Syntax):
    """AND or OR over two operands or more."""

    kind: OneOf["and", "or"]
    args: tuple["Expression", ...]
    at: int


class Not(Syntax):
    """NOT."""

    arg: "Expression"
    at: int


class Is(Syntax):
    """IS [NOT] NULL, TRUE, FALSE, UNKNOWN."""

    arg: "Expression"
    what: OneOf["null", "true", "false", "unknown"]
    negated: bool
    at: int


class IsDistinct(Syntax):
    """IS [NOT] DISTINCT FROM."""

    left: "Expression"
    right: "Expression"
    negated: bool
    at: int


class Like(Syntax):
    """[NOT] LIKE, ILIKE, SIMILAR TO, with ESCAPE."""

    kind: OneOf["like", "ilike", "similar"]
    left: "Expression"
    right: "Expression"
    escape: "Expression | None"
    negated: bool
    at: int


class Between(Syntax):
    """[NOT] BETWEEN [SYMMETRIC]."""

    arg: "Expression"
    low: "Expression"
    high: "Expression"
    symmetric: bool
    negated: bool
    at: int


class InList(Syntax):
    """[NOT] IN (expressions)."""

    arg: "Expression"
    items: tuple["Expression", ...]
    negated: bool
    at: int


class InQuery(Syntax):
    """[NOT] IN (query)."""

    arg: "Expression"
    query: "Query"
    negated: bool
    at: int


class Quantified(Syntax):
    """`left operator ANY|ALL (array or query)`."""

    left: "Expression"
    operator: str
    kind: OneOf["any", "all"]
    right: "Expression | Query"
    at: int


class CastTo(Syntax):
    """`CAST(x AS type)`, `x::type`, `type 'x'`."""

    arg: "Expression"
    type: TypeName
    at: int


class CaseWhen(Syntax):
    """CASE, with or without an operand."""

    operand: "Expression | None"
    branches: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression | None"
    at: int


class Subquery(Syntax):
    """A query as a value, as EXISTS, or as ARRAY(...)."""

    kind: OneOf["scalar", "exists", "array"]
    query: "Query"
    at: int


class ArrayOf(Syntax):
    """ARRAY[...]."""

    items: tuple["Expression", ...]
    at: int


class Row(Syntax):
    """ROW(...), or `(a, b)`."""

    items: tuple["Expression", ...]
    at: int


class Subscript(Syntax):
    """`a[i]`, `a[i:j]`."""

    arg: "Expression"
    lower: "Expression | None"
    upper: "Expression | None"
    slice: bool
    at: int


class Field(Syntax):
    """`(expression).name`; name None for `.*`."""

    arg: "Expression"
    name: str | None
    at: int


class Collate(Syntax):
    """COLLATE."""

    arg: "Expression"
    collation: tuple[str, ...]
    at: int


class Default(Syntax):
    """DEFAULT, in VALUES of an INSERT and in SET."""

    at: int


Expression: TypeAlias = (
    ColumnRef
    | Star
    | Number
    | String
    | Bits
    | Boolean
    | Null
    | ParameterRef
    | FunctionCall
    | Special
    | SqlValue
    | Operation
    | Connective
    | Not
    | Is
    | IsDistinct
    | Like
    | Between
    | InList
    | InQuery
    | Quantified
    | CastTo
    | CaseWhen
    | Subquery
    | ArrayOf
    | Row
    | Subscript
    | Field
    | Collate
    | Default
)

# --- queries -------------------------------------------------------------------------------


class Target(Syntax):
    """An item of a select list."""

    expr: Expression
    alias: str | None
    at: int


class TableRef(Syntax):
    """A relation by name; `end` is where the name ends in the text."""

    name: tuple[str, ...]
    alias: str | None
    columns: tuple[str, ...]
    at: int
    end: int


class SubqueryRef(Syntax):
    """A query in FROM."""

    query: "Query"
    alias: str | None
    columns: tuple[str, ...]
    lateral: bool
    at: int


class FunctionRef(Syntax):
    """A function in FROM; more than one of ROWS FROM. LATERAL or not is the same."""

    calls: tuple[Expression, ...]
    alias: str | None
    columns: tuple[str, ...]
    ordinality: bool
    at: int


class JoinRef(Syntax):
    """A join; `using` None where there is an ON or nothing."""

    left: "FromItem"
    right: "FromItem"
    kind: OneOf["inner", "left", "right", "full", "cross"]
    natural: bool
    using: tuple[tuple[str, int], ...] | None
    on: Expression | None
    alias: str | None
    columns: tuple[str, ...]
    at: int


FromItem: TypeAlias = TableRef | SubqueryRef | FunctionRef | JoinRef


class IntoTable(Syntax):
    """SELECT ... INTO: the table that is made of the rows."""

    name: TableRef
    temporary: bool


class Select(Syntax):
    """One SELECT; `distinct` is None, True, or what DISTINCT ON names."""

    distinct: None | OneOf[True] | tuple[Expression, ...]
    targets: tuple[Target, ...]
    from_: tuple[FromItem, ...]
    where: Expression | None
    group_by: tuple[Expression, ...]
    having: Expression | None
    at: int
    into: IntoTable | None = None


class Values(Syntax):
    """VALUES."""

    rows: tuple[tuple[Expression, ...], ...]
    at: int


class SetOperation(Syntax):
    """UNION, INTERSECT or EXCEPT; UNION ALLs of UNION ALLs are one."""

    kind: OneOf["union", "intersect", "except"]
    all: bool
    inputs: tuple["Select | Values | SetOperation | Query", ...]
    at: int


class CommonTable(Syntax):
    """One query of WITH."""

    name: str
    columns: tuple[str, ...]
    query: "Query"
    at: int


class LockingClause(Syntax):
    """FOR UPDATE and its kin; `strength` is how it begins, `of` are names with their offsets."""

    strength: str
    of: tuple[tuple[tuple[str, ...], int], ...]
    wait: OneOf["block", "error", "skip"]
    at: int


class Query(Syntax):
    """A whole query expression."""

    body: "Select | Values | SetOperation | Query"
    at: int
    ctes: tuple[CommonTable, ...] = ()
    recursive: bool = False
    order_by: tuple[SortKey, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
    locks: tuple[LockingClause, ...] = ()


# --- statements ----------------------------------------------------------------------------


class AsOf(Syntax):
    """AS OF [AT LEAST] time."""

    time: Expression
    at_least: bool


class SelectStatement(Syntax):
    """A query as a statement."""

    query: Query
    as_of: AsOf | None


class Envelope(Syntax):
    """ENVELOPE UPSERT or DEBEZIUM (KEY (...)); each column of the key with its place."""

    kind: str
    key: tuple[tuple[str, int], ...]
    at: int


class SubscribeStatement(Syntax):
    """SUBSCRIBE; `order_by` is that of WITHIN TIMESTAMP.

    `durable` says that `source` is the name of a subscription.
    """

    source: Query | TableRef
    options: dict[str, bool]
    as_of: AsOf | None
    up_to: Expression | None
    envelope: Envelope | None
    order_by: tuple[SortKey, ...] | None
    at: int
    durable: bool = False


class CreateSubscriptionStatement(Syntax):
    """CREATE SUBSCRIPTION; `at` and `end` enclose the text of what it is for."""

    name: TableRef
    source: Query | TableRef
    if_not_exists: bool
    at: int
    end: int


class AdvanceStatement(Syntax):
    """ALTER SUBSCRIPTION ... ADVANCE [FROM a time] TO a time."""

    name: TableRef
    since: Expression | None
    to: Expression
    if_exists: bool


class ObjectRef(Syntax):
    """An object by its kind and name."""

    kind: str
    name: TableRef


class ExplainStatement(Syntax):
    """EXPLAIN of a statement; FRESHNESS of an `ObjectRef` as well."""

    stage: str
    statement: Any
    at: int


class Assignment(Syntax):
    """`column = value` or `(columns) = row` of SET."""

    columns: tuple[tuple[str, int], ...]
    value: Expression
    multiple: bool
    at: int


class OnConflict(Syntax):
    """ON CONFLICT; `assignments` None is DO NOTHING.

    The arbiter is given by `columns` or by `constraint`, a name and where it stands, or not at all.
    """

    columns: tuple[tuple[str, int], ...]
    constraint: tuple[str, int] | None
    assignments: tuple[Assignment, ...] | None
    where: Expression | None
    at: int


class InsertStatement(Syntax):
    """INSERT; `source` None is DEFAULT VALUES."""

    table: TableRef
    columns: tuple[tuple[str, int], ...] | None
    source: Query | None
    returning: tuple[Target, ...]
    on_conflict: OnConflict | None = None
    overriding: OneOf["system", "user"] | None = None
    as_of: AsOf | None = None
    ctes: tuple[CommonTable, ...] = ()
    recursive: bool = False


class MergeUpdate(Syntax):
    """THEN UPDATE SET."""

    assignments: tuple[Assignment, ...]


class MergeDelete(Syntax):
    """THEN DELETE."""


class MergeInsert(Syntax):
    """THEN INSERT; `values` None is DEFAULT VALUES."""

    columns: tuple[tuple[str, int], ...] | None
    values: tuple[Expression, ...] | None
    at: int


class MergeNothing(Syntax):
    """THEN DO NOTHING."""


class MergeClause(Syntax):
    """WHEN [NOT] MATCHED [AND condition] THEN ..."""

    matched: bool
    condition: Expression | None
    action: MergeUpdate | MergeDelete | MergeInsert | MergeNothing
    at: int


class MergeStatement(Syntax):
    """MERGE INTO ... USING ... ON ..."""

    table: TableRef
    source: FromItem
    condition: Expression
    clauses: tuple[MergeClause, ...]
    returning: tuple[Target, ...]
    ctes: tuple[CommonTable, ...] = ()
    recursive: bool = False


class UpdateStatement(Syntax):
    """UPDATE."""

    table: TableRef
    assignments: tuple[Assignment, ...]
    from_: tuple[FromItem, ...]
    where: Expression | None
    returning: tuple[Target, ...]
    ctes: tuple[CommonTable, ...] = ()
    recursive: bool = False


class DeleteStatement(Syntax):
    """DELETE."""

    table: TableRef
    using: tuple[FromItem, ...]
    where: Expression | None
    returning: tuple[Target, ...]
    ctes: tuple[CommonTable, ...] = ()
    recursive: bool = False


class CopyStatement(Syntax):
    """COPY; `source` a table with columns, a query or a SUBSCRIBE."""

    source: "TableRef | SelectStatement | SubscribeStatement"
    columns: tuple[tuple[str, int], ...] | None
    inward: bool
    options: dict[str, Any]
    at: int


class Identity(Syntax):
    """GENERATED ALWAYS or BY DEFAULT AS IDENTITY."""

    always: bool
    options: "SequenceOptions"


class ColumnDefinition(Syntax):
    """A column of CREATE TABLE; `nullable` where NULL is said.

    `default_text` is its default as it was written, at the offset `default_at`.
    """

    name: str
    type: TypeName
    not_null: bool
    default: Expression | None
    at: int
    default_text: str = ""
    nullable: bool = False
    identity: Identity | None = None
    is_new: bool = True  # its sequence, if it has one, is yet to be made
    default_at: int = 0


class ConstraintDefinition(Syntax):
    """A constraint of a table, or of a column, whose columns are then that one.

    `text` is a check's condition as it was written, at the offset `text_at`.
    """

    kind: OneOf["primary key", "unique", "check"]
    name: str | None
    columns: tuple[tuple[str, int], ...]
    condition: Expression | None
    text: str
    nulls_distinct: bool
    at: int
    text_at: int = 0
    is_index: bool = False  # no constraint, but a unique index


OnCommit: TypeAlias = OneOf["preserve rows", "delete rows", "drop"]


class CreateTableStatement(Syntax):
    """CREATE TABLE."""

    name: TableRef
    columns: tuple[ColumnDefinition, ...]
    constraints: tuple[ConstraintDefinition, ...]
    if_not_exists: bool
    retain: "Retain | None" = None
    temporary: bool = False
    on_commit: OnCommit | None = None


class CreateTableAsStatement(Syntax):
    """CREATE TABLE ... AS and SELECT ... INTO; `columns` are names for the first of the query's."""

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

    constraint: ConstraintDefinition


class DropConstraint(Syntax):
    """DROP CONSTRAINT; DROP INDEX where it is one."""

    name: str
    if_exists: bool
    is_index: bool = False


class RenameConstraint(Syntax):
    """RENAME CONSTRAINT name TO ..."""

    name: str
    to: str
    is_index: bool = False  # ALTER INDEX ... RENAME TO, which of a constraint's is the same


class SetNotNull(Syntax):
    """ALTER COLUMN ... SET NOT NULL, or DROP NOT NULL."""

    column: str
    not_null: bool


class SetDefault(Syntax):
    """ALTER COLUMN ... SET DEFAULT, whose `text` is at `text_at`, or DROP DEFAULT (None)."""

    column: str
    default: Expression | None
    text: str
    text_at: int


class AddIdentity(Syntax):
    """ALTER COLUMN ... ADD GENERATED ... AS IDENTITY."""

    column: str
    identity: Identity


class SetIdentity(Syntax):
    """ALTER COLUMN ... SET GENERATED (`always`, None where that is not said), SET option, RESTART.

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
    """ADD [COLUMN]; `constraints` are those that stand with it."""

    column: ColumnDefinition
    constraints: tuple[ConstraintDefinition, ...]
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
    | AddIdentity
    | SetIdentity
    | DropIdentity
    | RenameColumn
    | AddColumn
    | DropColumn
)


class AlterTableStatement(Syntax):
    """ALTER TABLE, all but RENAME TO; the actions happen in the order of their kinds."""

    name: TableRef
    actions: tuple[TableAction, ...]
    if_exists: bool


class CreateUniqueIndexStatement(Syntax):
    """CREATE UNIQUE INDEX; `if_not_exists` asks whether its name is taken."""

    on: TableRef
    index: ConstraintDefinition
    if_not_exists: bool


class TruncateStatement(Syntax):
    """TRUNCATE; CASCADE and RESTRICT are the same, as nothing refers to a table's rows."""

    tables: tuple[TableRef, ...]
    restart_identity: bool


class LockTableStatement(Syntax):
    """LOCK TABLE; `mode` is one of PostgreSQL's, in lower case."""

    tables: tuple[TableRef, ...]
    mode: str
    nowait: bool


class SequenceOptions(Syntax):
    """Options of a sequence, each with its offset in `at`; those not given are not there.

    Values are numbers, but for `as` (TypeName), `cycle` (a truth value), `owned by` (a dotted name,
    empty for NONE) and `sequence name` (TableRef). None: NO MINVALUE, NO MAXVALUE, and RESTART
    without a number.
    """

    given: dict[str, Any]
    at: dict[str, int]


class CreateSequenceStatement(Syntax):
    """CREATE SEQUENCE."""

    name: TableRef
    options: SequenceOptions
    if_not_exists: bool
    temporary: bool = False


class AlterSequenceStatement(Syntax):
    """ALTER SEQUENCE, all but RENAME TO."""

    name: TableRef
    options: SequenceOptions
    if_exists: bool


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
    as_of: AsOf | None = None  # of a materialized view


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


class CreateNamespaceStatement(Syntax):
    """CREATE DATABASE and CREATE SCHEMA."""

    kind: OneOf["database", "schema"]
    name: tuple[str, ...]
    if_not_exists: bool
    at: int


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


class DropStatement(Syntax):
    """DROP."""

    kind: str
    names: tuple[TableRef, ...]
    if_exists: bool
    cascade: bool


class RenameStatement(Syntax):
    """ALTER ... RENAME TO."""

    kind: str
    name: TableRef
    to: str
    if_exists: bool


class Retain(Syntax):
    """RETAIN HISTORY FOR an interval's text."""

    interval: str
    at: int


class RetainStatement(Syntax):
    """ALTER ... SET (RETAIN HISTORY FOR ...), or RESET: `retain` None."""

    kind: str
    name: TableRef
    retain: Retain | None
    if_exists: bool


class CommentStatement(Syntax):
    """COMMENT ON; a column's name ends with its own. `text` None: IS NULL."""

    kind: str
    name: TableRef
    text: str | None


class ShowStatement(Syntax):
    """SHOW objects."""

    what: str
    within: tuple[str, ...]  # FROM or IN
    like: str | None
    where: Expression | None
    at: int
    on: tuple[str, ...] = ()
    in_cluster: str | None = None


class ShowCreateStatement(Syntax):
    """SHOW CREATE kind name."""

    kind: str
    name: TableRef


class SetStatement(Syntax):
    """SET; no values: TO DEFAULT."""

    name: str
    values: tuple[str, ...] | None
    local: bool


class SetZoneStatement(Syntax):
    """SET TIME ZONE INTERVAL 'text' fields: a distance from UTC."""

    text: str
    fields: str | None
    local: bool
    at: int


class ShowVariableStatement(Syntax):
    """SHOW name."""

    name: str


class ResetStatement(Syntax):
    """RESET name, or ALL (None)."""

    name: str | None


class TransactionStatement(Syntax):
    """BEGIN, COMMIT, ROLLBACK, SET TRANSACTION and their spellings."""

    kind: OneOf["begin", "start", "commit", "rollback", "set", "characteristics"]
    read_only: bool | None = None
    isolation: str | None = None
    chain: bool = False


class SavepointStatement(Syntax):
    """SAVEPOINT, RELEASE and ROLLBACK TO."""

    kind: OneOf["savepoint", "release", "rollback to"]
    name: str


class PrepareStatement(Syntax):
    """PREPARE; `start` is where the statement's text starts."""

    name: str
    types: tuple[TypeName, ...]
    start: int
    end: int


class ExecuteStatement(Syntax):
    """EXECUTE."""

    name: str
    args: tuple[Expression, ...]


class DeallocateStatement(Syntax):
    """DEALLOCATE."""

    name: str | None


class DeclareStatement(Syntax):
    """DECLARE CURSOR."""

    name: str
    hold: bool
    statement: SelectStatement | SubscribeStatement


class FetchStatement(Syntax):
    """FETCH and MOVE."""

    name: str
    count: int | None
    timeout: str | None
    move: bool


class CloseStatement(Syntax):
    """CLOSE."""

    name: str | None


class UnlistenStatement(Syntax):
    """UNLISTEN; nobody listens."""


class DiscardStatement(Syntax):
    """DISCARD."""

    what: str


class MaintenanceStatement(Syntax):
    """VACUUM, ANALYZE or CHECKPOINT; without `tables`, of all of them."""

    verb: OneOf["vacuum", "analyze", "checkpoint"]
    tables: tuple[TableRef, ...]


class Unsupported(Syntax):
    """A statement that is PostgreSQL's, and not ours."""

    what: str
    at: int


StatementSyntax: TypeAlias = (
    SelectStatement
    | SubscribeStatement
    | CreateSubscriptionStatement
    | AdvanceStatement
    | ExplainStatement
    | InsertStatement
    | UpdateStatement
    | DeleteStatement
    | MergeStatement
    | CopyStatement
    | CreateTableStatement
    | CreateTableAsStatement
    | AlterTableStatement
    | CreateUniqueIndexStatement
    | TruncateStatement
    | LockTableStatement
    | CreateSequenceStatement
    | AlterSequenceStatement
    | CreateViewStatement
    | CreateIndexStatement
    | CreateNamespaceStatement
    | CreateClusterStatement
    | CreateReplicaStatement
    | DropStatement
    | RenameStatement
    | RetainStatement
    | CommentStatement
    | ShowStatement
    | ShowCreateStatement
    | SetStatement
    | SetZoneStatement
    | ShowVariableStatement
    | ResetStatement
    | TransactionStatement
    | SavepointStatement
    | PrepareStatement
    | ExecuteStatement
    | DeallocateStatement
    | DeclareStatement
    | FetchStatement
    | CloseStatement
    | UnlistenStatement
    | DiscardStatement
    | MaintenanceStatement
    | Unsupported
)
