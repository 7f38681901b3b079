"""Uppers: how far each collection has come, and who waits for one to come further.

The upper of a shard is storage's; that of an index is what the farthest replica has said.
"""

import asyncio
from typing import NamedTuple

from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.controller import ListenEvent, StorageController
from foreshore.update import Timestamp


class _Waiter(NamedTuple):
    beyond: Timestamp
    passed: asyncio.Future[None]
    patient: bool  # waits on through what may pass


class Uppers:
    """The uppers of shards and of indexes; all methods belong on the event loop."""

    def __init__(self, storage: StorageController) -> None:
        self._storage = storage
        self._indexes: dict[GlobalId, Timestamp] = {}
        self._waiters: dict[GlobalId, list[_Waiter]] = {}

    def __getitem__(self, id: GlobalId) -> Timestamp:
        """Return the time before which the collection can be read."""
        upper = self._indexes.get(id)
        return self._storage.upper(id) if upper is None else upper

    def add(self, id: GlobalId, upper: Timestamp) -> None:
        """Begin to keep the upper of an index."""
        self._indexes[id] = upper

    def drop(self, id: GlobalId, error: DatabaseError) -> None:
        """Forget a collection; who waits for it hears `error`."""
        self._indexes.pop(id, None)
        self.fail(id, error)

    def advance(self, id: GlobalId, upper: Timestamp) -> None:
        """Hear that an index has come as far as `upper`, or farther before."""
        if upper > self._indexes[id]:
            self._indexes[id] = upper
            for beyond, passed, _ in self._waiters.get(id, ()):
                if beyond < upper and not passed.done():
                    passed.set_result(None)

    def waited_for(self) -> list[GlobalId]:
        """Return the collections that somebody waits for."""
        return list(self._waiters)

    def fail(self, id: GlobalId, error: DatabaseError, *, even_patient: bool = True) -> None:
        """Let those who wait for the collection hear `error`; the patient as well, or not."""
        for each in self._waiters.get(id, ()):
            if (even_patient or not each.patient) and not each.passed.done():
                each.passed.set_exception(error)

    async def wait(self, id: GlobalId, beyond: Timestamp, *, patient: bool = True) -> None:
        """Wait until the upper is greater than `beyond`; raises what `fail` and `drop` say.

        Raises UndefinedObject if the collection is a shard that is dropped.
        """
        if self[id] > beyond:
            return
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

        # a new shard may be readable only from a time that its upper has not reached
        start = max(self._storage.upper(id), self._storage.since(id))
        listen = self._storage.listen(id, start, heard, dropped)
        try:
            await passed
        finally:
            listen.cancel()
