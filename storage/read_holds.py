"""Read holds: they keep the history of collections readable for as long as it is needed.

The `since` of a collection follows its `upper` at a lag: the default, or that of RETAIN HISTORY. It
never passes a hold. A transaction or a subscription holds its inputs at its time, a durable
subscription over restarts (`durable_positions.py`). A maintained collection holds its inputs just
before its own `upper`, so that it can be built again, or at its `since` if only they have its
history. The end of its owner releases a hold. This is bookkeeping only: `due` returns what may be
compacted now, and the coordinator passes that on to storage and compute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from foreshore.ids import GlobalId
from foreshore.update import Timestamp

DEFAULT_LAG_MS = 30_000

HoldKind = Literal["transaction", "subscription", "durable subscription"]


@dataclass(eq=False, slots=True)
class Hold:
    """The right to read `ids` at `time` and later; give it back with `release`."""

    holds: "ReadHolds"
    ids: frozenset[GlobalId]
    time: Timestamp
    kind: HoldKind = "transaction"
    pid: int | None = None  # of the session; None: several share it
    subscription: GlobalId | None = None  # a durable one

    def release(self) -> None:
        """Release the hold; a second call does nothing."""
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
    held: set[Hold] = field(default_factory=set)


class ReadHolds:
    """The holds on all collections of the environment."""

    def __init__(self, lag_ms: int = DEFAULT_LAG_MS) -> None:
        self.lag_ms = lag_ms
        self.collections: dict[GlobalId, _Collection] = {}
        self.owned: dict[object, list[Hold]] = {}  # by transactions

    def add(
        self,
        id: GlobalId,
        since: Timestamp,
        upper: Callable[[], Timestamp],
        inputs: Iterable[GlobalId] = (),
        *,
        lag_ms: int | None = None,
        durable: bool = True,
    ) -> None:
        """Add a collection; a maintained one reads `inputs`."""
        assert id not in self.collections, id
        self.collections[id] = _Collection(since, upper, frozenset(inputs), lag_ms, durable)

    def retain(self, id: GlobalId, lag_ms: int | None) -> None:
        """Set the lag of a collection; None is the default."""
        self.collections[id].lag_ms = lag_ms

    def follow(self, id: GlobalId, inputs: Iterable[GlobalId]) -> None:
        """Set the inputs of a maintained collection."""
        self.collections[id].inputs = frozenset(inputs)

    def forget_before(self, id: GlobalId, time: Timestamp) -> None:
        """Advance the since of a collection to `time`; earlier holds have no effect any more."""
        collection = self.collections[id]
        collection.since = max(collection.since, time)
        for hold in list(collection.held):
            if hold.time < time:
                collection.held.discard(hold)

    def remove(self, id: GlobalId) -> None:
        """Remove a dropped collection; its holds have no effect any more."""
        self.collections.pop(id, None)

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which `id` is certain to be readable."""
        return self.collections[id].since

    def least(self, id: GlobalId, now: Timestamp) -> Timestamp:
        """Return the earliest time at which `id` is held, or `now`."""
        collection = self.collections.get(id)
        return now if collection is None else min([now, *(hold.time for hold in collection.held)])

    def first_held(self, id: GlobalId, time: Timestamp, now: Timestamp) -> Timestamp:
        """Return the earliest time from `time` on at which `id` is held, or `now`."""
        return min([now, *(h.time for h in self.collections[id].held if h.time >= time)])

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
        hold = Hold(self, frozenset(ids), time, kind, pid, subscription)
        for id in hold.ids:
            collection = self.collections[id]
            assert collection.since <= time, f"{id} is held at {time}, since is {collection.since}"
            collection.held.add(hold)
        return hold

    def hold_for(
        self, owner: object, ids: Iterable[GlobalId], time: Timestamp, pid: int | None = None
    ) -> None:
        """Hold `ids` at `time` for the transaction `owner`, of session `pid`, until its end."""
        self.owned.setdefault(owner, []).append(self.acquire(ids, time, "transaction", pid))

    def move(
        self, owner: object, ids: Iterable[GlobalId], time: Timestamp, pid: int | None = None
    ) -> None:
        """Hold `ids` at `time` for `owner`, and release what it held before."""
        before = self.owned.pop(owner, [])
        self.hold_for(owner, ids, time, pid)
        for hold in before:
            hold.release()

    def release(self, owner: object) -> None:
        """Release all holds of the transaction `owner`."""
        for hold in self.owned.pop(owner, ()):
            hold.release()

    def on(self, id: GlobalId) -> Iterator[Hold]:
        """Yield the holds on a collection."""
        yield from self.collections[id].held

    def policy(self, id: GlobalId) -> Timestamp:
        """Return the since that a collection would have without holds."""
        each = self.collections[id]
        return max(each.since, each.upper() - 1 - self.lag_of(id))

    def due(self) -> Mapping[GlobalId, Timestamp]:
        """Advance the since of collections as far as possible; return the new ones."""
        wanted = {id: self.policy(id) for id in self.collections}
        for id, collection in self.collections.items():
            needed = max(collection.upper() - 1, 0)
            if collection.lag_ms is not None and not collection.durable:
                needed = min(needed, wanted[id])
            for input in collection.inputs:
                if input in wanted:
                    wanted[input] = min(wanted[input], needed)
        advanced = {}
        for id, collection in self.collections.items():
            since = min([wanted[id], *(hold.time for hold in collection.held)])
            if since > collection.since:
                collection.since = advanced[id] = since
        return advanced

    def check(self) -> None:
        """Assert that no since has passed a hold."""
        for id, collection in self.collections.items():
            for hold in collection.held:
                assert hold.time >= collection.since, (id, hold.time, collection.since)
                assert id in hold.ids, id
