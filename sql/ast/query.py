"""Syntax of queries: what is in FROM, SELECT, VALUES, set operations and WITH."""

from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Literal as OneOf

from foreshore.sql.ast.expressions import (
    Expression,
    SortKey,
    Syntax,
    TypeName,
    WindowDefinition,
)
from foreshore.sql.ast.form_rows import FormRows

if TYPE_CHECKING:
    from foreshore.sql.ast.session import ShowStatement


class Target(Syntax):
    """An item of a select list."""

    expr: Expression
    alias: str | None
    at: int


class TableRef(Syntax):
    """A relation by name; `end` is the end of the name in the text."""

    name: tuple[str, ...]
    alias: str | None
    columns: tuple[str, ...]
    at: int
    end: int


class SubqueryRef(Syntax):
    """A query in FROM."""

    query: "Query | ShowStatement"
    alias: str | None
    columns: tuple[str, ...]
    lateral: bool
    at: int


class FunctionRef(Syntax):
    """A function in FROM, or several in ROWS FROM; LATERAL makes no difference.

    `definitions` is a column definition list, whose names are `columns` too.
    """

    calls: tuple[Expression, ...]
    alias: str | None
    columns: tuple[str, ...]
    ordinality: bool
    at: int
    definitions: tuple[tuple[str, TypeName], ...] = ()


class JoinRef(Syntax):
    """A join; `using` is None if there is an ON clause or no condition."""

    left: "FromItem"
    right: "FromItem"
    kind: OneOf["inner", "left", "right", "full", "cross"]
    natural: bool
    using: tuple[tuple[str, int], ...] | None
    on: Expression | None
    alias: str | None
    columns: tuple[str, ...]
    at: int
    using_alias: str | None = None  # of the columns of USING
    asof: bool = False  # the last or next row of `right` instead of all


class TimeWindowRef(Syntax):
    """TUMBLE, HOP or SESSION: a relation's rows with the windows of time in which they are."""

    kind: OneOf["tumble", "hop", "session"]
    input: "FromItem"
    time: Expression
    keys: tuple[Expression, ...]  # of the sessions
    lengths: dict[str, Expression]  # size, slide, offset, gap
    alias: str | None
    columns: tuple[str, ...]
    at: int


class ColumnChoice(Syntax):
    """Some columns of a relation, or all but these if `excluded`; names with offsets."""

    names: tuple[tuple[str, int], ...]
    excluded: bool


class AutoCdcRef(Syntax):
    """AUTO_CDC: the rows that a feed of changes leaves, or their history (SCD type 2).

    If `snapshots`, the rows of the feed with one sequence are a whole copy of the relation.
    """

    input: "FromItem"
    snapshots: bool
    keys: tuple[Expression, ...]
    sequence: tuple[Expression, ...]
    deletes: Expression | None
    ignores: ColumnChoice | None  # the columns whose NULL means: no change
    outputs: ColumnChoice | None
    tracked: ColumnChoice | None
    history: bool
    alias: str | None
    columns: tuple[str, ...]
    at: int


FromItem: TypeAlias = TableRef | SubqueryRef | FunctionRef | JoinRef | TimeWindowRef | AutoCdcRef


class IntoTable(Syntax):
    """SELECT ... INTO: the table to create."""

    name: TableRef
    temporary: bool


class NamedWindow(Syntax):
    """`name AS (...)` of the WINDOW clause."""

    name: str
    definition: WindowDefinition
    at: int


class GroupingSets(Syntax):
    """GROUPING SETS, ROLLUP or CUBE in GROUP BY; `sets` without elements is `()`."""

    kind: OneOf["sets", "rollup", "cube"]
    elements: tuple["Expression | GroupingSets", ...]
    at: int


class Select(Syntax):
    """One SELECT; `distinct` is None, True, or the expressions of DISTINCT ON.

    `is_table`: written as TABLE name.
    """

    distinct: None | OneOf[True] | tuple[Expression, ...]
    targets: tuple[Target, ...]
    from_: tuple[FromItem, ...]
    where: Expression | None
    group_by: tuple[Expression | GroupingSets, ...]
    having: Expression | None
    at: int
    into: IntoTable | None = None
    is_table: bool = False
    windows: tuple[NamedWindow, ...] = ()
    qualify: Expression | None = None
    distinct_groups: bool = False  # GROUP BY DISTINCT
    groups_all: bool = False  # GROUP BY ALL: by the targets without aggregates


class Values(Syntax):
    """VALUES: `rows`, or if it is long one of each form, and all of them in `more`."""

    rows: tuple[tuple[Expression, ...], ...]
    at: int
    more: FormRows | None = None

    @property
    def whole(self) -> tuple[tuple[Expression, ...], ...]:
        """All rows as nodes."""
        return self.rows if self.more is None else self.more.parse()


class SetOperation(Syntax):
    """UNION, INTERSECT or EXCEPT; nested UNION ALLs are one."""

    kind: OneOf["union", "intersect", "except"]
    all: bool
    inputs: tuple["Select | Values | SetOperation | Query", ...]
    at: int


class SearchClause(Syntax):
    """SEARCH DEPTH | BREADTH FIRST BY columns SET name: a column that orders the rows."""

    kind: OneOf["depth", "breadth"]
    columns: tuple[tuple[str, int], ...]
    name: str
    at: int


class CycleClause(Syntax):
    """CYCLE columns SET mark [TO value DEFAULT value] USING path."""

    columns: tuple[tuple[str, int], ...]
    mark: str
    value: Expression
    default: Expression
    path: str
    at: int


class CommonTable(Syntax):
    """One query of WITH; of WITH MUTUALLY RECURSIVE also the types of its columns."""

    name: str
    columns: tuple[str, ...]
    query: "Query"
    at: int
    types: tuple[TypeName, ...] = ()
    search: SearchClause | None = None
    cycle: CycleClause | None = None


class MutualRecursion(Syntax):
    """MUTUALLY RECURSIVE: the limit of its rounds, and whether it is an error to reach it."""

    limit: int | None
    fails: bool


class LockingClause(Syntax):
    """FOR UPDATE and similar; `strength` is its first words, `of` are names with offsets."""

    strength: str
    of: tuple[tuple[tuple[str, ...], int], ...]
    wait: OneOf["block", "error", "skip"]
    at: int


class Query(Syntax):
    """A whole query expression."""

    body: "Select | Values | SetOperation | Query"
    at: int
    ctes: tuple[Any, ...] = ()  # CommonTable, ChangingTable
    recursive: bool | MutualRecursion = False
    order_by: tuple[SortKey, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
    with_ties: bool = False  # FETCH FIRST ... WITH TIES
    locks: tuple[LockingClause, ...] = ()
