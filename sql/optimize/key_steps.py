"""Steps that find rows of tables by keys, one table after the other (`restrict.py` plans them)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foreshore.constraint import Unique
from foreshore.expr.ir import Environment, Relation, Scalar
from foreshore.expr.keys import Constant, Elements, Key, KeyRange
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.ids import GlobalId

FEW = 500  # rows of tables that are read as a whole, row by row
SMALL = 10_000  # rows of a table up to which it is read to find rows of others

_CHANGING_VALUES = (
    "mz_now",
    "clock_timestamp",
    "sequence:",
    "pg_advisory_unlock_all",
    "pg_listening_channels",
    "pg_notification_queue_usage",
)


@dataclass(frozen=True, slots=True)
class TableKey:
    """Columns of a table by which rows are found; with `prefix`, or by the first of them.

    They are the key of an `index` of a cluster, or of an index that this process has.
    """

    name: str
    columns: tuple[int, ...]
    prefix: bool = False
    constraint: Unique | None = None
    index: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The keys of a table, unique ones first.

    `rows` is about how many rows it has; None if they cannot be read all in this process. They are
    `given` if only the statement knows them.
    """

    keys: tuple[TableKey, ...] = ()
    rows: int | None = None
    given: bool = False

    @classmethod
    def of(cls, constraints: Sequence[Unique]) -> "TableKeys":
        """Return the keys of unique constraints, looked up as a whole."""
        return cls(tuple(TableKey(e.name, e.columns, False, e) for e in constraints))


KeysOf: TypeAlias = Callable[[GlobalId], TableKeys]


@dataclass(frozen=True, slots=True)
class KeyStep:
    """The rows of `table` in which the columns are equal to one of `keys`, or to a source's row.

    The columns are those of `by`, or the first of them. `sources` read only the tables of earlier
    steps. If many rows are under the first columns, those in a `range` of `by` are enough. They are
    the rows of `alias` if the table is read several times.
    """

    table: GlobalId
    by: TableKey
    columns: tuple[int, ...]
    keys: tuple[Key, ...] = ()
    sources: tuple[Relation, ...] = ()
    range: "RangeStep | None" = None
    alias: GlobalId | None = None

    @property
    def rows(self) -> GlobalId:
        """The collection whose rows it finds."""
        return self.alias or self.table

    @property
    def constraint(self) -> Unique | None:
        """The unique constraint whose key the columns are."""
        return self.by.constraint if self.columns == self.by.columns else None

    @property
    def is_stable(self) -> bool:
        """Whether waiting for locks changes no value in its keys."""
        parts = [part for key in self.keys for part in key]
        scalars = [part.array if isinstance(part, Elements) else part for part in parts]
        nodes = (node for source in self.sources for node in walk_relations(source))
        scalars += (scalar for node in nodes for scalar in scalars_of(node))
        return not any(may_change_while_waiting(e) for s in scalars for e in walk_scalars(s))


@dataclass(frozen=True, slots=True)
class WholeStep:
    """All rows of `table`, which has to be small; those of `alias` likewise.

    They are read in an `index` of a cluster if there is one.
    """

    table: GlobalId
    alias: GlobalId | None = None
    index: GlobalId | None = None

    @property
    def rows(self) -> GlobalId:
        """The collection whose rows it finds."""
        return self.alias or self.table


@dataclass(frozen=True, slots=True)
class Page:
    """The first `limit` rows of `relation` after `offset`, over the rows of a range in its order.

    Rows that are equal in the columns `ties` of the table are taken together.
    """

    relation: Relation
    limit: Constant
    offset: Constant | None
    ties: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RangeStep:
    """The rows of `table` in a range of the columns, the first ones of `by`, in their order.

    They are the rows of `alias` if the table is read several times. Of a `page` those are enough
    that come up to its end.
    """

    table: GlobalId
    by: TableKey
    columns: tuple[int, ...]
    range: KeyRange
    page: Page | None = None
    alias: GlobalId | None = None

    @property
    def rows(self) -> GlobalId:
        """The collection whose rows it finds."""
        return self.alias or self.table


Step: TypeAlias = KeyStep | WholeStep | RangeStep


@dataclass(frozen=True, slots=True)
class Restricted:
    """Steps, and the relation over the rows that they find."""

    steps: tuple[Step, ...]
    relation: Relation

    @property
    def reads_whole(self) -> bool:
        """Whether a table is read as a whole."""
        return any(isinstance(step, WholeStep) for step in self.steps)


def may_change_while_waiting(scalar: Scalar) -> bool:
    """Return whether an environment value may change while a statement waits."""
    return isinstance(scalar, Environment) and scalar.name.startswith(_CHANGING_VALUES)
