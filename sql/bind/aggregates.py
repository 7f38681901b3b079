"""Group rows: convert scalars over the rows of FROM to scalars over groups.

An aggregate call is bound to a scalar over `CoreRef`s, the results of core aggregates, which are
collected separately. When the whole query is bound, `Grouping.over_groups` converts each of its
scalars to one over the rows of the `Reduce`: an expression of GROUP BY becomes its column, and a
`CoreRef` the column of its aggregate. Any other column of FROM raises PostgreSQL's error 42803.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from foreshore.errors import GroupingError
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Case,
    Column,
    Let,
    Literal,
    LocalGet,
    Map,
    Node,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
)
from foreshore.sql.bind.grouping_sets import GroupingRef
from foreshore.sql.bind.scope import Scope
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import BOOL, INT4, INT8, ColumnType, SqlType


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
    has_grouping: bool = False  # whether GROUPING() is used

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
            mine = isinstance(node, CoreRef | GroupingRef) and node.owner == self.number
            found = found or mine
            return None

        map_scalar(scalar, look)
        return found


@dataclass
class Grouping:
    """The groups of a query: `keys` over the rows of FROM, and core aggregates."""

    scope: Scope
    keys: tuple[Scalar, ...]
    aggregates: Aggregates
    sets: tuple[tuple[int, ...], ...]  # positions of keys; several sets of GROUPING SETS

    def relation(self, input: Relation, new_let: Callable[[], int]) -> Relation:
        """Return the groups of `input`: keys, aggregates and, if there are several sets, a number.

        The number is the position of the row's set. The set's missing keys are NULL.
        """
        cores = tuple(self.aggregates.cores)
        if len(self.sets) == 1:
            return Reduce(input, self.keys, cores or _groups_of(self.keys))
        shared = LocalGet(new_let(), columns_of(input))
        return Let(shared.number, input, Union(tuple(self._set(shared, i) for i in self._numbers)))

    @property
    def _numbers(self) -> range:
        return range(len(self.sets))

    def _set(self, input: Relation, number: int) -> Relation:
        present = self.sets[number]
        keys = tuple(self.keys[i] for i in present)
        cores = tuple(self.aggregates.cores)
        groups = Reduce(input, keys, cores or _groups_of(keys))
        width = len(columns_of(groups))
        missing = [i for i in range(len(self.keys)) if i not in present]
        added = [Literal(None, type_of(self.keys[i])) for i in missing]
        added.append(Literal(number, INT4))
        places = {key: place for place, key in enumerate(present)}
        places.update((key, width + place) for place, key in enumerate(missing))
        outputs = [places[i] for i in range(len(self.keys))]
        outputs += range(len(present), len(present) + len(cores))
        outputs.append(width + len(missing))
        return Project(Map(groups, tuple(added)), tuple(outputs))

    def _key_column(self, key: int) -> ColumnType:
        scalar = self.keys[key]
        nullable = getattr(scalar, "nullable", True) or any(key not in each for each in self.sets)
        return ColumnType(type_of(scalar), nullable)

    def _grouping(self, call: GroupingRef, depth: int) -> Scalar:
        """Return GROUPING(...) over the groups: a bit for each argument that the set leaves out."""
        positions = []
        for arg in call.args:
            if arg not in self.keys:
                raise not_grouping_expressions(call.at)
            positions.append(self.keys.index(arg))
        masks = []
        for each in self.sets:
            mask = 0
            for position in positions:
                mask = mask * 2 + (position not in each)
            masks.append(Literal(mask, INT4))
        if len(set(masks)) == 1:
            return masks[0]
        index = len(self.keys) + len(self.aggregates.cores)
        number: Scalar = Column(index, INT4, False)
        if depth:
            number = OuterColumn(depth, index, INT4, False)
        branches = tuple(
            (Call("is_not_distinct", (number, Literal(i, INT4)), BOOL), mask)
            for i, mask in enumerate(masks[:-1])
        )
        return Case(branches, masks[-1], INT4)

    def determined(self) -> frozenset[int]:
        """Return the columns of the tables whose primary keys are among the keys of all sets."""
        common = {
            key.index
            for i, key in enumerate(self.keys)
            if isinstance(key, Column) and all(i in each for each in self.sets)
        }
        tables = (t for t in self.scope.tables if t.key and common.issuperset(t.key))
        return frozenset(slot.index for table in tables for slot in table.slots)

    def columns_beside_keys(self, scalar: Scalar, found: dict[int, None]) -> None:
        """Add the columns to `found` that `scalar` uses outside of keys and aggregates."""

        def look(node: Scalar, depth: int) -> Scalar | None:
            if isinstance(node, CoreRef | GroupingRef) or self._key(node, depth) is not None:
                return node
            if (isinstance(node, Column) and depth == 0) or (
                isinstance(node, OuterColumn) and node.level == depth
            ):
                found[node.index] = None
            return None

        map_scalar(scalar, look)

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
            if isinstance(node, GroupingRef):
                if node.owner != self.aggregates.number:
                    return None
                return self._grouping(node, depth)
            key = self._key(node, depth)
            if key is not None:
                found = self._key_column(key)
                return column(key, depth, found.type, found.nullable)
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


def _groups_of(keys: tuple[Scalar, ...]) -> tuple[Aggregate, ...]:
    """Return the aggregates of a grouping without any: a group without keys exists always."""
    return () if keys else (Aggregate("count", (), INT8),)


def not_grouping_expressions(at: int) -> GroupingError:
    """Return the error for an argument of GROUPING that is not in GROUP BY."""
    return GroupingError(
        "arguments to GROUPING must be grouping expressions of the associated query level",
        position=at + 1,
    )
