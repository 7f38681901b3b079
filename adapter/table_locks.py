"""Table locks: who reads to write keeps others from writing what it reads.

An UPDATE outside of a transaction block takes the tables that it reads until it has committed, so
that its commit cannot fail: other such statements wait for it, and plain writes to these tables
wait in group commit. A statement that waits too long is taken to be in a deadlock.
"""

import asyncio
from collections.abc import Iterable

from foreshore.adapter.group_commit import GroupCommit
from foreshore.errors import Conflict
from foreshore.ids import GlobalId

PATIENCE_S = 30.0


class TableLocks:
    """The locks of all tables."""

    def __init__(self, group: GroupCommit) -> None:
        self._group = group
        self._owners: dict[GlobalId, object] = {}
        self._changed = asyncio.Condition()

    async def acquire(self, ids: Iterable[GlobalId], owner: object) -> None:
        """Take all of `ids` for `owner`, waiting for others to give them up."""
        wanted = frozenset(ids)

        def free() -> bool:
            return all(self._owners.get(id, owner) is owner for id in wanted)

        async with self._changed:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._changed.wait_for(free)
            except TimeoutError:
                raise Conflict("deadlock detected", sqlstate="40P01") from None
            self._owners.update(dict.fromkeys(wanted, owner))
        self._group.block(wanted, owner)
        await self._group.settled()

    async def release(self, owner: object) -> None:
        """Give up all that `owner` has taken."""
        self._group.unblock(owner)
        async with self._changed:
            self._owners = {id: each for id, each in self._owners.items() if each is not owner}
            self._changed.notify_all()
