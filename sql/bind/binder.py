"""What the parts of binding know of each other: clauses, and binders of expressions and queries.

Expressions contain queries, and queries expressions. A file that binds one kind of expression gets
a `Binder`, which binds the expressions within; subqueries are bound by the `Binding` of the
planning. Neither file names the other (`binding.py` joins them).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from foreshore.errors import GroupingError
from foreshore.expr.ir import Column, Scalar
from foreshore.sql import ast
from foreshore.types import SqlType

if TYPE_CHECKING:
    from foreshore.expr.functions.registry import ResolvedTable
    from foreshore.sql.bind.aggregates import Aggregates
    from foreshore.sql.bind.bound_item import BoundItem
    from foreshore.sql.bind.bound_query import BoundQuery, Wanted
    from foreshore.sql.bind.planning import Planning
    from foreshore.sql.bind.row_values import RowValue
    from foreshore.sql.bind.scope import Scope
    from foreshore.sql.bind.sets import SetCalls
    from foreshore.sql.bind.windows import Windows


@dataclass
class Clause:
    """The clause that contains an expression, and what is allowed there."""

    name: str  # as named in errors: "aggregate functions are not allowed in WHERE"
    aggregates: "Aggregates | None" = None  # None: not allowed
    nested: bool = False  # within the arguments of an aggregate
    sets: "SetCalls | None" = None
    windows: "Windows | None" = None  # None: window functions are not allowed
    nested_window: bool = False  # within the arguments of a window function
    default: bool = False  # whether DEFAULT is allowed
    merge_action: Column | None = None  # the column that merge_action() returns

    def refuse_aggregate(self, at: int) -> GroupingError:
        """Return the error for an aggregate where none is allowed."""
        if self.nested:
            return GroupingError("aggregate function calls cannot be nested", position=at + 1)
        return GroupingError(f"aggregate functions are not allowed in {self.name}", position=at + 1)


class Binder(Protocol):
    """Binds the expressions of one clause over `scope`."""

    planning: "Planning"
    scope: "Scope"
    clause: Clause

    def over(self, clause: Clause) -> "Binder":
        """Return a binder of another clause over the same scope."""
        ...

    def bind(self, expr: ast.Expression) -> Scalar:
        """Return the scalar of `expr`."""
        ...

    def boolean(self, expr: ast.Expression, what: str) -> Scalar:
        """Return `expr` as a boolean; `what` names the operator or clause in errors."""
        ...

    def bind_value(self, expr: ast.Expression) -> "Scalar | RowValue":
        """Return the value of `expr`, which may be a row."""
        ...

    def call(
        self, name: str, args: Sequence[Scalar], at: int, offsets: Sequence[int] = ()
    ) -> Scalar:
        """Return the operator or function `name` over `args`, resolved and coerced."""
        ...

    def coerced(
        self, args: Sequence[Scalar], targets: Sequence[SqlType], offsets: Sequence[int]
    ) -> tuple[Scalar, ...]:
        """Return `args` coerced to the types of a resolved function."""
        ...

    def operate(
        self,
        operator: str,
        left: "Scalar | RowValue",
        right: "Scalar | RowValue",
        at: int,
        left_at: int,
        right_at: int,
    ) -> Scalar:
        """Return `left operator right` of scalars or rows."""
        ...

    def cast(self, scalar: Scalar, target: SqlType, at: int) -> Scalar:
        """Return a value cast to `target`; raises an error if there is no such cast."""
        ...

    def cast_value(self, expr: ast.CastTo, scalar: Scalar) -> Scalar:
        """Return a value in the place of what is cast, cast to the type or domain."""
        ...

    def add_set(self, found: "ResolvedTable", args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the reference to a set-returning call in a select list."""
        ...


class Binding(Protocol):
    """Binds what is within something else: expressions, queries and items of FROM."""

    def expressions(self, planning: "Planning", scope: "Scope", clause: Clause) -> Binder:
        """Return the binder of a clause over `scope`."""
        ...

    def query(
        self,
        planning: "Planning",
        query: ast.Query,
        parent: "Scope | None",
        wanted: "Wanted" = None,
        *,
        locking: bool = False,
    ) -> "BoundQuery":
        """Return `query` bound within `parent`; with `locking` it may have FOR UPDATE."""
        ...

    def item(self, planning: "Planning", item: ast.FromItem, parent: "Scope | None") -> "BoundItem":
        """Return an item of FROM bound within `parent`."""
        ...
