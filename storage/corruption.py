"""Corruption: shards with a file that is missing or not as it was written.

Corruption makes only its own shard unavailable. It is found at the start, where the files named by
states are checked for existence and length, and before a batch is first read. From then until the
next start the shard's batches are not read or merged and none of its files is deleted, so that
restoring the file repairs the shard. Updates in the log are intact and still become batches,
because the log has to be freed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from foreshore.errors import CollectionCorrupted, DataCorrupted
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)

CORRUPT = Gauge("foreshore_damaged_collections", "Collections that cannot be read.")


class Corruptions:
    """The corrupt shards of one environment. Any thread may add to them.

    `name` returns the name of a collection for messages; `messages` are those of corrupt shards.
    """

    def __init__(self) -> None:
        self.name: Callable[[GlobalId], str] = lambda id: f'shard "{id}"'
        self.messages: dict[GlobalId, str] = {}
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def of(self, id: GlobalId) -> CollectionCorrupted | None:
        """Return the error for reading the shard, None if it is not known to be corrupt."""
        what = self.messages.get(id)
        return None if what is None else CollectionCorrupted(self.name(id), what)

    def check(self, *ids: GlobalId) -> None:
        """Raise CollectionCorrupted for the first of the shards that is corrupt."""
        for id in ids:
            if id in self.messages:
                raise CollectionCorrupted(self.name(id), self.messages[id])

    def found(self, id: GlobalId, error: DataCorrupted) -> None:
        """Record that the shard is corrupt; the first error is kept."""
        if id in self.messages:
            return
        self.messages[id] = error.message
        CORRUPT.set(len(self.messages))
        logger.error("a collection is damaged: %s", error, extra={"shard": id})
        for loop, callback in self._listeners:
            loop.call_soon_threadsafe(callback)

    def keep(self, ids: Iterable[GlobalId]) -> None:
        """Forget shards that are not among `ids` because they were dropped."""
        if not self.messages:
            return
        for id in self.messages.keys() - set(ids):
            del self.messages[id]
        CORRUPT.set(len(self.messages))

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the running event loop soon after more corruption is found."""
        self._listeners.append((asyncio.get_running_loop(), callback))

    @contextmanager
    def recording(self, id: GlobalId) -> Iterator[None]:
        """Record a DataCorrupted of the block as corruption of the shard, and re-raise it."""
        try:
            yield
        except CollectionCorrupted:
            raise  # already recorded where it was found, perhaps for another shard
        except DataCorrupted as error:
            self.found(id, error)
            raise CollectionCorrupted(self.name(id), error.message) from error
