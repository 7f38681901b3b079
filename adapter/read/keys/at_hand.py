"""Reads whose rows are at hand in this process, as functions that wait for nothing.

    ConstantRows   rows that the statement has
    TableRow       the row of a table under one unique key, in the table's key index
    IndexRows      the rows under one key of an index, in its mirror

Each returns its rows as of a time, or None if it is to be read the ordinary way (`select.py`),
which gives the same answer later, or says what hinders it. They are compiled when a statement is
prepared. What they read is not noted anywhere, so they are for transactions that only read, at the
newest time. At every isolation level a read may have that time if nothing has to be waited for.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from foreshore.adapter.read.access_path import Constant, PeekPlan
from foreshore.adapter.read.keys.index_point import IndexPoint
from foreshore.adapter.read.keys.point import PointPlan
from foreshore.compute.finish import finish
from foreshore.compute.local.linear import literal_rows
from foreshore.errors import DataError
from foreshore.expr.datum import from_array
from foreshore.sql.plan import Plan, Select
from foreshore.table_rows import Row
from foreshore.types import ColumnType, Datum
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

# Types of which a value has one form. A numeric, for example, may have digits to be added.
SIMPLE = frozenset(
    "bool int2 int4 int8 oid date time timestamp timestamptz float8 text varchar name uuid".split()
)
MOST_CONSTANT_ROWS = 64


def are_simple(columns: Sequence[ColumnType]) -> bool:
    """Whether rows of these columns can be sent as they are computed."""
    return all(column.type.name in SIMPLE for column in columns)


class ConstantRows(Struct, frozen=True):
    """Rows that the statement has."""

    known: tuple[Row, ...]

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> Sequence[Row] | None:
        """Return the rows."""
        return self.known


class TableRow(Struct, frozen=True):
    """The selected columns of the row under a key of a table, of the newest rows."""

    point: PointPlan

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> Sequence[Row] | None:
        """Return the row, if there is one; None if it is read another way."""
        point = self.point
        indexes = coordinator.keys.at_hand(point.table)
        if indexes is None or indexes.keys() != point.names:
            return None
        if coordinator.catalog.planned.get(point.table) is not point.planned:
            return None
        index = indexes[point.constraint.name]
        key = point.selection.key(args)
        if key is None:
            return ()
        entry = index.newest.newest(index.layout.hash(key), key)
        if entry.time > time or not index.readable(time):
            return None
        if entry.row is None:
            return ()
        if not point.selection.may_be_selected(args, entry.row):
            return None
        try:
            selected = point.selection.selected(args, entry.row)
        except DataError:
            return None
        return () if selected is None else (selected,)


class IndexRows(Struct, frozen=True):
    """The selected columns of the rows under a key of an index."""

    point: IndexPoint

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> Sequence[Row] | None:
        """Return the rows; None if they are read another way."""
        point, compute = self.point, coordinator.compute
        mirror = compute.mirrors.knowing(point.index, time)
        if mirror is None or not compute.maintained.is_clear(point.index, time):
            return None
        key = point.selection.key(args)
        if key is None:
            return ()
        found = mirror.rows_under(key, time)
        if found is None:
            return None
        compute.mirrors.note_use(mirror)
        return point.selected(args, found)


AtHand: TypeAlias = ConstantRows | TableRow | IndexRows


def plan_at_hand(
    plan: Plan, peek: PeekPlan | None, point: PointPlan | None, index_point: IndexPoint | None
) -> AtHand | None:
    """Return how the rows of a SELECT are had at once; None if they never are."""
    if not isinstance(plan, Select) or plan.as_of is not None or plan.locking is not None:
        return None
    if point is not None:
        fits = are_simple(plan.desc.columns) and not point.selection.givens.names
        return TableRow(point) if fits else None
    if index_point is not None:
        fits = index_point.is_exact or are_simple(plan.desc.columns)
        return IndexRows(index_point) if fits and not index_point.selection.givens.names else None
    return None if peek is None else _constant(peek)


def _constant(peek: PeekPlan) -> ConstantRows | None:
    query = peek.query
    if not isinstance(peek.path, Constant) or peek.is_open or peek.has_side_effects:
        return None
    if query.row_outputs or query.changes or query.init_plans or query.recursions:
        return None
    literals = literal_rows(peek.path.relation)
    if literals is None or literals.num_rows > MOST_CONSTANT_ROWS:
        return None
    batch = finish(literals, query.finishing)
    columns = [
        from_array(column, each.type)
        for column, each in zip(batch.columns, query.desc.columns, strict=True)
    ]
    return ConstantRows(tuple(zip(*columns, strict=True))) if columns else None
