"""Reads of few rows that are locked, compiled."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.plans.row_read import RowRead, plan_row_read
from foreshore.adapter.plans.row_sources import IndexedTable, KeyedTable
from foreshore.catalog.planned import Planned
from foreshore.compute.keys.layout import takes_tuples
from foreshore.ids import GlobalId


@dataclass(frozen=True, slots=True, eq=False)
class LockedRead:
    """A read of few rows of one table, which are locked under the keys of `source`."""

    read: RowRead
    source: KeyedTable | IndexedTable

    @property
    def is_by_whole_key(self) -> bool:
        """Whether each row is found by a whole key."""
        return isinstance(self.source, KeyedTable)


def plan_locked_read(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> LockedRead | None:
    """Return `peek` compiled, if it is about rows of one table under keys that can be locked."""
    if peek.key is None or peek.key.named is None:
        return None
    read = plan_row_read(peek, planned)
    if read is None or len(read.sources) != 1:
        return None
    (source,) = read.sources
    if isinstance(source, IndexedTable):
        desc = source.planned.desc
        if not all(takes_tuples(each, desc) for each in source.planned.unique):
            return None
        # The locks are those of all keys of the rows.
        source = replace(source, used=frozenset(range(len(desc.columns))))
        read = replace(read, sources=(source,))
    elif not isinstance(source, KeyedTable):
        return None
    return LockedRead(read, source)
