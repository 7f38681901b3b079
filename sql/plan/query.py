"""Plans of queries, row locks, SUBSCRIBE and EXPLAIN, and types that all plans share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from typing import Literal as OneOf

from foreshore.expr.block import AnyRecursion, Block
from foreshore.expr.envelope import Envelope
from foreshore.expr.ir import Finishing, Relation, Scalar
from foreshore.expr.plan_nodes import PlanNode
from foreshore.ids import GlobalId
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT8,
    INTERVAL,
    JSON,
    TEXT,
    TIMESTAMPTZ,
    ColumnType,
    RelationDesc,
)

if TYPE_CHECKING:
    from foreshore.sql.plan.changes import Change

EXPLAIN_DESC = RelationDesc(("QUERY PLAN",), (ColumnType(TEXT, False),))
PUSHDOWN_DESC = RelationDesc(
    ("source", "total_bytes", "selected_bytes", "total_parts", "selected_parts"),
    (ColumnType(TEXT, False), *(ColumnType(INT8, False),) * 4),
)
EXPLAIN_JSON_DESC = RelationDesc(("QUERY PLAN",), (ColumnType(JSON, False),))
FRESHNESS_DESC = RelationDesc(
    (
        "object",
        "type",
        "cluster",
        "state",
        "upper",
        "wallclock_lag",
        "oracle_lag",
        "own_lag",
        "culprit",
        "reason",
    ),
    (
        ColumnType(TEXT, False),
        ColumnType(TEXT, False),
        ColumnType(TEXT),
        ColumnType(TEXT, False),
        ColumnType(TIMESTAMPTZ),
        ColumnType(INTERVAL),
        ColumnType(INTERVAL),
        ColumnType(INTERVAL),
        ColumnType(BOOL, False),
        ColumnType(TEXT),
    ),
)

ObjectKind = OneOf[
    "database",
    "schema",
    "table",
    "view",
    "materialized view",
    "index",
    "sequence",
    "subscription",
    "source",
    "sink",
    "metric",
    "type",
    "domain",
    "cluster",
    "cluster replica",
    "role",
    "secret",
    "connection",
    "network policy",
    "column",  # COMMENT ON only
    "constraint",  # COMMENT ON only
]


class WritePlan:
    """A plan that may stage writes or catalog changes for commit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """The query-local collection `id`: the updates of `of`, which is named `name`.

    It holds updates with after < time <= through. None means: as far as is readable.
    """

    id: GlobalId
    of: GlobalId
    name: str
    columns: tuple[ColumnType, ...]  # mz_timestamp, mz_diff, then those of `of`
    after: Scalar | None
    through: Scalar | None


@dataclass(frozen=True, slots=True)
class InitPlan:
    """The statement-local collection `id`: the rows that `plan` returns.

    It is a locking subquery, which finds and locks its rows before the statement reads anything
    else, or a part of a WITH that changes rows.
    """

    id: GlobalId
    plan: "Select | Change"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Query:
    """A relation, the finishing of its result, and the columns that the client sees."""

    relation: Relation
    finishing: Finishing
    desc: RelationDesc  # of the rows after `finishing.project`
    # LIMIT and OFFSET if they depend on parameters; otherwise in `finishing`
    limit: Scalar | None = None
    offset: Scalar | None = None
    # collections that `relation` reads besides those of the catalog
    recursions: tuple[AnyRecursion, ...] = ()
    changes: tuple[Changes, ...] = ()  # likewise
    init_plans: tuple[InitPlan, ...] = ()  # likewise
    # If the query calls functions with side effects: the columns of `desc` as scalars over the
    # finished rows, then calls whose results are not shown.
    row_outputs: tuple[Scalar, ...] = ()
    # the engine of the cluster that has to evaluate it; None: as the session has chosen
    engine: OneOf["duckdb", "spark"] | None = None

    @property
    def block(self) -> Block:
        """The relation with its recursions."""
        return Block(self.relation, self.recursions)


@dataclass(frozen=True, slots=True)
class AsOf:
    """AS OF [AT LEAST] `time`, a scalar without columns of type mz_timestamp or timestamptz."""

    time: Scalar
    at_least: bool = False


# behaviour if a lock is not available: wait, NOWAIT, SKIP LOCKED
Wait = OneOf["block", "error", "skip"]


@dataclass(frozen=True, slots=True)
class Locking:
    """Row locks of FOR UPDATE and similar clauses: `tables` include the tables below views.

    With SKIP LOCKED, the query's last columns are the `key` of its only table, and its LIMIT and
    OFFSET are here.
    """

    tables: tuple[GlobalId, ...]
    strength: str
    wait: Wait
    key: tuple[int, ...] = ()
    limit: Scalar | None = None
    offset: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Select:
    query: Query
    as_of: AsOf | None = None
    locking: Locking | None = None

    @property
    def desc(self) -> RelationDesc:
        """Return the columns that the client sees."""
        desc = self.query.desc
        if self.locking is None or not self.locking.key:
            return desc
        width = len(desc.names) - len(self.locking.key)
        return RelationDesc(desc.names[:width], desc.columns[:width], origins=desc.origins[:width])


@dataclass(frozen=True, slots=True)
class LockTable:
    """LOCK TABLE; `exclusive` conflicts with writers of rows."""

    tables: tuple[GlobalId, ...]
    exclusive: bool
    nowait: bool


class OutputOrder(NamedTuple):
    """A key of ORDER BY that is a column of the result, by its place."""

    column: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE; `subscription` gives `as_of` if a durable subscription is read.

    `snapshot` None: the contents come first only if that subscription was never advanced.
    """

    query: Query  # without ORDER BY and LIMIT
    snapshot: bool | None
    progress: bool
    as_of: AsOf | None
    up_to: Scalar | None
    envelope: Envelope
    desc: RelationDesc  # mz_timestamp, [mz_progressed,] then the columns of the envelope
    subscription: GlobalId | None = None
    is_of_relation: bool = False  # whether it names one relation instead of a query
    order: tuple[OutputOrder, ...] = ()  # ORDER BY of the query, for who shows its rows


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of `query`; `nodes` are the plan at that stage."""

    stage: OneOf[
        "optimized", "physical", "timestamp", "local", "decorrelated", "raw", "cost", "pushdown"
    ]
    query: Query
    as_of: AsOf | None
    nodes: tuple[PlanNode, ...] = ()
    json: bool = False

    @property
    def desc(self) -> RelationDesc:
        """Return the columns of the result."""
        return PUSHDOWN_DESC if self.stage == "pushdown" else EXPLAIN_DESC


@dataclass(frozen=True, slots=True)
class ExplainAnalyze:
    """EXPLAIN ANALYZE: run `select`, and tell what was done; or EXPLAIN as JSON, if not `run`.

    `nodes` are the optimized plan.
    """

    select: Select
    nodes: tuple[PlanNode, ...]
    run: bool
    json: bool

    @property
    def desc(self) -> RelationDesc:
        """Return the columns of the result."""
        return EXPLAIN_JSON_DESC if self.json else EXPLAIN_DESC


@dataclass(frozen=True, slots=True)
class ExplainOperators:
    """EXPLAIN ANALYZE MEMORY, CPU: the operators that maintain an object.

    With `skew` there are rows for each replica.
    """

    object: GlobalId
    measures: tuple[str, ...]  # memory, cpu
    skew: bool

    @property
    def desc(self) -> RelationDesc:
        """Return the columns of the result."""
        columns = [("operator", ColumnType(TEXT, False))]
        if self.skew:
            columns.append(("replica", ColumnType(TEXT)))
        for measure in self.measures:
            columns += _MEASURED[measure]
            if self.skew:
                name, _ = _MEASURED[measure][0]
                columns.append((f"{name.removeprefix('total_')}_ratio", ColumnType(FLOAT8)))
        columns.append(("hint", ColumnType(TEXT)))
        names, types = zip(*columns, strict=True)
        return RelationDesc(names, types)


_MEASURED = {
    "memory": [("total_memory", ColumnType(TEXT)), ("total_records", ColumnType(INT8))],
    "cpu": [
        ("total_elapsed", ColumnType(INTERVAL)),
        ("rows_in", ColumnType(INT8)),
        ("rows_out", ColumnType(INT8)),
    ],
}


@dataclass(frozen=True, slots=True)
class ExplainMaintained:
    """EXPLAIN of a materialized view or an index: its definition, or how it is maintained.

    `nodes` are its definition at an earlier stage, if that is asked for.
    """

    object: GlobalId
    stage: OneOf["definition", "physical", "pushdown"] = "physical"
    json: bool = False
    nodes: tuple[PlanNode, ...] = ()

    @property
    def desc(self) -> RelationDesc:
        """Return the columns of the result."""
        return PUSHDOWN_DESC if self.stage == "pushdown" else EXPLAIN_DESC


@dataclass(frozen=True, slots=True)
class ExplainFreshness:
    """EXPLAIN FRESHNESS of the inputs of a query, or of one materialized view or index."""

    of: Query | GlobalId
