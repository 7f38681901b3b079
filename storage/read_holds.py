"""Read holds: they keep the history of collections readable for as long as it is needed.

The `since` of a collection follows its `upper` at a lag: the default, or that of RETAIN HISTORY. It
never passes a hold. A transaction or a subscription holds its inputs at its time, a durable
subscription over restarts (`durable_positions.py`). A maintained collection holds its inputs just
before its own `upper`, so that it can be built again, or at its `since` if only they have its
history. The end of its owner releases a hold. This is bookkeeping only: `due` returns what may be
compacted now, and the coordinator passes that on to storage and compute.

A table that has no history left to forget rests: nothing is done for it until it is written, held,
or read by a maintained collection. Tables that rest advance together, so the work of `due` does not
grow with the number of idle tables.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from foreshore.ids import GlobalId
from foreshore.update import Timestamp

DEFAULT_LAG_MS = 30_000
AT_ONCE = 1_000  # collections whose since advances in one step

HoldKind = Literal["transaction", "subscription", "durable subscription"]


@dataclass(eq=False, slots=True)
class Hold:
    """The right to read `ids` at `time` and later; give it back with `release`.

    Without `ids` it is the right to read all collections that could be read at `time` when it was
    acquired.
    """

    holds: "ReadHolds"
    ids: frozenset[GlobalId] | None
    time: Timestamp
    kind: HoldKind = "transaction"
    pid: int | None = None  # of the session; None: several share it
    subscription: GlobalId | None = None  # a durable one

    def release(self) -> None:
        """Release the hold; a second call does nothing."""
        if self.ids is None:
            self.holds.of_all.discard(self)
            return
        for id in self.ids:
            collection = self.holds.collections.get(id)
            if collection is not None:
                collection.held.discard(self)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(slots=True)
class _Collection:
    since: Timestamp
    upper: Callable[[], Timestamp]
    inputs: frozenset[GlobalId]
    lag_ms: int | None  # None: that of all
    durable: bool  # it has its history without its inputs
    written: Callable[[], Timestamp] | None  # when it was last written; None: it never rests
    rests: bool = False
    held: set[Hold] = field(default_factory=set)


class ReadHolds:
    """The holds on all collections of the environment."""

    def __init__(self, lag_ms: int = DEFAULT_LAG_MS) -> None:
        self.lag_ms = lag_ms
        self.collections: dict[GlobalId, _Collection] = {}
        self.owned: dict[object, list[Hold]] = {}  # by transactions
        self.of_all: set[Hold] = set()  # the holds on all collections
        self._awake: dict[GlobalId, _Collection] = {}  # those that do not rest
        self._floor: Timestamp = 0  # the least since of those that rest

    def add(
        self,
        id: GlobalId,
        since: Timestamp,
        upper: Callable[[], Timestamp],
        inputs: Iterable[GlobalId] = (),
        *,
        lag_ms: int | None = None,
        durable: bool = True,
        written: Callable[[], Timestamp] | None = None,
    ) -> None:
        """Add a collection; a maintained one reads `inputs`, others have none but themselves.

        One with `written`, a table, may rest: its upper is always that of all tables.
        """
        assert id not in self.collections, id
        each = _Collection(since, upper, frozenset(inputs) - {id}, lag_ms, durable, written)
        self.collections[id] = self._awake[id] = each
        self._wake(each.inputs)

    def _wake(self, ids: Iterable[GlobalId]) -> None:
        """Let collections advance on their own."""
        for id in ids:
            each = self.collections.get(id)
            if each is not None and each.rests:
                each.since = max(each.since, self._floor)
                each.rests = False
                self._awake[id] = each

    def retain(self, id: GlobalId, lag_ms: int | None) -> None:
        """Set the lag of a collection; None is the default."""
        self._wake((id,))
        self.collections[id].lag_ms = lag_ms

    def follow(self, id: GlobalId, inputs: Iterable[GlobalId]) -> None:
        """Set the inputs of a maintained collection."""
        found = self.collections[id].inputs = frozenset(inputs) - {id}
        self._wake(found)

    def forget_before(self, id: GlobalId, time: Timestamp) -> None:
        """Advance the since of a collection to `time`; earlier holds have no effect any more."""
        self._wake((id,))
        collection = self.collections[id]
        collection.since = max(collection.since, time)
        for hold in list(collection.held):
            if hold.time < time:
                collection.held.discard(hold)

    def remove(self, id: GlobalId) -> None:
        """Remove a dropped collection; its holds have no effect any more."""
        self.collections.pop(id, None)
        self._awake.pop(id, None)

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which `id` is certain to be readable."""
        each = self.collections[id]
        return max(each.since, self._floor) if each.rests else each.since

    def least(self, id: GlobalId, now: Timestamp) -> Timestamp:
        """Return the earliest time at which `id` is held, or `now`."""
        if id not in self.collections:
            return now
        return min([now, *(hold.time for hold in self.on(id))])

    def first_held(self, id: GlobalId, time: Timestamp, now: Timestamp) -> Timestamp:
        """Return the earliest time from `time` on at which `id` is held, or `now`."""
        return min([now, *(hold.time for hold in self.on(id) if hold.time >= time)])

    def retains(self, id: GlobalId) -> bool:
        """Whether a collection keeps history because RETAIN HISTORY says so."""
        return self.collections[id].lag_ms is not None

    def lag_of(self, id: GlobalId) -> int:
        """Return the lag of a collection, in milliseconds."""
        own = self.collections[id].lag_ms
        return self.lag_ms if own is None else own

    def acquire(
        self,
        ids: Iterable[GlobalId],
        time: Timestamp,
        kind: HoldKind = "transaction",
        pid: int | None = None,
        subscription: GlobalId | None = None,
    ) -> Hold:
        """Hold `ids` at `time` for the session `pid`; all of them must be readable there."""
        held = frozenset(ids)
        hold = Hold(self, held, time, kind, pid, subscription)
        self._wake(held)
        for id in held:
            collection = self.collections[id]
            assert collection.since <= time, f"{id} is held at {time}, since is {collection.since}"
            collection.held.add(hold)
        return hold

    def hold_for(
        self, owner: object, ids: Iterable[GlobalId], time: Timestamp, pid: int | None = None
    ) -> None:
        """Hold `ids` at `time` for the transaction `owner`, of session `pid`, until its end."""
        self.owned.setdefault(owner, []).append(self.acquire(ids, time, "transaction", pid))

    def hold_all_for(self, owner: object, time: Timestamp, pid: int | None = None) -> None:
        """Hold all that can be read at `time` for the transaction `owner`, until its end."""
        hold = Hold(self, None, time, "transaction", pid)
        self.of_all.add(hold)
        self.owned.setdefault(owner, []).append(hold)

    def move_all(self, owner: object, time: Timestamp, pid: int | None = None) -> None:
        """Hold all that can be read at `time` for `owner`, and release what it held before."""
        before = self.owned.pop(owner, [])
        self.hold_all_for(owner, time, pid)
        for hold in before:
            hold.release()

    def release(self, owner: object) -> None:
        """Release all holds of the transaction `owner`."""
        for hold in self.owned.pop(owner, ()):
            hold.release()

    def on(self, id: GlobalId) -> Iterator[Hold]:
        """Yield the holds on a collection."""
        yield from self.collections[id].held
        since = self.since(id)
        yield from (hold for hold in self.of_all if hold.time >= since)

    def policy(self, id: GlobalId) -> Timestamp:
        """Return the since that a collection would have without holds."""
        return max(self.since(id), self.collections[id].upper() - 1 - self.lag_of(id))

    def due(
        self, written: Iterable[GlobalId] = (), upper: Timestamp = 0
    ) -> Mapping[GlobalId, Timestamp]:
        """Advance the since of collections as far as possible; return the new ones.

        `written` are the tables written since the last call, and `upper` is that of all tables.
        Where very many are due, some are left to the next calls. Tables that rest are not returned:
        their history is forgotten when they are next written.
        """
        self._wake(written)
        wanted = {id: self.policy(id) for id in self._awake}
        read: set[GlobalId] = set()
        for id, collection in self._awake.items():
            needed = max(collection.upper() - 1, 0)
            if collection.lag_ms is not None and not collection.durable:
                needed = min(needed, wanted[id])
            read |= collection.inputs
            for input in collection.inputs:
                if input in wanted:
                    wanted[input] = min(wanted[input], needed)
        advanced = self._advance(wanted)
        for id in wanted:
            self._rest(id, read)
        floor = upper - 1 - self.lag_ms
        held = (hold.time for hold in self.of_all if hold.time >= self._floor)
        self._floor = max(self._floor, min([floor, *held]))
        return advanced

    def _advance(self, wanted: Mapping[GlobalId, Timestamp]) -> dict[GlobalId, Timestamp]:
        advanced: dict[GlobalId, Timestamp] = {}
        held = sorted(hold.time for hold in self.of_all)
        for id, since in wanted.items():
            collection = self._awake[id]
            if since <= collection.since:
                continue
            first = bisect_left(held, collection.since)
            since = min([since, *held[first : first + 1], *(h.time for h in collection.held)])
            if since > collection.since:
                collection.since = advanced[id] = since
                if len(advanced) == AT_ONCE:
                    break
        if len(advanced) == AT_ONCE:  # the others come first the next time
            for id in advanced:
                self._awake[id] = self._awake.pop(id)
        return advanced

    def _rest(self, id: GlobalId, read: Collection[GlobalId]) -> None:
        """Let a collection rest unless it has history to forget, or something depends on it."""
        each = self._awake[id]
        if each.written is None or each.held or each.lag_ms is not None or id in read:
            return
        if each.since >= each.written():
            each.rests = True
            del self._awake[id]

    def check(self) -> None:
        """Assert that no since has passed a hold."""
        for id, collection in self.collections.items():
            for hold in collection.held:
                assert hold.time >= collection.since, (id, hold.time, collection.since)
                assert hold.ids is not None, id
                assert id in hold.ids, id
            assert collection.rests == (id not in self._awake), id
            assert not (collection.rests and collection.held), id
