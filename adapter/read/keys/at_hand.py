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

from foreshore.adapter.client import RowsAtHand
from foreshore.adapter.read.access_path import Constant, PeekPlan
from foreshore.adapter.read.keys.index_point import IndexPoint
from foreshore.adapter.read.keys.point import PointPlan
from foreshore.compute.finish import finish
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.newest_rows import Entry
from foreshore.compute.local.linear import literal_rows
from foreshore.errors import DataError
from foreshore.expr.datum import from_array
from foreshore.ids import GlobalId
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


class Always(Struct, frozen=True):
    """The proof of rows that depend on nothing but the arguments."""

    def holds(self, coordinator: "Coordinator", time: Timestamp) -> bool:
        """Whether the rows are the same at a time: yes."""
        return True


class RowProof(Struct, frozen=True):
    """The proof of what was selected from the row under a key: the entry is the newest one.

    An entry belongs to one index, which goes when the table is dropped.
    """

    point: PointPlan
    hash: int
    entry: Entry

    def holds(self, coordinator: "Coordinator", time: Timestamp) -> bool:
        """Whether the rows are the same at a time."""
        index = _index(coordinator, self.point, time)
        if index is None or self.entry.time > time:
            return False
        return index.newest.is_newest(self.hash, self.entry)


class IndexProof(Struct, frozen=True):
    """The proof of what was selected from the rows under a key: an index's mirror has them still.

    A tuple of rows belongs to one mirror; the empty one holds wherever it is remembered.
    """

    index: GlobalId
    key: Row
    found: tuple[Row, ...]

    def holds(self, coordinator: "Coordinator", time: Timestamp) -> bool:
        """Whether the rows are the same at a time."""
        compute = coordinator.compute
        mirror = compute.mirrors.knowing(self.index, time)
        if mirror is None or not mirror.still(self.key, self.found, time):
            return False
        if not compute.maintained.is_clear(self.index, time):
            return False
        compute.mirrors.note_use(mirror)
        return True


ALWAYS = Always()
AtHandProof: TypeAlias = Always | RowProof | IndexProof


class ConstantRows(Struct, frozen=True):
    """Rows that the statement has."""

    known: tuple[Row, ...]

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> RowsAtHand | None:
        """Return the rows."""
        return RowsAtHand(self.known, ALWAYS)


class TableRow(Struct, frozen=True):
    """The selected columns of the row under a key of a table, of the newest rows."""

    point: PointPlan

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> RowsAtHand | None:
        """Return the row, if there is one; None if it is read another way."""
        point = self.point
        index = _index(coordinator, point, time)
        if index is None:
            return None
        key = point.selection.key(args)
        if key is None:
            return RowsAtHand((), ALWAYS)
        hash = index.layout.hash(key)
        entry = index.newest.newest(hash, key)
        if entry.time > time:
            return None
        proof = RowProof(point, hash, entry)
        if entry.row is None:
            return RowsAtHand((), proof)
        if not point.selection.may_be_selected(args, entry.row):
            return None
        try:
            selected = point.selection.selected(args, entry.row)
        except DataError:
            return None
        return RowsAtHand(() if selected is None else (selected,), proof)


class IndexRows(Struct, frozen=True):
    """The selected columns of the rows under a key of an index."""

    point: IndexPoint

    def rows(
        self, coordinator: "Coordinator", time: Timestamp, args: Sequence[Datum]
    ) -> RowsAtHand | None:
        """Return the rows; None if they are read another way."""
        point, compute = self.point, coordinator.compute
        mirror = compute.mirrors.knowing(point.index, time)
        if mirror is None or not compute.maintained.is_clear(point.index, time):
            return None
        key = point.selection.key(args)
        if key is None:
            return RowsAtHand((), ALWAYS)
        found = mirror.rows_under(key, time)
        if found is None:
            return None
        compute.mirrors.note_use(mirror)
        selected = point.selected(args, found)
        if selected is None:
            return None
        return RowsAtHand(selected, IndexProof(point.index, key, found))


def _index(coordinator: "Coordinator", point: PointPlan, time: Timestamp) -> KeyIndex | None:
    """Return the index of a table's key, if the table is as it was planned and known at `time`."""
    indexes = coordinator.keys.at_hand(point.table)
    if indexes is None or indexes.keys() != point.names:
        return None
    if coordinator.catalog.planned.get(point.table) is not point.planned:
        return None
    index = indexes[point.constraint.name]
    return index if index.readable(time) else None


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
