"""Syntax of statements that read, subscribe to or change rows."""

from typing import Any, NamedTuple, TypeAlias
from typing import Literal as OneOf

from foreshore.sql.ast.expressions import Expression, SortKey, Syntax
from foreshore.sql.ast.query import (
    CommonTable,
    FromItem,
    MutualRecursion,
    Query,
    TableRef,
    Target,
)


class AsOf(Syntax):
    """AS OF [AT LEAST] time."""

    time: Expression
    at_least: bool


class SelectStatement(Syntax):
    """A query as a statement."""

    query: Query
    as_of: AsOf | None


class Envelope(Syntax):
    """ENVELOPE UPSERT or DEBEZIUM (KEY (...)); each key column with its offset."""

    kind: str
    key: tuple[tuple[str, int], ...]
    at: int


class SubscribeStatement(Syntax):
    """SUBSCRIBE; `order_by` is that of WITHIN TIMESTAMP.

    `durable`: `source` is the name of a subscription.
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
    """CREATE SUBSCRIPTION; `at` and `end` enclose the text of its source."""

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
    """EXPLAIN of a statement, or EXPLAIN FRESHNESS of an object.

    With `analyze` the statement is run. Of a maintained object, `measures` are what is shown of its
    operators: memory, cpu; `skew` tells its replicas apart.
    """

    stage: str
    statement: Any
    at: int
    analyze: bool = False
    json: bool = False
    measures: tuple[str, ...] = ()
    skew: bool = False


class Place(Syntax):
    """`[i]` or `[i:j]` after a column of SET."""

    lower: Expression | None
    upper: Expression | None
    slice: bool
    at: int


class Assignment(Syntax):
    """`column = value`, `column[subscript] = value` or `(columns) = row` of SET."""

    columns: tuple[tuple[str, int], ...]
    value: Expression
    multiple: bool
    at: int
    subscripts: tuple[Place, ...] = ()


class OnConflict(Syntax):
    """ON CONFLICT; `assignments` None is DO NOTHING.

    The arbiter is given by `columns`, by `constraint` (a name and its offset), or not at all.
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
    ctes: "tuple[CommonTable | ChangingTable, ...]" = ()
    recursive: bool | MutualRecursion = False


class ChangingTable(Syntax):
    """A query of WITH that changes rows: an INSERT, UPDATE, DELETE or MERGE."""

    name: str
    columns: tuple[str, ...]
    change: "InsertStatement | UpdateStatement | DeleteStatement | MergeStatement"
    at: int


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
    ctes: "tuple[CommonTable | ChangingTable, ...]" = ()
    recursive: bool | MutualRecursion = False


class CurrentOf(Syntax):
    """WHERE CURRENT OF a cursor."""

    cursor: str
    at: int


class UpdateStatement(Syntax):
    """UPDATE."""

    table: TableRef
    assignments: tuple[Assignment, ...]
    from_: tuple[FromItem, ...]
    where: Expression | CurrentOf | None
    returning: tuple[Target, ...]
    ctes: "tuple[CommonTable | ChangingTable, ...]" = ()
    recursive: bool | MutualRecursion = False


class DeleteStatement(Syntax):
    """DELETE."""

    table: TableRef
    using: tuple[FromItem, ...]
    where: Expression | CurrentOf | None
    returning: tuple[Target, ...]
    ctes: "tuple[CommonTable | ChangingTable, ...]" = ()
    recursive: bool | MutualRecursion = False


class CopyOption(NamedTuple):
    """An option of COPY: a text, a list of names or `*`; its offset; or a connection."""

    name: str
    value: str | tuple[str, ...]
    at: int
    connection: TableRef | None = None


CopySource: TypeAlias = (
    TableRef
    | SelectStatement
    | SubscribeStatement
    | InsertStatement
    | UpdateStatement
    | DeleteStatement
    | MergeStatement
)


class CopyStatement(Syntax):
    """COPY; `source` is a table with columns, or a statement that returns rows."""

    source: CopySource
    columns: tuple[tuple[str, int], ...] | None
    is_from: bool
    options: tuple[CopyOption, ...]
    at: int
    span: tuple[int, int]  # of the statement in parentheses
    url: str | None = None  # of files; None: the client sends or receives the rows
    where: Expression | None = None  # of COPY FROM
