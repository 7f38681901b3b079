"""Locks of tables and keys: they block writes to rows that a statement has read.

A statement that reads tables to write locks them until it has committed. One that reads a table by
literal keys alone locks these keys, until its transaction ends or returns to a savepoint.

Locks avoid conflicts; they are not what makes an answer right. That is checked when the transaction
commits (`group_commit.Reads`), so a plain write locks no keys. It waits here for the holder of its
table; an owner that gets a table while the write commits closes the table (`GroupCommit.block`).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.catalog.naming import name_key
from foreshore.catalog.state import State
from foreshore.compute.keys.key_sets import NO_KEYS, KeyPlace, Keys, are_disjoint, keys_of
from foreshore.errors import TableAltered
from foreshore.ids import GlobalId
from foreshore.lock_queue import LockQueue

Owner = object  # compared by identity
CATALOG = GlobalId("catalog")  # stands for all permanent objects


class _Held(Struct, frozen=True):
    """Keys of one table that were locked together."""

    place: KeyPlace
    hashes: AbstractSet[int]


class _Altering(NamedTuple):
    """The intention of the owner of `table` to alter it."""

    table: GlobalId


Lock: TypeAlias = GlobalId | _Held | _Altering  # GlobalId: a whole table


@dataclass(eq=False, slots=True)
class _Request:
    owner: Owner
    tables: frozenset[GlobalId]
    keys: Keys
    granted: asyncio.Future[None] = field(default_factory=asyncio.Future)

    def conflicts(self, other: "_Request") -> bool:
        """Return whether the two cannot be granted to different owners."""
        return (
            not self.tables.isdisjoint(other.tables)
            or not are_disjoint(self.keys, other.keys)
            or any(table in self.tables for table, _ in other.keys)
            or any(table in other.tables for table, _ in self.keys)
        )


class Locks(LockQueue[_Request]):
    """The locks of all tables and keys; owned by the event loop."""

    def __init__(self, group: GroupCommit, state: Callable[[], State]) -> None:
        super().__init__()
        self._group = group
        self._state = state
        self.tables: dict[GlobalId, Owner] = {}  # locked as a whole
        self._keys: dict[KeyPlace, dict[int, Owner]] = {}  # by their hashes
        self._with_keys: dict[GlobalId, dict[Owner, int]] = {}  # the number of keys of a table
        self.held: dict[Owner, list[Lock]] = {}  # in the order of locking
        self.altering: dict[GlobalId, Owner] = {}  # tables that an ALTER TABLE changes

    async def acquire(self, tables: Iterable[GlobalId], owner: Owner, timeout_ms: int) -> None:
        """Lock `tables` as a whole, and block the plain writes of others.

        Raises Conflict 40P01 at a deadlock, LockNotAvailable after `timeout_ms` unless that is 0;
        TableDropped or TableAltered if a table was dropped, altered or renamed meanwhile.
        """
        wanted = frozenset(tables)
        await self._acquire(wanted, NO_KEYS, owner, timeout_ms)
        await self._close(wanted, owner)

    async def _close(self, tables: frozenset[GlobalId], owner: Owner) -> None:
        """Block writes of others to tables that `owner` has just locked.

        Writes that found no lock, and so are about to commit, go first: they would wait where
        nothing can interrupt them.
        """
        await asyncio.sleep(0)
        await self._group.settled()
        self._group.block(tables, owner)
        await self._group.settled()

    async def try_acquire(self, tables: Iterable[GlobalId], owner: Owner) -> bool:
        """Lock `tables` as `acquire` does if that needs no waiting; return whether it did."""
        wanted = frozenset(tables)
        if not self.try_locks(wanted, NO_KEYS, owner):
            return False
        await self._close(wanted, owner)
        return True

    async def acquire_to_alter(
        self, tables: Iterable[GlobalId], owner: Owner, timeout_ms: int
    ) -> None:
        """Lock `tables` as `acquire` does, and let writers know that they are to be altered."""
        wanted = frozenset(tables)
        await self.acquire(wanted, owner, timeout_ms)
        for id in wanted - self.altering.keys():
            self.altering[id] = owner
            self.held[owner].append(_Altering(id))

    def is_waited_for(self, table: GlobalId) -> bool:
        """Whether somebody waits for a lock of `table`, so that others are likely to wait, too."""
        return any(
            table in each.tables or any(table == place[0] for place in each.keys)
            for each in self._waiting
        )

    def is_taken(self, table: GlobalId, owner: Owner) -> bool:
        """Return whether an owner other than `owner` has locked all of `table`."""
        return self.tables.get(table, owner) is not owner

    def alters_another(self, table: GlobalId, owner: Owner) -> bool:
        """Return whether an owner other than `owner` is altering `table`."""
        return self.altering.get(table, owner) is not owner

    async def acquire_beside(
        self, table: GlobalId, owner: Owner, timeout_ms: int, *, by_name: bool = True
    ) -> None:
        """Take a shared lock of `table`: it blocks locks of the whole table, not writes.

        It is a lock of a key that no row has. Raises as `acquire` does; the table may be renamed
        meanwhile unless it is locked `by_name`.
        """
        keys = self.beside(table, owner)
        if not self.try_keys(keys, owner):
            await self._acquire(frozenset(), keys, owner, timeout_ms, by_name=by_name)

    def beside(self, table: GlobalId, owner: Owner) -> Keys:
        """Return the key that `owner` locks in `acquire_beside`."""
        return keys_of(table, "", (id(owner),))

    async def lock_catalog(self, owner: Owner, timeout_ms: int) -> None:
        """Lock the catalog's permanent objects against the changes of others.

        Raises as `acquire` does.
        """
        await self._acquire(frozenset((CATALOG,)), NO_KEYS, owner, timeout_ms)

    def holds_catalog(self, owner: Owner) -> bool:
        """Return whether `owner` has locked the catalog."""
        return self.tables.get(CATALOG) is owner

    async def acquire_keys(self, keys: Keys, owner: Owner, timeout_ms: int) -> None:
        """Lock `keys`; raises as `acquire` does."""
        await self._acquire(frozenset(), keys, owner, timeout_ms)

    def try_keys(self, keys: Keys, owner: Owner) -> bool:
        """Lock all of `keys` if that needs no waiting; return whether it did."""
        if self._waiting:
            return False
        for place, hashes in keys.items():
            if self.tables and self.tables.get(place[0], owner) is not owner:
                return False
            taken = self._keys.get(place)
            if taken and any(taken[hash] is not owner for hash in taken.keys() & hashes):
                return False
        self._grant_keys(keys, owner)
        return True

    def _holders(self, place: KeyPlace, hashes: AbstractSet[int]) -> Sequence[Owner]:
        """Return who holds which of some keys."""
        taken = self._keys.get(place)
        if taken is None or taken.keys().isdisjoint(hashes):
            return ()
        return [taken[hash] for hash in taken.keys() & hashes]

    def try_locks(self, tables: Iterable[GlobalId], keys: Keys, owner: Owner) -> bool:
        """Lock all of these if that needs no waiting; return whether it did."""
        return self._try(_Request(owner, frozenset(tables), keys))

    def holds(self, keys: Keys, owner: Owner) -> bool:
        """Return whether `owner` has locked all of `keys`, or their tables."""
        return not self.lacking(keys, owner)

    def lacking(self, keys: Keys, owner: Owner) -> Keys:
        """Return those of `keys` that `owner` has not locked, nor their tables."""
        found: dict[KeyPlace, AbstractSet[int]] = {}
        for place, hashes in keys.items():
            if self.tables.get(place[0]) is not owner:
                taken = self._keys.get(place, {})
                if left := frozenset(h for h in hashes if taken.get(h) is not owner):
                    found[place] = left
        return found

    def mark(self, owner: Owner) -> int:
        """Return the number of locks of `owner`, for `release`."""
        return len(self.held.get(owner, ()))

    def release(self, owner: Owner, since: int = 0) -> None:
        """Release the locks of `owner` but for the first `since`."""
        held = self.held.get(owner, [])
        tables: list[GlobalId] = []
        while len(held) > since:
            match held.pop():
                case _Held(place, hashes):
                    self._release_keys(place, hashes, owner)
                case _Altering(table):
                    del self.altering[table]
                case table:
                    del self.tables[table]
                    tables.append(table)
        if not held:
            self.held.pop(owner, None)
        if tables:
            self._group.unblock(tables)
        if self._waiting:
            self._wake()

    def _release_keys(self, place: KeyPlace, hashes: AbstractSet[int], owner: Owner) -> None:
        taken, holders = self._keys[place], self._with_keys[place[0]]
        if len(taken) == len(hashes):
            del self._keys[place]
        else:
            for hash in hashes:
                del taken[hash]
        holders[owner] -= len(hashes)
        if not holders[owner]:
            del holders[owner]
        if not holders:
            del self._with_keys[place[0]]

    # --- waiting

    async def _acquire(
        self,
        tables: frozenset[GlobalId],
        keys: Keys,
        owner: Owner,
        timeout_ms: int,
        *,
        by_name: bool = True,
    ) -> None:
        request = _Request(owner, tables, keys)
        if self._try(request):
            return
        wanted = tables.union(table for table, _ in keys)
        named = {id: name_key(self._state().item(id)) for id in wanted if id in self._group}
        await self._wait(request, timeout_ms)
        for id, name in named.items():
            if id not in self._group:
                raise self._group.gone(id)
            if by_name and self._state().names.get(name) != id:
                raise TableAltered()

    def _before(self, request: _Request, place: int) -> Iterator[Owner]:
        """Yield those for whom `request`, at `place` of those who wait, has to wait."""
        owner = request.owner
        for id in request.tables:
            if self.tables.get(id, owner) is not owner:
                yield self.tables[id]
            yield from (each for each in self._with_keys.get(id, ()) if each is not owner)
        for key, hashes in request.keys.items():
            yield from (each for each in self._holders(key, hashes) if each is not owner)
            holder = self.tables.get(key[0], owner)
            if holder is not owner:
                yield holder
        if owner not in self.held:
            # Nobody waits for who has nothing yet, so its place in the queue closes no circle.
            for other in self._waiting[:place]:
                if other.owner is not owner and request.conflicts(other):
                    yield other.owner

    def _grant(self, request: _Request) -> None:
        owner = request.owner
        if new := request.tables - self.tables.keys():
            self.tables.update(dict.fromkeys(new, owner))
            self.held.setdefault(owner, []).extend(new)
        self._grant_keys(request.keys, owner)
        if not request.granted.done():
            request.granted.set_result(None)

    def _grant_keys(self, keys: Keys, owner: Owner) -> None:
        for place, hashes in keys.items():
            taken = self._keys.setdefault(place, {})
            new = hashes if taken.keys().isdisjoint(hashes) else hashes - taken.keys()
            if new:
                taken.update(dict.fromkeys(new, owner))
                self.held.setdefault(owner, []).append(_Held(place, new))
                holders = self._with_keys.setdefault(place[0], {})
                holders[owner] = holders.get(owner, 0) + len(new)
