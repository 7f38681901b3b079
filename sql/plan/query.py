"""Plans of what reads and follows: queries, locks, SUBSCRIBE, EXPLAIN; and what all plans share."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.expr.ir import Finishing, OrderKey, Relation, Scalar
from foreshore.ids import GlobalId, is_temporary
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.types import BOOL, INTERVAL, TEXT, TIMESTAMPTZ, ColumnType, RelationDesc

EXPLAIN_DESC = RelationDesc(("QUERY PLAN",), (ColumnType(TEXT, False),))
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
    "cluster",
    "cluster replica",
    "role",
    "column",  # in comments only
]


@dataclass(frozen=True, slots=True)
class Name:
    """A name as resolved: parts that the kind does not have are None."""

    database: str | None
    schema: str | None
    item: str

    @property
    def temporary(self) -> bool:
        """Whether it is in the schema of a session's temporary items."""
        return is_temporary(self.schema or "")

    def dotted(self) -> str:
        """Return the name as SQL has it, its parts quoted where they need it."""
        parts = (part for part in (self.database, self.schema, self.item) if part is not None)
        return ".".join(map(quote_identifier, parts))


class WritePlan:
    """A plan that may leave something to commit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A lowered relation, and the recursions whose results it reads: first they are computed.

    With `rows_wanted`, any so many of its rows are as good as all of them.
    """

    relation: Relation
    recursions: "tuple[Recursion, ...]" = ()
    rows_wanted: int | None = None

    def relations(self) -> Iterator[Relation]:
        """Yield all its relations, those of its recursions included."""
        yield self.relation
        for each in self.recursions:
            yield from each.base.relations()
            yield from each.step.relations()


@dataclass(frozen=True, slots=True)
class Recursion:
    """The rows of `base`, and of `step` as long as it gives any.

    `step` reads what was found last as `working`; the result is read as `result`. If `distinct`,
    a row counts as found only the first time.
    """

    working: GlobalId
    result: GlobalId
    base: Block
    step: Block
    distinct: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """The collection `id`, which only one query knows: the updates of `of`, called `name`.

    Those with after < time <= through; None is as far as can be read.
    """

    id: GlobalId
    of: GlobalId
    name: str
    columns: tuple[ColumnType, ...]  # mz_timestamp, mz_diff, then those of `of`
    after: Scalar | None
    through: Scalar | None


@dataclass(frozen=True, slots=True)
class InitPlan:
    """The collection `id`, which only one statement knows: the rows of a locking subquery.

    `select` finds and locks them before the statement itself reads anything.
    """

    id: GlobalId
    select: "Select"


@dataclass(frozen=True, slots=True)
class Query:
    """A relation with what finishes its result, and the columns that the client sees."""

    relation: Relation
    finishing: Finishing
    desc: RelationDesc  # of the rows after `finishing.project`
    limit: Scalar | None = None  # LIMIT and OFFSET while they are parameters; else in `finishing`
    offset: Scalar | None = None
    recursions: tuple[Recursion, ...] = ()  # what `relation` reads besides collections
    changes: tuple[Changes, ...] = ()  # and this, too
    init_plans: tuple[InitPlan, ...] = ()  # and these
    # What the columns of `desc` are over the finished rows, if functions act on the session there;
    # then what is called for what it does alone.
    row_outputs: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class AsOf:
    """AS OF [AT LEAST] `time`, a scalar without columns of type mz_timestamp or timestamptz."""

    time: Scalar
    at_least: bool = False


Wait = OneOf["block", "error", "skip"]  # for a lock: until it is there, NOWAIT, SKIP LOCKED


@dataclass(frozen=True, slots=True)
class Locking:
    """What FOR UPDATE and its kin lock: rows of `tables`, and of the tables below views.

    Where rows are left out one by one, the query's last columns are their `key`, columns of the one
    table, and its LIMIT and OFFSET are here.
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
        """The columns that the client asks for."""
        desc = self.query.desc
        if self.locking is None or not self.locking.key:
            return desc
        width = len(desc.names) - len(self.locking.key)
        return RelationDesc(desc.names[:width], desc.columns[:width])


@dataclass(frozen=True, slots=True)
class LockTable:
    """LOCK TABLE: alone, or beside all who write rows."""

    tables: tuple[GlobalId, ...]
    exclusive: bool
    nowait: bool


@dataclass(frozen=True, slots=True)
class Diffs:
    """Each change as it is, with its `mz_diff`.

    `order_by` orders those of one time; its columns are `mz_diff` and then the query's.
    """

    order_by: tuple[OrderKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Upsert:
    """One row for each key (columns of the query) that changed at a time: what is there now."""

    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Debezium:
    """The same with what was there before, too."""

    key: tuple[int, ...]


Envelope: TypeAlias = Diffs | Upsert | Debezium


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE; `subscription` is that to whose position `as_of` is left, None of a query.

    `snapshot` None: the contents come first if that subscription was never advanced.
    """

    query: Query  # without order or limit
    snapshot: bool | None
    progress: bool
    as_of: AsOf | None
    up_to: Scalar | None
    envelope: Envelope
    desc: RelationDesc  # mz_timestamp, [mz_progressed,] then what the envelope makes of the columns
    subscription: GlobalId | None = None
    is_of_relation: bool = False  # whether it names one relation, and is of no query over it


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of `query`; `raw` is the bound form, where the stage asks for it."""

    stage: OneOf["optimized", "physical", "timestamp", "decorrelated", "raw"]
    query: Query
    as_of: AsOf | None
    text: str  # the stage rendered, for all but physical and timestamp


@dataclass(frozen=True, slots=True)
class ExplainFreshness:
    """EXPLAIN FRESHNESS of what a query reads, or of one materialized view or index."""

    of: Query | GlobalId
