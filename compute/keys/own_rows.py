"""Rows that a transaction has written to a table, by one of its keys, for its later statements."""

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.keys.layout import SOME, KeyedRows, KeyLayout
from foreshore.compute.keys.secondary import SecondaryKey
from foreshore.table_rows import Row, TableRows


class OwnRows:
    """What a transaction has written so far.

    `newest` is the row under each key that it has written, or None if it has deleted that; the
    whole is None if many rows were written at once. `arrangement` has all of it, at time 0.
    """

    def __init__(self, layout: KeyLayout) -> None:
        self.newest: dict[Row, Row | None] | None = {}
        self._layout = layout
        self._arrangement = layout.arrangement(0)
        self._parts: list[KeyedRows] = []
        self._arranged = 0  # how many of the parts are in the arrangement
        self._secondary: dict[tuple[int, ...], SecondaryKey] = {}

    def add(self, part: KeyedRows, rows: TableRows) -> None:
        """Add `rows` that have been written next, which are also given by the key."""
        self._parts.append(part)
        changes = part.changes
        if (
            changes is None
            and rows.has_tuples
            and rows.num_rows <= SOME
            and self._layout.takes_tuples
        ):
            changes = self._layout.changes(rows)
        if changes is None:
            self.newest = None
        elif self.newest is not None:
            for change in changes:
                self.newest[change.key] = change.row if change.diff > 0 else None

    @property
    def arrangement(self) -> Arrangement:
        """All rows, with those that were deleted, by their keys."""
        left = self._parts[self._arranged :]
        if left:
            self._arrangement.insert_prepared([part.updates for part in left], 0, 1)
            self._arrangement.maintain()
            self._arranged = len(self._parts)
        return self._arrangement

    def secondary(self, layout: KeyLayout) -> SecondaryKey:
        """Return all rows by the columns of `layout`, which are no key."""
        arrangement, columns = self.arrangement, layout.constraint.columns
        if columns not in self._secondary:
            self._secondary[columns] = SecondaryKey(layout, arrangement)
        return self._secondary[columns]
