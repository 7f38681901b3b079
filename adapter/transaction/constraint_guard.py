"""The checks of a group's writes against what others have committed since their statements."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from foreshore.adapter.transaction.violations import below_watermark, key_exists, not_present
from foreshore.adapter.transaction.watermarks import Watermarks
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.naming import NameKey
from foreshore.catalog.subscription_positions import DurablePositions
from foreshore.compute.keys.group_keys import GroupKeys, Keyed
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.compute.keys.key_sets import Keys
from foreshore.compute.keys.references import ReferredKeys, missing_at_commit
from foreshore.errors import DatabaseError, TableAltered
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.table_rows import TableRows
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class ConstraintGuard:
    """The checks of a group's writes; implements `Guard`.

    A statement has checked its rows against what it saw. So these check what others have committed
    since then, or commit in the same group. No table with corruption is written: nobody could read
    it, and its repair would have to decide what to keep.
    """

    keys: KeyIndexes
    catalog: Catalog
    subscriptions: DurablePositions
    corruptions: Corruptions
    watermarks: Watermarks

    def refused(self, write: Write, earlier: GroupKeys) -> DatabaseError | None:
        """Return why `write` may not happen after what is there and after `earlier`."""
        for id in write.rows if self.corruptions.messages else ():
            if (corruption := self.corruptions.of(id)) is not None:
                return corruption
        planned = self.catalog.planned
        marked: dict[GlobalId, Sequence[pa.Table | TableRows]] = {}
        for id, known in write.described.items():
            if planned.get(id) is not known:
                return TableAltered()
        if write.moves and (error := self.subscriptions.refused(write.moves)) is not None:
            return error
        for id, rows in write.rows.items():
            table = write.described.get(id) or planned.get(id)
            if table is None or table.desc.watermark is not None:
                marked[id] = rows
        write.marked = marked
        if marked and (late := self.watermarks.late_row(marked)) is not None:
            if isinstance(late, DatabaseError):
                return late
            table = planned.get(late.table)
            desc = None if table is None else table.desc
            return below_watermark(self.catalog.state, desc, late, write.viewer())
        for referred in write.refers:
            if (error := self._missing(referred, write, earlier)) is not None:
                return error
        if not write.keyed:
            return None
        found = self.keys.duplicate(write.keyed, write.checked, earlier)
        if found is None:
            return None
        return key_exists(self.catalog.state, planned[found.table].desc, found, write.viewer())

    def _missing(
        self, referred: ReferredKeys, write: Write, earlier: GroupKeys
    ) -> DatabaseError | None:
        """Return the error of a write that refers to a key that is there no more."""
        reference = referred.reference
        index = self.keys.named(reference.parent, reference.constraint)
        if index is None:
            return TableAltered()
        name = reference.constraint.name
        mine = [part[name] for part in write.keyed.get(reference.parent, ())]
        place = missing_at_commit(index, referred, write.checked, earlier, mine)
        if place is None:
            return None
        return not_present(self.catalog.state, reference, referred.columns, place, write.viewer())

    def changed(self, keys: Keys, time: Timestamp, earlier: GroupKeys) -> bool:
        """Whether one of `keys` has been changed after `time`, or is by `earlier`."""
        return self.keys.changed(keys, time, earlier)

    def is_taken(self, name: NameKey) -> bool:
        """Whether an object has this name now."""
        return name in self.catalog.state.names

    def apply(self, time: Timestamp, group: Sequence[Write]) -> None:
        """Let the key indexes and watermarks follow."""
        keyed: dict[GlobalId, list[Keyed]] = {}
        for write in group:
            if write.marked:
                self.watermarks.apply(write.marked)
            for id, parts in write.keyed.items():
                keyed.setdefault(id, []).extend(parts)
        self.keys.apply(time, keyed)
