"""Reads whose rows are at hand in this process, as functions that wait for nothing.

    TableRows   rows under unique keys of tables, in their key indexes, or of no table
    IndexRows   the rows under one key of an index, in its mirror

Each returns its rows as of a time, or None if it is to be read the ordinary way (`select.py`),
which gives the same answer later, or says what hinders it. They are compiled when a statement is
prepared. What they read is not noted anywhere, so they are for transactions that only read, at the
newest time. At every isolation level a read may have that time if nothing has to be waited for.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from foreshore.adapter.client import RowsAtHand
from foreshore.adapter.read.keys.index_point import IndexPoint
from foreshore.adapter.read.keys.row_read import KeyedTable, RowRead, SessionValue, are_simple
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.newest_rows import Entry
from foreshore.ids import GlobalId
from foreshore.sql.plan import Plan, Select
from foreshore.table_rows import Row
from foreshore.types import Datum
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

MOST_PROVEN = 16  # rows; of more it takes long to find out whether they are the same


class Always(Struct, frozen=True):
    """The proof of rows that depend on nothing but the arguments."""

    def holds(self, coordinator: "Coordinator", time: Timestamp) -> bool:
        """Whether the rows are the same at a time: yes."""
        return True


class RowsProof(Struct, frozen=True):
    """The proof of what was read under keys of tables: the entries are the newest ones.

    An entry belongs to one index, which goes when the table is dropped.
    """

    found: tuple[tuple[KeyedTable, int, Entry], ...]  # with the hashes of their keys

    def holds(self, coordinator: "Coordinator", time: Timestamp) -> bool:
        """Whether the rows are the same at a time."""
        for table, hash, entry in self.found:
            index = _index(coordinator, table, time)
            if index is None or entry.time > time or not index.newest.is_newest(hash, entry):
                return False
        return True


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
AtHandProof: TypeAlias = Always | RowsProof | IndexProof


class TableRows(Struct, frozen=True):
    """The rows of a `RowRead`, of the newest rows of its tables."""

    read: RowRead

    def rows(
        self,
        coordinator: "Coordinator",
        time: Timestamp,
        args: Sequence[Datum],
        value: SessionValue,
    ) -> RowsAtHand | None:
        """Return the rows; None if they are read another way."""
        found: list[tuple[KeyedTable, int, Entry]] = []

        def find(table: KeyedTable, keys: Sequence[Row]) -> Sequence[Row] | None:
            index = _index(coordinator, table, time)
            if index is None:
                return None
            rows = []
            for key in keys:
                hash = index.layout.hash(key)
                entry = index.newest.newest(hash, key)
                if entry.time > time:
                    return None
                found.append((table, hash, entry))
                if entry.row is not None:
                    rows.append(entry.row)
            return rows

        rows = self.read.rows(args, value, find)
        if rows is None:
            return None
        if not self.read.is_settled or len(found) > MOST_PROVEN:
            return RowsAtHand(rows, None)
        return RowsAtHand(rows, RowsProof(tuple(found)) if found else ALWAYS)


class IndexRows(Struct, frozen=True):
    """The selected columns of the rows under a key of an index."""

    point: IndexPoint

    def rows(
        self,
        coordinator: "Coordinator",
        time: Timestamp,
        args: Sequence[Datum],
        value: SessionValue,
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


def _index(coordinator: "Coordinator", table: KeyedTable, time: Timestamp) -> KeyIndex | None:
    """Return the index of a table's key, if the table is as it was planned and known at `time`."""
    indexes = coordinator.keys.at_hand(table.table)
    if indexes is None or indexes.keys() != table.names:
        return None
    if coordinator.catalog.planned.get(table.table) is not table.planned:
        return None
    index = indexes[table.constraint.name]
    return index if index.readable(time) else None


AtHand: TypeAlias = TableRows | IndexRows


def plan_at_hand(plan: Plan, read: RowRead | None, index_point: IndexPoint | None) -> AtHand | None:
    """Return how the rows of a SELECT are had at once; None if they never are."""
    if not isinstance(plan, Select) or plan.as_of is not None or plan.locking is not None:
        return None
    if read is not None:
        return TableRows(read) if read.is_exact else None
    if index_point is None or index_point.selection.givens.names:
        return None
    is_exact = index_point.is_exact or are_simple(plan.desc.columns)
    return IndexRows(index_point) if is_exact else None
