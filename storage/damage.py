"""Damage: shards of which a file is missing, or is not as it was written.

It takes out its own shard and nothing else. What is damaged is found at the start, where the files
that states name are looked for with their lengths, or when a batch is used, before anything of it
is read. From then on until the next start nothing is read of the shard's batches, nothing is merged
out of them and none of their files is deleted, so that the file's return makes all of it whole.
What was appended and is not in a batch yet becomes one as ever: the log has it whole, and has to
let go of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from foreshore.errors import CollectionDamaged, DataCorrupted
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)

DAMAGED = Gauge("storage_damaged_collections", "Collections that cannot be read.")


class Damages:
    """The damaged shards of one environment; may be told of more by any thread.

    `name` says what a collection is called in messages.
    """

    def __init__(self) -> None:
        self.name: Callable[[GlobalId], str] = lambda id: f'shard "{id}"'
        self._found: dict[GlobalId, str] = {}
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def __len__(self) -> int:
        """Return how many shards are damaged."""
        return len(self._found)

    def of(self, id: GlobalId) -> CollectionDamaged | None:
        """Return why the shard cannot be read; None: nothing is known to be amiss."""
        what = self._found.get(id)
        return None if what is None else CollectionDamaged(self.name(id), what)

    def check(self, *ids: GlobalId) -> None:
        """Raise CollectionDamaged for the first of the shards that is damaged."""
        for id in ids:
            if id in self._found:
                raise CollectionDamaged(self.name(id), self._found[id])

    def found(self, id: GlobalId, error: DataCorrupted) -> None:
        """Hear that the shard is damaged; what was found first counts."""
        if id in self._found:
            return
        self._found[id] = error.message
        DAMAGED.set(len(self._found))
        logger.error("a collection is damaged: %s", error, extra={"shard": id})
        for loop, heard in self._listeners:
            loop.call_soon_threadsafe(heard)

    def keep(self, ids: Iterable[GlobalId]) -> None:
        """Forget the damage of shards that are not among `ids`, as they are no more."""
        if not self._found:
            return
        for id in self._found.keys() - set(ids):
            del self._found[id]
        DAMAGED.set(len(self._found))

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` on the running event loop, soon after more damage has been found."""
        self._listeners.append((asyncio.get_running_loop(), heard))

    @contextmanager
    def noticing(self, id: GlobalId) -> Iterator[None]:
        """Let what is found to be corrupted in a block be damage of the shard, and raise it so."""
        try:
            yield
        except CollectionDamaged:
            raise  # it has been noticed where it was found, perhaps in another shard
        except DataCorrupted as error:
            self.found(id, error)
            raise CollectionDamaged(self.name(id), error.message) from error
