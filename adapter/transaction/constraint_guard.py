"""What guards the tables when a group is formed: constraints still hold, all is where it was.

A statement has checked its rows already, against what it saw. What others have committed since then
is what is looked at here. Nor is anything written to a table that is damaged: nobody could read it,
and whoever mends the damage would have to tell what to keep.
"""

from collections.abc import Callable, Mapping, Sequence

from foreshore.adapter.subscribe.durable_positions import DurablePositions
from foreshore.adapter.transaction.group_commit import Write
from foreshore.adapter.write.violations import key_exists
from foreshore.catalog.catalog import Planned
from foreshore.catalog.state import State
from foreshore.compute.keys.group_keys import GroupKeys, Keyed
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.errors import DatabaseError, TableAltered
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.update import Timestamp


class ConstraintGuard:
    """Implements `Guard`; `catalog` gives the present state and what its items mean."""

    def __init__(
        self,
        keys: KeyIndexes,
        catalog: Callable[[], tuple[State, Mapping[GlobalId, Planned]]],
        subscriptions: DurablePositions,
        corruptions: Corruptions,
    ) -> None:
        self._keys = keys
        self._subscriptions = subscriptions
        self._corruptions = corruptions
        self._catalog = catalog

    def refused(self, write: Write, earlier: GroupKeys) -> DatabaseError | None:
        """Return why `write` may not happen after what is there and after `earlier`."""
        if (
            corruption := next(filter(None, map(self._corruptions.of, write.rows)), None)
        ) is not None:
            return corruption
        state, planned = self._catalog()
        for id, known in write.described.items():
            if planned.get(id) is not known:
                return TableAltered()
        if write.moves and (error := self._subscriptions.refused(write.moves)) is not None:
            return error
        if not write.keyed:
            return None
        found = self._keys.duplicate(write.keyed, write.checked, earlier)
        if found is None:
            return None
        return key_exists(state, planned[found.table].desc, found, write.zone)

    def changed(
        self, keys: frozenset[tuple[GlobalId, str, int]], time: Timestamp, earlier: GroupKeys
    ) -> bool:
        """Whether one of `keys` has been changed after `time`, or is by `earlier`."""
        return self._keys.changed(keys, time, earlier)

    def apply(self, time: Timestamp, group: Sequence[Write]) -> None:
        """Let the key indexes follow."""
        keyed: dict[GlobalId, list[Keyed]] = {}
        for write in group:
            for id, parts in write.keyed.items():
                keyed.setdefault(id, []).extend(parts)
        self._keys.apply(time, keyed)
