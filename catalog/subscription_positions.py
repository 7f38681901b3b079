"""The positions of durable subscriptions, and the history that is held for them.

    catalog          the subscription: its name and its query
    catalog's shard  its position, in rows that move without a new version of the catalog
    here             its position in memory, and the read hold on the history from there on

A position only moves forward, in the append that makes the rest of its transaction durable. The
history before it is released afterwards. So every prefix of the log, which is what a kill leaves
and a backup takes, has the transaction and the move or neither, and never a position without its
history. The first of two concurrent moves wins: a move names the position that it starts from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from foreshore.catalog.durable import Position, moved
from foreshore.errors import ConcurrentUpdate, DatabaseError, DataCorrupted, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.read_holds import Hold, ReadHolds
from foreshore.update import Timestamp


class Move(NamedTuple):
    """A change that a transaction makes to a subscription's position; none if it only reads it."""

    name: tuple[str, ...]  # in full
    before: Position  # as the transaction has read it
    after: Position


class Previous(NamedTuple):
    """The relation that a sink wrote until a time, when it got another one."""

    relation: GlobalId
    cut: Timestamp


Moves = Mapping[GlobalId, Move]
NO_MOVES: Moves = MappingProxyType({})


class DurablePositions:
    """The positions of all durable subscriptions; owned by the event loop.

    `sources_of` returns the collections that a subscription's query reads, `previous_of` the
    relation that a sink wrote before, until the consumer has more than what was before a time.
    """

    def __init__(
        self,
        holds: ReadHolds,
        sources_of: Callable[[GlobalId], Iterable[GlobalId]],
        previous_of: Callable[[GlobalId], Previous | None] = lambda _: None,
    ) -> None:
        self._holds = holds
        self._sources_of = sources_of
        self._previous_of = previous_of
        self._positions: dict[GlobalId, Position] = {}
        self._held: dict[GlobalId, tuple[Hold, ...]] = {}
        self._moved_at: dict[GlobalId, Timestamp] = {}  # since this process has started
        # The positions after the writes of one group so far, and the group's time.
        self._staged: tuple[Timestamp, dict[GlobalId, Position]] = (0, {})

    def open(self, rows: Mapping[GlobalId, Position], ids: Iterable[GlobalId]) -> None:
        """Load the positions of the catalog's subscriptions `ids` and hold their history.

        Call it before anything is compacted.
        """
        for id in ids:
            if id not in rows:
                raise DataCorrupted(f"the position of subscription {id} is missing")
            self._set(id, rows[id])

    def position(self, id: GlobalId, own: Moves = NO_MOVES) -> Position | None:
        """Return a subscription's position after a transaction's `own` moves, None if unknown."""
        return own[id].after if id in own else self._positions.get(id)

    def moved_after(self, id: GlobalId, time: Timestamp) -> bool:
        """Whether a subscription was moved or created later than `time`."""
        return self._moved_at.get(id, 0) > time

    # --- a group of writes

    def refused(self, moves: Moves) -> DatabaseError | None:
        """Return the error if a position is not where its move starts from."""
        for id, move in moves.items():
            position = self._positions.get(id)
            if position is None:
                return UndefinedObject(f'subscription "{move.name[-1]}" does not exist')
            if position != move.before:
                return ConcurrentUpdate()
        return None

    def updates(
        self,
        time: Timestamp,
        moves: Moves,
        created: Iterable[GlobalId] = (),
        dropped: Iterable[GlobalId] = (),
    ) -> pa.Table:
        """Return the updates of the catalog's shard for one write of the group at `time`.

        Call it for the writes of a group in the order in which they are applied.
        """
        if self._staged[0] != time:  # the previous group has ended
            self._staged = (time, dict(self._positions))
        _, staged = self._staged
        old: dict[GlobalId, Position] = {}
        new: dict[GlobalId, Position] = {id: Position(time, time) for id in created}
        for id in dropped:
            if id in staged:
                old[id] = staged.pop(id)
        for id, move in moves.items():
            if id in staged:  # otherwise it is dropped at the same time
                old[id], new[id] = staged[id], move.after
        staged.update(new)
        return moved(old, new, time)

    def apply(self, time: Timestamp, moves: Moves) -> None:
        """Move positions after the moves have become durable at `time`."""
        for id, move in moves.items():
            if id in self._positions:
                self._moved_at[id] = time
                self._set(id, move.after)

    def begin(self, id: GlobalId, time: Timestamp) -> None:
        """Add a subscription that was created durably at `time`."""
        self._moved_at[id] = time
        self._set(id, Position(time, time))

    def forget(self, id: GlobalId) -> None:
        """Release the history of a dropped item, if it is a subscription."""
        if self._positions.pop(id, None) is not None:
            _release(self._held.pop(id))
            self._moved_at.pop(id, None)

    def hold_anew(self, id: GlobalId) -> None:
        """Hold the history that a subscription needs, as its query has changed."""
        if id in self._positions:
            self._set(id, self._positions[id])

    def previous(self, id: GlobalId) -> Previous | None:
        """Return the relation that a sink wrote before, if its target may still have that."""
        found = self._previous_of(id)
        if found is None or self._positions[id].reached > found.cut:
            return None
        return found

    def awaited(self) -> Iterator[tuple[GlobalId, GlobalId]]:
        """Yield the subscriptions that still need what they read before, with these relations."""
        for id in self._positions:
            if (found := self.previous(id)) is not None:
                yield id, found.relation

    def _set(self, id: GlobalId, position: Position) -> None:
        """Set a position and hold the history that it needs instead of the previous one."""
        before = self._held.get(id, ())
        self._positions[id] = position
        previous, sources = self.previous(id), self._sources_of(id)
        if previous is None:
            self._held[id] = (self._hold(id, sources, position.as_of),)
        else:
            self._held[id] = (
                self._hold(id, [previous.relation], position.as_of),
                self._hold(id, sources, max(position.as_of, previous.cut)),
            )
        _release(before)

    def _hold(self, id: GlobalId, sources: Iterable[GlobalId], time: Timestamp) -> Hold:
        """Hold those of some collections that can be read at a time."""
        readable = [
            each
            for each in sources
            if each in self._holds.collections and self._holds.since(each) <= time
        ]
        return self._holds.acquire(readable, time, "durable subscription", subscription=id)

    def check(self, ids: Iterable[GlobalId]) -> None:
        """Assert that exactly the catalog's subscriptions have a position and a hold."""
        expected = set(ids)
        assert expected == self._positions.keys() == self._held.keys(), self._positions
        for id, position in self._positions.items():
            assert self._held[id][0].time == position.as_of, id


def _release(holds: Iterable[Hold]) -> None:
    for each in holds:
        each.release()
