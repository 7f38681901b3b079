"""Counts of transactions and of changed rows since the start, for PostgreSQL's statistics views."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from foreshore.ids import GlobalId

Change = tuple[GlobalId, int, int]  # a table, and how many rows it lost and got


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

    commits: Counter[str] = field(default_factory=Counter)  # by the session's database
    rollbacks: Counter[str] = field(default_factory=Counter)
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

    def uncount(self, changes: list[Change]) -> None:
        """Take back changes that are going to run again, and empty the list."""
        for id, deleted, inserted in changes:
            found, updated = self.tables.get(id), min(deleted, inserted)
            if found is not None:  # else the table was dropped, or has another shard
                found.updated -= updated
                found.deleted -= deleted - updated
                found.inserted -= inserted - updated
        changes.clear()

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
