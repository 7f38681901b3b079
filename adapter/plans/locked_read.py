"""Reads of few rows of which those of one table are locked, compiled."""

from dataclasses import dataclass, replace

from foreshore.adapter.plans.access_path import KeyLookup, PeekPlan
from foreshore.adapter.plans.row_read import RowRead
from foreshore.adapter.plans.row_sources import IndexedTable, KeyedTable, TableSource
from foreshore.compute.keys.layout import takes_tuples
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeyStep


@dataclass(frozen=True, slots=True, eq=False)
class LockedRead:
    """A read of few rows of tables, of which those of `source` are locked under its keys.

    These are known before anything is read. The `others` are read after the locks.
    """

    read: RowRead
    source: KeyedTable | IndexedTable
    others: tuple[TableSource, ...]

    @property
    def is_by_whole_key(self) -> bool:
        """Whether it reads one table, in which each row is found by a whole key."""
        source = self.source
        return isinstance(source, KeyedTable) and not source.by_columns and not self.others


def locked_read_of(peek: PeekPlan, read: RowRead, table: GlobalId) -> LockedRead | None:
    """Return `read` as one that locks the rows of `table`; None if their keys are not known."""
    path = peek.path
    places = [place for place, each in enumerate(read.tables) if each.id == table]
    if (
        not isinstance(path, KeyLookup)
        or len(read.tables) < len(read.sources)
        or len(places) != 1  # of several reads, nothing tells which one's rows are locked
    ):
        return None
    (place,) = places
    step, source = path.steps[place], read.tables[place]
    if not isinstance(step, KeyStep) or not step.is_stable or source.keys.collections:
        return None
    others = read.tables[:place] + read.tables[place + 1 :]
    if isinstance(source, KeyedTable):
        return LockedRead(read, source, others)
    desc = source.planned.desc
    if not isinstance(source, IndexedTable) or not all(
        takes_tuples(each, desc) for each in source.planned.unique
    ):
        return None
    # The locks are those of all keys of the rows.
    source = replace(source, used=frozenset(range(len(desc.columns))))
    return LockedRead(read, source, others)
