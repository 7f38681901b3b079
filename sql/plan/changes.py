"""Plans of what changes rows."""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.expr.ir import OrderKey, Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sql.plan.query import AsOf, InitPlan, Query, Select, Subscribe, WritePlan


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
class Insert(WritePlan):
    """Rows of `source` (columns in the table's order, defaults filled in) go into the table.

    They go in the order of `order_by`, for which `source` may have more columns behind the table's.
    `returning` is over the table's columns. `constant`: it reads no collection.
    """

    table: GlobalId
    source: Relation
    returning: Query | None  # its relation is over LocalGet(0), the inserted rows
    constant: bool
    on_conflict: OnConflict | None = None
    row_outputs: tuple[Scalar, ...] = ()  # what the rows are over `source`, as in Query
    as_of: AsOf | None = None  # when `source` is read
    order_by: tuple[OrderKey, ...] = ()  # over `source`; none where it makes no difference
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
class Update(WritePlan):
    """`selection` gives old rows then new ones side by side: 2n columns for a table of n.

    The old rows are those that qualify, with their multiplicities. If there is a `returning`, the
    columns of FROM follow.
    """

    table: GlobalId
    selection: Relation
    returning: Query | None  # over LocalGet(0), the new rows and the columns of FROM
    row_outputs: tuple[Scalar, ...] = ()  # what those columns are over `selection`, as in Query
    keys: ChangedKeys | None = None  # what is known of the rows before any is read
    init_plans: tuple[InitPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete(WritePlan):
    table: GlobalId
    selection: Relation  # the rows to delete and, if there is a `returning`, the columns of USING
    returning: Query | None  # over LocalGet(0), the same columns
    keys: ChangedKeys | None = None  # as in Update
    init_plans: tuple[InitPlan, ...] = ()


MergeAction = OneOf["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class Merge(WritePlan):
    """`selection` gives the rows on which MERGE acts: 2n + 2 columns for a table of n.

    The first is a place in `actions`, the second how often the old row is in the table (NULL for an
    insert); then the old row and the new one, of which some actions need only one. If there is a
    `returning`, the columns of the source follow.
    """

    table: GlobalId
    selection: Relation
    actions: tuple[MergeAction, ...]
    row_outputs: tuple[Scalar, ...] = ()  # what those columns are over `selection`, as in Query
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
