"""What a statement means, planned: the face that `sql` shows to the adapter.

`plan_statement` (sql/planner.py) gives one of these for each parsed statement. A plan is untimed
and pure: it names collections by `GlobalId`, holds lowered and optimised relations, and may hold
`Parameter` and `Environment` scalars that the adapter replaces when it runs it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.constraint import Constraint
from foreshore.expr.ir import Finishing, OrderKey, Relation, Scalar
from foreshore.ids import GlobalId, is_temporary
from foreshore.sequence import Generated, Sequence
from foreshore.sql.keywords import quote_identifier
from foreshore.types import (
    BOOL,
    INTERVAL,
    TEXT,
    TIMESTAMPTZ,
    ColumnType,
    RelationDesc,
    SqlType,
)

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


class Changing:
    """A plan that may leave something to commit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A lowered relation, and the recursions whose results it reads: first they are computed."""

    relation: Relation
    recursions: "tuple[Recursion, ...]" = ()

    def relations(self) -> Iterator[Relation]:
        """Yield all its relations, those of its recursions included."""
        yield self.relation
        for each in self.recursions:
            yield from each.base.relations()
            yield from each.step.relations()


@dataclass(frozen=True, slots=True)
class Recursion:
    """The rows of `base`, and of `step` as long as it gives any.

    `step` reads what was found last as `working`, and all that was found so far as `result`, as
    which the result is read. Rows that are not to be found again it leaves out itself.
    """

    working: GlobalId
    result: GlobalId
    base: Block
    step: Block


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
    over: tuple[Scalar, ...] = ()


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
    alone: bool
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


@dataclass(frozen=True, slots=True)
class OnConflict:
    """What becomes of rows whose key is there already, by one of the constraints `arbiters`.

    `update` None: nothing. Else it is over LocalGet(0), rows that are there beside those proposed,
    and then a number: 2n + 1 columns for a table of n. It gives the number, then the row that is to
    replace the first one, for those that it replaces.
    """

    arbiters: tuple[str, ...]
    update: Relation | None


@dataclass(frozen=True, slots=True)
class Insert(Changing):
    """Rows of `source` (columns in the table's order, defaults filled in) go into the table.

    `returning` is over `source`'s columns. `constant`: it reads no collection.
    """

    table: GlobalId
    source: Relation
    returning: Query | None  # its relation is over LocalGet(0), the inserted rows
    constant: bool
    on_conflict: OnConflict | None = None
    over: tuple[Scalar, ...] = ()  # what the rows are over `source`, as in Query
    as_of: AsOf | None = None  # when `source` is read
    init_plans: tuple[InitPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """No row is changed but those whose `columns` equal, in this order, a row of `source`.

    Where these columns are a key, `under` is the statement's selection where the table has no other
    rows than those; it does not look at the source. `single`: that has no more than one row.
    """

    columns: tuple[int, ...]
    source: Relation
    under: Relation | None = None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Update(Changing):
    """`selection` gives old rows then new ones side by side: 2n columns for a table of n.

    The old rows are those that qualify, with their multiplicities. If there is a `returning`, the
    columns of FROM follow.
    """

    table: GlobalId
    selection: Relation
    returning: Query | None  # over LocalGet(0), the new rows and the columns of FROM
    over: tuple[Scalar, ...] = ()  # what those columns are over `selection`, as in Query
    keys: ChangedKeys | None = None  # what is known of the rows before any is read
    init_plans: tuple[InitPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete(Changing):
    table: GlobalId
    selection: Relation  # the rows to delete and, if there is a `returning`, the columns of USING
    returning: Query | None  # over LocalGet(0), the same columns
    keys: ChangedKeys | None = None  # as in Update
    init_plans: tuple[InitPlan, ...] = ()


MergeAction = OneOf["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class Merge(Changing):
    """`selection` gives the rows on which MERGE acts: 2n + 2 columns for a table of n.

    The first is a place in `actions`, the second how often the old row is in the table (NULL for an
    insert); then the old row and the new one, of which some actions need only one. If there is a
    `returning`, the columns of the source follow.
    """

    table: GlobalId
    selection: Relation
    actions: tuple[MergeAction, ...]
    over: tuple[Scalar, ...] = ()  # what those columns are over `selection`, as in Query
    keys: ChangedKeys | None = None  # as in Update
    # Over LocalGet(0): the source's columns, the row as it has become, or was, and the action.
    returning: Query | None = None
    init_plans: tuple[InitPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyOptions:
    format: OneOf["text", "csv", "binary"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] | OneOf["*"] = ()


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """COPY table (columns) FROM STDIN. `columns` are positions; the others take `defaults`."""

    table: GlobalId
    columns: tuple[int, ...]
    defaults: tuple[Scalar, ...]  # one for each column of the table
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CopyTo:
    source: "Select | Subscribe"
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CreateDatabase(Changing):
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSchema(Changing):
    database: str
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSequence(Changing):
    """`owned_by` is a table and the name of its column: the sequence goes with it."""

    name: Name
    sequence: Sequence
    owned_by: tuple[GlobalId, str] | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class AlterSequence(Changing):
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
class OwnSequence:
    """A sequence that a column gets with its definition; an identity column cannot be without."""

    column: int
    name: Name
    sequence: Sequence
    identity: bool


@dataclass(frozen=True, slots=True)
class CreateTable(Changing):
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
    sequences: tuple[OwnSequence, ...] = ()
    depends_on: frozenset[GlobalId] = frozenset()  # sequences
    retain_ms: int | None = None  # how far back it stays readable; None: as far as everything
    on_commit: OneOf["delete rows", "drop"] | None = None  # what goes whenever the session commits


@dataclass(frozen=True, slots=True)
class CreateTableAs(Changing):
    """The rows of `source`, if `with_data`, make the table `definition`."""

    definition: CreateTable
    source: Relation
    over: tuple[Scalar, ...]  # what the rows are over `source`, as in Query
    with_data: bool
    if_not_exists: bool
    as_of: AsOf | None = None  # when `source` is read


@dataclass(frozen=True, slots=True)
class AlterTable(Changing):
    """`table` is from now on what `definition` says; None: there is no such table, and it is well.

    `notices` are for the client. `columns` says of each column of the definition where in the table
    it was before, None of one that is new. `dropped` are the columns that go, each with whether
    what uses it goes too. `renumbered` is what becomes of the sequences of identity columns, and
    `unnumbered` are those that go, as their columns stay and are none any longer. `tag` is what the
    statement is called when it is done: those about unique indexes are this, too.
    """

    table: GlobalId | None
    definition: CreateTable | None
    notices: tuple[str, ...]
    columns: tuple[int | None, ...] = ()
    dropped: tuple[tuple[int, bool], ...] = ()
    renumbered: tuple[AlterSequence, ...] = ()
    unnumbered: tuple[GlobalId, ...] = ()
    tag: str = "ALTER TABLE"


@dataclass(frozen=True, slots=True)
class Truncate(Changing):
    tables: tuple[GlobalId, ...]  # each once
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class CreateView(Changing):
    name: Name
    query: Query
    or_replace: bool
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(Changing):
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
class CreateIndex(Changing):
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
class CreateSubscription(Changing):
    name: Name
    query: Query
    if_not_exists: bool
    depends_on: frozenset[GlobalId]
    sql: str


@dataclass(frozen=True, slots=True)
class Advance(Changing):
    """`to` and `since`, where it has to be, are times as in AS OF.

    `id` None: there is no such subscription, and it is well.
    """

    id: GlobalId | None
    since: Scalar | None
    to: Scalar
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateCluster(Changing):
    name: str
    size: str
    replication_factor: int
    options: dict[str, str]
    replicas: tuple[tuple[str, str], ...] | None = None  # (name, size) where listed one by one
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateClusterReplica(Changing):
    cluster: str
    name: str
    size: str
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop(Changing):
    kind: ObjectKind
    names: tuple[Name, ...]  # a replica's schema is its cluster
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class Retain(Changing):
    """From now on it stays readable so far back; None: as far as everything does."""

    kind: ObjectKind
    name: Name
    retain_ms: int | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Rename(Changing):
    kind: ObjectKind
    name: Name
    to: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Comment(Changing):
    """COMMENT ON an object or, if `column` is given, on that column of the relation `name`."""

    kind: ObjectKind
    name: Name
    column: str | None
    text: str | None  # None: the comment goes


@dataclass(frozen=True, slots=True)
class ShowCreate:
    kind: ObjectKind
    name: Name
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class SetVariable:
    """SET [SESSION | LOCAL] name = values; no values: TO DEFAULT."""

    name: str
    values: tuple[str, ...] | None
    local: bool


@dataclass(frozen=True, slots=True)
class ShowVariable:
    name: str  # `all` for all of them
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class ResetVariable:
    name: str | None  # None: all


@dataclass(frozen=True, slots=True)
class Begin:
    read_only: bool | None
    isolation: str | None
    started: bool = False  # by START TRANSACTION, whose tag is another


@dataclass(frozen=True, slots=True)
class SetTransaction:
    read_only: bool | None
    isolation: str | None
    session: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT, RELEASE and ROLLBACK TO a savepoint."""

    kind: OneOf["savepoint", "release", "rollback to"]
    name: str


@dataclass(frozen=True, slots=True)
class Prepare:
    name: str
    parameters: tuple[SqlType, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Execute(Changing):
    name: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    name: str | None  # None: all


@dataclass(frozen=True, slots=True)
class Declare:
    name: str
    query: "Select | Subscribe"
    hold: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    name: str
    count: int | None  # None: ALL
    timeout_ms: int | None  # of FETCH ... WITH (TIMEOUT), for cursors over SUBSCRIBE
    move: bool = False


@dataclass(frozen=True, slots=True)
class CloseCursor:
    name: str | None  # None: all


@dataclass(frozen=True, slots=True)
class Unlisten:
    """UNLISTEN: nothing is listened to, so nothing is to be done. Pools say it to every session."""


@dataclass(frozen=True, slots=True)
class Discard:
    what: OneOf["all", "plans", "sequences", "temp"]


@dataclass(frozen=True, slots=True)
class Maintain:
    """VACUUM and CHECKPOINT compact what has been written; for ANALYZE there is nothing to do."""

    verb: OneOf["vacuum", "analyze", "checkpoint"]
    skipped: tuple[str, ...]  # names of relations that are no tables


Plan: TypeAlias = (
    Select
    | Subscribe
    | Explain
    | ExplainFreshness
    | Insert
    | Update
    | Delete
    | Merge
    | CopyFrom
    | CopyTo
    | CreateDatabase
    | CreateSchema
    | CreateTable
    | CreateTableAs
    | CreateSequence
    | AlterSequence
    | AlterTable
    | Truncate
    | LockTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateSubscription
    | Advance
    | CreateCluster
    | CreateClusterReplica
    | Drop
    | Rename
    | Retain
    | Comment
    | ShowCreate
    | SetVariable
    | ShowVariable
    | ResetVariable
    | Begin
    | SetTransaction
    | Commit
    | Rollback
    | Savepoint
    | Prepare
    | Execute
    | Deallocate
    | Declare
    | Fetch
    | CloseCursor
    | Unlisten
    | Discard
    | Maintain
)


def result_desc(plan: Plan) -> RelationDesc | None:
    """Return the columns of the rows that running `plan` gives, None where it gives none.

    FETCH and EXECUTE depend on what they name; the session knows.
    """
    match plan:
        case Select(desc=desc):
            return desc
        case Subscribe(desc=desc) | ShowVariable(desc=desc) | ShowCreate(desc=desc):
            return desc
        case (
            Insert(returning=returning)
            | Update(returning=returning)
            | Delete(returning=returning)
            | Merge(returning=returning)
        ):
            return returning.desc if returning is not None else None
        case Explain():
            return EXPLAIN_DESC
        case ExplainFreshness():
            return FRESHNESS_DESC
        case _:
            return None
