"""Counts of transactions and of changed rows since the start, for PostgreSQL's statistics views."""

from collections.abc import Callable
from dataclasses import dataclass, field

from foreshore.ids import GlobalId


@dataclass(slots=True)
class TableActivity:
    """The rows that statements have changed in a table, committed or not, as PostgreSQL counts.

    `live` estimates the committed rows.
    """

    live: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    last: int = 0  # rows that the last change deleted


@dataclass(slots=True)
class Activity:
    """The counts of an environment, which its event loop owns."""

    commits: int = 0
    rollbacks: int = 0
    tables: dict[GlobalId, TableActivity] = field(default_factory=dict)

    def changed(self, id: GlobalId, deleted: int, inserted: int, rows: Callable[[], int]) -> None:
        """Count a change of a table; `rows` estimates how many committed rows it has.

        Rows that a change both deletes and inserts count as updated.
        """
        found = self.tables.get(id)
        if found is None:
            found = self.tables[id] = TableActivity(rows())
        updated = min(deleted, inserted)
        found.updated += updated
        found.deleted += deleted - updated
        found.last = deleted - updated
        found.inserted += inserted - updated

    def committed(self, id: GlobalId, added: int) -> None:
        """Count the rows that a transaction has added to a table, less those that it deleted."""
        found = self.tables.get(id)
        if found is not None:
            found.live = max(found.live + added, 0)

    def truncated(self, id: GlobalId) -> None:
        """Count the last change of a table, which deleted all its rows, as none."""
        found = self.tables.get(id)
        if found is not None:
            found.deleted -= found.last
