"""Plans of statements that change rows."""

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.expr.ir import OrderKey, Relation, Scalar
from foreshore.expr.plan_nodes import PlanNode
from foreshore.ids import GlobalId
from foreshore.sql.plan.query import AsOf, InitPlan, Query, Select, Subscribe, WritePlan


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A condition of row-level security that must be TRUE for each row that is written.

    It is `condition`, over the row, or it has subqueries: then `violations` returns the rows over
    LocalGet(0) for which it is not TRUE. `about` says which row of which expression it is, and
    `policy` names a restrictive policy.
    """

    about: OneOf["new row", "new row by USING", "target row"]
    policy: str | None
    condition: Scalar | None
    violations: Query | None = None


@dataclass(frozen=True, slots=True)
class OnConflict:
    """ON CONFLICT: what to do with rows that conflict under one of the constraints `arbiters`.

    `update` None is DO NOTHING. Otherwise it is over LocalGet(0): existing rows, the proposed rows
    beside them, and a number, 2n + 1 columns for a table of n. It returns the number and the new
    row for each existing row that it replaces.
    """

    arbiters: tuple[str, ...]
    update: Relation | None
    existing_checks: tuple[RowCheck, ...] = ()
    checks: tuple[RowCheck, ...] = ()  # of the new rows


@dataclass(frozen=True, slots=True)
class Insert(WritePlan):
    """INSERT the rows of `source`: the table's columns in order, defaults filled in.

    Rows are inserted in the order of `order_by`, whose columns follow the table's in `source`.
    `returning` is over the table's columns. `constant`: the source reads no collection.
    """

    table: GlobalId
    source: Relation
    returning: Query | None  # its relation is over LocalGet(0), the inserted rows
    constant: bool
    on_conflict: OnConflict | None = None
    row_outputs: tuple[Scalar, ...] = ()  # see Query; over `source`
    # The time at which `source` is read; of a constant one, from which its rows are there.
    as_of: AsOf | None = None
    order_by: tuple[OrderKey, ...] = ()  # over `source`; empty if the order is irrelevant
    init_plans: tuple[InitPlan, ...] = ()
    checks: tuple[RowCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """A bound on the rows that change: their `columns` equal, in order, a row of `source`.

    If these columns are a key, `under` is the statement's selection computed over those rows alone;
    it does not read the source. `single`: the source has at most one row.
    """

    columns: tuple[int, ...]
    source: Relation
    under: Relation | None = None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Update(WritePlan):
    """UPDATE; `selection` returns old rows and new rows side by side, 2n columns for a table of n.

    The old rows are those that qualify, with their multiplicities. If there is a `returning`, the
    columns of FROM follow.
    """

    table: GlobalId
    selection: Relation
    returning: Query | None  # over LocalGet(0), the new rows and the columns of FROM
    row_outputs: tuple[Scalar, ...] = ()  # see Query; over `selection`
    keys: ChangedKeys | None = None  # a bound on the rows, known before any is read
    init_plans: tuple[InitPlan, ...] = ()
    checks: tuple[RowCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete(WritePlan):
    table: GlobalId
    selection: Relation  # the rows to delete and, if there is a `returning`, the columns of USING
    returning: Query | None  # over LocalGet(0), the same columns
    keys: ChangedKeys | None = None  # as in Update
    init_plans: tuple[InitPlan, ...] = ()


MergeAction = OneOf["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class MergeChecks:
    """The conditions on the rows of a MERGE, by what is done with them."""

    inserted: tuple[RowCheck, ...] = ()
    updated: tuple[RowCheck, ...] = ()
    to_update: tuple[RowCheck, ...] = ()  # of the old rows
    to_delete: tuple[RowCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge(WritePlan):
    """MERGE; `selection` returns the rows to change: 2n + 2 columns for a table of n.

    The first column is an index into `actions`, the second the multiplicity of the old row (NULL
    for an insert); then follow the old row and the new row, of which some actions need only one. If
    there is a `returning`, the columns of the source follow.
    """

    table: GlobalId
    selection: Relation
    actions: tuple[MergeAction, ...]
    row_outputs: tuple[Scalar, ...] = ()  # see Query; over `selection`
    keys: ChangedKeys | None = None  # as in Update
    # Over LocalGet(0): the columns of the source, the new row (or the deleted row), and the action.
    returning: Query | None = None
    init_plans: tuple[InitPlan, ...] = ()
    checks: MergeChecks | None = None


Change: TypeAlias = Insert | Update | Delete | Merge


@dataclass(frozen=True, slots=True)
class WithChanges(WritePlan):
    """A statement after a WITH some `parts` of which change rows, each with what it returns."""

    parts: tuple[InitPlan, ...]
    main: Select | Change


@dataclass(frozen=True, slots=True)
class ExplainChange:
    """EXPLAIN of a statement that changes rows; `nodes` are its optimized relation."""

    stage: OneOf["optimized", "physical"]
    change: Insert | Update | Delete | Merge
    nodes: tuple[PlanNode, ...]
    json: bool = False


@dataclass(frozen=True, slots=True)
class CopyOptions:
    format: OneOf["text", "csv", "binary", "arrow"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] | OneOf["*"] = ()
    match_header: bool = False  # the header has to name the columns
    force_null: tuple[str, ...] = ()  # columns in which quoted texts may be NULL, too
    force_not_null: tuple[str, ...] = ()  # columns in which the NULL text is itself
    encoding: str = ""  # by PostgreSQL's name; empty: the client's
    exact_numeric: bool = False  # arrow: numbers that no decimal of Arrow has are texts


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """COPY table (columns) FROM STDIN; `columns` are positions, the others take `defaults`."""

    table: GlobalId
    columns: tuple[int, ...]
    defaults: tuple[Scalar, ...]  # one for each column of the table
    options: CopyOptions
    where: Scalar | None = None  # over the table's columns: which rows are taken


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The files of a COPY, below `url`; `options` are those of CSV.

    The format `found` is that of the files which are there.
    """

    url: str
    format: OneOf["csv", "parquet", "json", "delta", "iceberg", "found"]
    options: CopyOptions
    max_file_bytes: int = 256 << 20
    version: int | None = None  # of a table to be read; None: the last one
    aws: str | None = None  # the connection by whose keys a bucket is reached


@dataclass(frozen=True, slots=True)
class CopyFromFiles(WritePlan):
    """COPY table (columns) FROM files; the other columns take `defaults`."""

    table: GlobalId
    columns: tuple[int, ...]
    defaults: tuple[Scalar, ...]
    files: FileOptions
    where: Scalar | None = None


@dataclass(frozen=True, slots=True)
class CopyToFiles:
    """COPY query TO files. With `relation` they are those of a whole table or view."""

    source: "Select"
    files: FileOptions
    relation: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class CopyChange(WritePlan):
    """COPY (statement) TO STDOUT, of the rows that a change of rows returns."""

    sql: str
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CopyTo:
    source: "Select | Subscribe"
    options: CopyOptions
