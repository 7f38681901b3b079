"""Uppers: the upper of each collection, and the waiters for it.

The upper of a shard is storage's; that of an index is the most advanced replica's.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.controller import ListenEvent, StorageController
from foreshore.update import Timestamp


class _Waiter(NamedTuple):
    beyond: Timestamp
    passed: asyncio.Future[None]
    patient: bool  # waits through failures that may pass


class Uppers:
    """The uppers of shards and indexes; all methods belong on the event loop."""

    def __init__(
        self, storage: StorageController, hurry_feeds: Callable[[Timestamp], None]
    ) -> None:
        self._storage = storage
        self._hurry_feeds = hurry_feeds  # up to an upper
        self._indexes: dict[GlobalId, Timestamp] = {}
        self._waiters: dict[GlobalId, list[_Waiter]] = {}

    def __getitem__(self, id: GlobalId) -> Timestamp:
        """Return the time before which the collection is readable."""
        upper = self._indexes.get(id)
        return self._storage.upper(id) if upper is None else upper

    def add(self, id: GlobalId, upper: Timestamp) -> None:
        """Start tracking the upper of an index."""
        self._indexes[id] = upper

    def hurry(self, beyond: Timestamp) -> None:
        """Let what follows shards hear at once that they have advanced to beyond a time."""
        self._storage.hurry(beyond + 1)
        self._hurry_feeds(beyond + 1)

    def drop(self, id: GlobalId, error: DatabaseError) -> None:
        """Forget a collection; its waiters fail with `error`."""
        self._indexes.pop(id, None)
        self.fail(id, error)

    def advance(self, id: GlobalId, upper: Timestamp) -> None:
        """Advance the upper of an index to at least `upper`."""
        if upper > self._indexes[id]:
            self._indexes[id] = upper
            for beyond, passed, _ in self._waiters.get(id, ()):
                if beyond < upper and not passed.done():
                    passed.set_result(None)

    def waited_for(self) -> list[GlobalId]:
        """Return the collections that have waiters."""
        return list(self._waiters)

    def fail(self, id: GlobalId, error: DatabaseError, *, even_patient: bool = True) -> None:
        """Fail the waiters for the collection with `error`; patient ones only if `even_patient`."""
        for each in self._waiters.get(id, ()):
            if (even_patient or not each.patient) and not each.passed.done():
                each.passed.set_exception(error)

    async def wait(self, id: GlobalId, beyond: Timestamp, *, patient: bool = True) -> None:
        """Wait until the upper is greater than `beyond`; raises the error of `fail` or `drop`.

        Raises UndefinedObject if the collection is a shard that is dropped.
        """
        if self[id] > beyond:
            return
        self.hurry(beyond)
        waiter = _Waiter(beyond, asyncio.get_running_loop().create_future(), patient)
        self._waiters.setdefault(id, []).append(waiter)
        try:
            if id in self._indexes:
                await waiter.passed
            else:
                await self._wait_for_shard(id, beyond, waiter.passed)
        finally:
            self._waiters[id].remove(waiter)
            if not self._waiters[id]:
                del self._waiters[id]

    async def _wait_for_shard(
        self, id: GlobalId, beyond: Timestamp, passed: asyncio.Future[None]
    ) -> None:
        def heard(event: ListenEvent) -> None:
            if event.upper > beyond and not passed.done():
                passed.set_result(None)

        def dropped() -> None:
            if not passed.done():
                passed.set_exception(UndefinedObject(f'collection "{id}" was dropped'))

        # a new shard may be readable only from a time beyond its upper
        start = max(self._storage.upper(id), self._storage.since(id))
        listen = self._storage.listen(id, start, heard, dropped)
        try:
            await passed
        finally:
            listen.cancel()
