"""Durable subscriptions at work: where each stands, and that its consumer can go on from there.

    catalog     what a subscription is for
    its shard   where it stands: rows that move without a new version of the catalog
    here        the same in memory, and the hold that keeps the history from there on

A position moves forward only, by a write of its own in the group commit: it is in the log before
its consumer hears of it, and the history before it is let go only then. So a prefix of the log,
which is what a kill leaves and a backup takes, never has a position whose history is gone.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from foreshore.adapter.group_commit import GroupCommit, Write
from foreshore.adapter.read_holds import Hold, ReadHolds
from foreshore.catalog.durable import CATALOG_SHARD, Position, moved
from foreshore.errors import DataCorrupted, InvalidParameterValue, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


class Subscriptions:
    """Where all subscriptions stand; owned by the event loop.

    `sources_of` gives the collections that a subscription's query reads.
    """

    def __init__(
        self,
        holds: ReadHolds,
        group: GroupCommit,
        sources_of: Callable[[GlobalId], Iterable[GlobalId]],
    ) -> None:
        self._holds = holds
        self._group = group
        self._sources_of = sources_of
        self._positions: dict[GlobalId, Position] = {}
        self._rows: dict[GlobalId, Position] = {}  # in the shard: also of some that were dropped
        self._held: dict[GlobalId, Hold] = {}
        self._asked: dict[GlobalId, Timestamp] = {}  # to where some are to move
        self._writing = asyncio.Lock()

    def open(self, rows: Mapping[GlobalId, Position], known: Iterable[GlobalId]) -> None:
        """Hold what the subscriptions `known` to the catalog have to go on from.

        Nothing may have been forgotten yet since the last process ended.
        """
        self._rows = dict(rows)
        for id in known:
            if id not in rows:
                raise DataCorrupted(f"where subscription {id} stands is not written down")
            self._stand(id, rows[id])

    def position(self, id: GlobalId) -> Position | None:
        """Return where a subscription stands; None: it has not begun, or was dropped."""
        return self._positions.get(id)

    # --- the first and the last of it

    def begun(self, ids: Iterable[GlobalId], time: Timestamp) -> pa.Table:
        """Return the updates of the catalog's shard that let subscriptions begin at `time`."""
        return moved({}, dict.fromkeys(ids, Position(time, time)), time)

    def begin(self, id: GlobalId, time: Timestamp) -> None:
        """Hear that a subscription has begun at `time`, durably, together with its item."""
        self._rows[id] = Position(time, time)
        self._stand(id, self._rows[id])

    def forget(self, id: GlobalId) -> None:
        """Hear that an item was dropped; its row goes with the next position that moves."""
        if self._positions.pop(id, None) is not None:
            self._held.pop(id).release()

    # --- on the way

    async def advance(self, id: GlobalId, name: str, to: Timestamp) -> None:
        """Let a consumer have all before `to`, durably; what only it held may go.

        Raises 22023 if it has more already, and 42704 if there is no such subscription any more.
        """
        there = self._there(id, name)
        if to < there.reached:
            raise InvalidParameterValue(
                f'cannot move subscription "{name}" back to {to}',
                detail=f"It is at {there.reached}; what was before is let go.",
            )
        self._ask(id, to)
        async with self._writing:  # one write takes along all who have asked meanwhile
            if self._there(id, name).reached < to:
                self._ask(id, to)  # the write that took it along may have failed
                await self._group.write(self._move())

    def _there(self, id: GlobalId, name: str) -> Position:
        found = self._positions.get(id)
        if found is None:
            raise UndefinedObject(f'subscription "{name}" does not exist')
        return found

    def _ask(self, id: GlobalId, to: Timestamp) -> None:
        self._asked[id] = max(to, self._asked.get(id, to))

    def _move(self) -> Write:
        """Return the write that moves subscriptions as was asked.

        From where, is seen when its group is made: a write whose client was gone before it heard of
        it may have come in between, and is not taken back.
        """
        asked, self._asked = self._asked, {}
        old: Mapping[GlobalId, Position] = {}
        new: dict[GlobalId, Position] = {}

        def rows_at(time: Timestamp) -> Mapping[GlobalId, pa.Table]:
            nonlocal old, new
            old, new = self._rows, {}
            for id, there in self._positions.items():
                new[id] = Position(there.began, max(there.reached, asked.get(id, 0)))
            return {CATALOG_SHARD: moved(old, new, time)}

        def applied(time: Timestamp) -> None:
            begun = {id: row for id, row in self._rows.items() if id not in old}
            self._rows = {**new, **begun}
            for id in asked.keys() & self._positions.keys() & new.keys():
                self._stand(id, new[id])

        return Write({CATALOG_SHARD: ()}, at=rows_at, applied=applied)

    def _stand(self, id: GlobalId, position: Position) -> None:
        """Hold what `position` needs, and no more."""
        before = self._held.get(id)
        readable = [
            each
            for each in self._sources_of(id)
            if each in self._holds.collections and self._holds.since(each) <= position.as_of
        ]
        self._positions[id] = position
        self._held[id] = self._holds.acquire(
            readable, position.as_of, "durable subscription", subscription=id
        )
        if before is not None:
            before.release()

    def check(self, known: Iterable[GlobalId]) -> None:
        """Assert that what the catalog knows stands somewhere, is written down and is held."""
        ids = set(known)
        assert ids == self._positions.keys() == self._held.keys(), ids ^ self._positions.keys()
        for id, position in self._positions.items():
            assert self._rows[id] == position, id
            assert self._held[id].time == position.as_of, id
