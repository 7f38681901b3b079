"""Prepared statements and portals: what a session keeps between the messages about one query.

A `Prepared` keeps its text's syntax tree and the plan, made once. The plan stays good while what it
was made from does: what the session sees of the catalog, the variables that names and constants
depend on, and which relations have an index. When one of these changes it is made anew at the next
use; a result whose columns then differ is refused, as clients rely on what they were told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from foreshore.adapter.read.access_path import PeekPlan
from foreshore.adapter.read.point import PointPlan
from foreshore.adapter.read.result import Selected
from foreshore.adapter.write.check import RowRules
from foreshore.adapter.write.template import Template
from foreshore.catalog.state import Part
from foreshore.ids import GlobalId
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.plan import Plan, WritePlan
from foreshore.types import Datum, RelationDesc, SqlType


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan was made from; compared by identity where that is cheap and enough."""

    seen: tuple[Part, Part | None]  # of the catalog: other sessions' temporary objects are not
    variables: int  # the session's version of them
    arranged: frozenset[GlobalId]
    # What the transaction has written to, if it has changed anything: it sees that otherwise.
    own: frozenset[GlobalId] | None = None

    def is_still(self, other: "Basis", *, tables_only: bool = False) -> bool:
        """Whether a plan from this basis is good on `other`.

        One that makes use of tables alone does not depend on what is maintained.
        """
        return (
            self.seen == other.seen
            and self.variables == other.variables
            and (tables_only or (self.arranged is other.arranged and self.own == other.own))
        )


@dataclass(eq=False, slots=True)
class Prepared:
    """A prepared statement; without `syntax` it is empty."""

    name: str
    syntax: Syntax | None
    declared: tuple[SqlType | None, ...] = ()
    parameters: tuple[SqlType, ...] = ()
    takes_names: bool = False  # of objects, as arguments of a reg* type
    desc: RelationDesc | None = None
    plan: Plan | None = None
    basis: Basis | None = None
    used: frozenset[GlobalId] = frozenset()  # the items that its names were resolved to
    peek: PeekPlan | None = None  # of a plan that reads, compiled
    template: Template | None = None  # of an INSERT of values, compiled
    rules: RowRules | None = None  # of the table that it writes tuples to, compiled
    batch: int | None = None  # of messages that it came in; from the next on its columns are known
    point: PointPlan | None = None  # of a statement about the row under one key, compiled
    depends_on_zone: bool = False  # whether the plan depends on the session's time zone
    # The locking subqueries within it, each as a SELECT of its own, by which collection it becomes.
    init_plans: "tuple[tuple[GlobalId, Prepared], ...]" = ()
    within: GlobalId | None = None  # of such a SELECT: which one of its text it is

    @property
    def is_empty(self) -> bool:
        """Whether the text held no statement."""
        return self.syntax is None

    @property
    def tables_only(self) -> bool:
        """Whether its plan makes use of tables alone, and of nothing maintained over them."""
        if self.template is not None:
            return True
        return self.point is not None and self.peek is not None and self.peek.index is None


NO_STATEMENT = Prepared("", None)


@dataclass(eq=False, slots=True)
class BoundPortal:
    """A statement with its arguments, and what is left of its result; or a cursor."""

    name: str
    statement: Prepared
    args: Sequence[Datum] = ()
    formats: Sequence[int] = ()
    result: Selected | None = None
    done: bool = False
    hold: bool = False  # it is to outlive its transaction
    held: bool = False  # it has
    cursor: bool = False
    desc: RelationDesc | None = field(default=None)

    @property
    def changes(self) -> bool:
        """Whether running it may leave something to commit."""
        return isinstance(self.statement.plan, WritePlan)

    def close(self) -> None:
        """Give up what is left of the result."""
        if self.result is not None:
            self.result.source.close()
            self.result = None
        self.done = True
