"""Durable subscriptions at work: where each stands, and that its consumer can go on from there.

    catalog     what a subscription is for
    its shard   where it stands: rows that move without a new version of the catalog
    here        the same in memory, and the hold that keeps the history from there on

A position moves forward only, in the append that makes the rest of its transaction durable: in the
log before its consumer hears of it, and the history before it is let go only then. So a prefix of
the log, which is what a kill leaves and a backup takes, has both of them or none, and never a
position whose history is gone.

Who moves first, wins: a transaction moves a subscription from where it knew it, or not at all.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from foreshore.adapter.read.read_holds import Hold, ReadHolds
from foreshore.catalog.durable import Position, moved
from foreshore.errors import ConcurrentUpdate, DatabaseError, DataCorrupted, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


class Move(NamedTuple):
    """What a transaction does to a subscription's position."""

    name: str
    before: Position  # as the transaction knows it
    after: Position


Moves = Mapping[GlobalId, Move]
NO_MOVES: Moves = MappingProxyType({})


class Subscriptions:
    """Where all subscriptions stand; owned by the event loop.

    `sources_of` gives the collections that a subscription's query reads.
    """

    def __init__(
        self, holds: ReadHolds, sources_of: Callable[[GlobalId], Iterable[GlobalId]]
    ) -> None:
        self._holds = holds
        self._sources_of = sources_of
        self._positions: dict[GlobalId, Position] = {}
        self._held: dict[GlobalId, Hold] = {}
        self._moved: dict[
            GlobalId, Timestamp
        ] = {}  # when each was moved, if it was since the start
        # What the group at hand makes of them, and its time.
        self._staged: tuple[Timestamp, dict[GlobalId, Position]] = (0, {})

    def open(self, rows: Mapping[GlobalId, Position], known: Iterable[GlobalId]) -> None:
        """Hold what the subscriptions `known` to the catalog have to go on from.

        Nothing may have been forgotten yet since the last process ended.
        """
        for id in known:
            if id not in rows:
                raise DataCorrupted(f"where subscription {id} stands is not written down")
            self._stand(id, rows[id])

    def position(self, id: GlobalId, own: Moves = NO_MOVES) -> Position | None:
        """Return where a subscription stands, to a transaction that has made the moves `own`.

        None: it has not begun, or was dropped.
        """
        return own[id].after if id in own else self._positions.get(id)

    def moved_after(self, id: GlobalId, time: Timestamp) -> bool:
        """Whether a subscription was moved, or begun, at a time later than `time`."""
        return self._moved.get(id, 0) > time

    # --- what a group of writes does

    def refused(self, moves: Moves) -> DatabaseError | None:
        """Return why `moves` may not happen after what is there."""
        for id, move in moves.items():
            there = self._positions.get(id)
            if there is None:
                return UndefinedObject(f'subscription "{move.name}" does not exist')
            if there != move.before:
                return ConcurrentUpdate()
        return None

    def updates(
        self,
        time: Timestamp,
        moves: Moves,
        begun: Iterable[GlobalId] = (),
        gone: Iterable[GlobalId] = (),
    ) -> pa.Table:
        """Return the updates of the catalog's shard that are one write's of the group at `time`.

        They move subscriptions, let those of `begun` begin and forget those of `gone`. The writes
        of a group ask in the order in which they are applied.
        """
        if self._staged[0] != time:  # what another group has left came to nothing, or is there
            self._staged = (time, dict(self._positions))
        _, staged = self._staged
        old: dict[GlobalId, Position] = {}
        new: dict[GlobalId, Position] = {id: Position(time, time) for id in begun}
        for id in gone:
            if id in staged:
                old[id] = staged.pop(id)
        for id, move in moves.items():
            if id in staged:  # else it is dropped at the same time
                old[id], new[id] = staged[id], move.after
        staged.update(new)
        return moved(old, new, time)

    def apply(self, time: Timestamp, moves: Moves) -> None:
        """Hear that subscriptions were moved at `time`, durably."""
        for id, move in moves.items():
            if id in self._positions:
                self._moved[id] = time
                self._stand(id, move.after)

    def begin(self, id: GlobalId, time: Timestamp) -> None:
        """Hear that a subscription has begun at `time`, durably, together with its item."""
        self._stand(id, Position(time, time))
        self._moved[id] = time

    def forget(self, id: GlobalId) -> None:
        """Hear that an item was dropped."""
        if self._positions.pop(id, None) is not None:
            self._held.pop(id).release()
            self._moved.pop(id, None)

    # --- what is held

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
        """Assert that what the catalog knows stands somewhere and is held."""
        ids = set(known)
        assert ids == self._positions.keys() == self._held.keys(), ids ^ self._positions.keys()
        for id, position in self._positions.items():
            assert self._held[id].time == position.as_of, id
