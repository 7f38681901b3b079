"""Group rows: convert scalars over the rows of FROM to scalars over groups.

An aggregate call is bound to a scalar over `CoreRef`s, the results of core aggregates, which are
collected separately. When the whole query is bound, `Grouping.over_groups` converts each of its
scalars to one over the rows of the `Reduce`: an expression of GROUP BY becomes its column, and a
`CoreRef` the column of its aggregate. Any other column of FROM raises PostgreSQL's error 42803.
"""

from dataclasses import dataclass, field

from foreshore.errors import GroupingError
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Node,
    OuterColumn,
    Reduce,
    Relation,
    Scalar,
    type_of,
)
from foreshore.sql.bind.scope import Scope
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import ColumnType, SqlType


class CoreRef(Node, frozen=True, cache_hash=True):
    """The result of the `index`-th core aggregate, used only during binding.

    It may occur in a subquery; `owner` is the number of its `Aggregates`.
    """

    owner: int
    index: int
    type: SqlType
    nullable: bool = True


@dataclass
class Aggregates:
    """The core aggregates of one query, which is identified by `number`."""

    number: int
    cores: list[Aggregate] = field(default_factory=list)

    def add(self, core: Aggregate) -> CoreRef:
        """Return the reference to `core`; equal cores share one."""
        if core in self.cores:
            index = self.cores.index(core)
        else:
            index = len(self.cores)
            self.cores.append(core)
        return CoreRef(self.number, index, core.type, core.function != "count")

    def refers(self, scalar: Scalar) -> bool:
        """Return whether `scalar` refers to one of these aggregates."""
        found = False

        def look(node: Scalar, depth: int) -> Scalar | None:
            nonlocal found
            found = found or (isinstance(node, CoreRef) and node.owner == self.number)
            return None

        map_scalar(scalar, look)
        return found


@dataclass
class Grouping:
    """The groups of a query: `keys` over the rows of FROM, and core aggregates."""

    scope: Scope
    keys: tuple[Scalar, ...]
    aggregates: Aggregates

    def relation(self, input: Relation) -> Relation:
        """Return the groups of `input`."""
        return Reduce(input, self.keys, tuple(self.aggregates.cores))

    def columns(self) -> list[ColumnType]:
        """Return the types of the groups' columns."""
        keys = [ColumnType(type_of(key), getattr(key, "nullable", True)) for key in self.keys]
        return keys + [
            ColumnType(core.type, core.function != "count") for core in self.aggregates.cores
        ]

    def over_groups(self, scalar: Scalar) -> Scalar:
        """Return `scalar` over the rows of `relation`."""

        def column(index: int, depth: int, type: SqlType, nullable: bool) -> Scalar:
            if depth == 0:
                return Column(index, type, nullable)
            return OuterColumn(depth, index, type, nullable)

        def replace(node: Scalar, depth: int) -> Scalar | None:
            if isinstance(node, CoreRef):
                if node.owner != self.aggregates.number:
                    return None
                return column(len(self.keys) + node.index, depth, node.type, node.nullable)
            key = self._key(node, depth)
            if key is not None:
                expr = self.keys[key]
                return column(key, depth, type_of(expr), getattr(expr, "nullable", True))
            index = None
            if (isinstance(node, Column) and depth == 0) or (
                isinstance(node, OuterColumn) and node.level == depth
            ):
                index = node.index
            if index is not None:
                raise self._ungrouped(index, depth)
            return None

        return map_scalar(scalar, replace)

    def _key(self, node: Scalar, depth: int) -> int | None:
        if depth == 0:
            return self.keys.index(node) if node in self.keys else None
        if isinstance(node, OuterColumn) and node.level == depth:
            for i, key in enumerate(self.keys):
                if isinstance(key, Column) and key.index == node.index:
                    return i
        return None

    def _ungrouped(self, index: int, depth: int) -> GroupingError:
        shown, at = self.scope.named.get(index, (f"column {index + 1}", None))
        position = None if at is None else at + 1
        if depth:
            return GroupingError(
                f'subquery uses ungrouped column "{shown}" from outer query', position=position
            )
        return GroupingError(
            f'column "{shown}" must appear in the GROUP BY clause '
            "or be used in an aggregate function",
            position=position,
        )
