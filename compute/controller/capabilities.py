"""The capabilities of a dataflow: read holds on its imports, write capabilities on its sinks."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.controller.clusters import Clusters
from foreshore.compute.controller.error_log import ErrorStore
from foreshore.compute.controller.hydration import Capabilities
from foreshore.compute.protocol import DataflowDescription, SinkExport
from foreshore.errors import ObjectNotInPrerequisiteState, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.capability import InvalidCapability
from foreshore.storage.controller import ReadCapability, StorageController, WriteCapability
from foreshore.update import EMPTY

Held = tuple[dict[GlobalId, ReadCapability], dict[GlobalId, WriteCapability]]


class DataflowCapabilities:
    """Clones the environment's capabilities for dataflows, and releases them."""

    def __init__(
        self,
        storage: StorageController,
        capabilities: Capabilities,
        errors: ErrorStore,
        clusters: Clusters,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._storage = storage
        self._capabilities = capabilities
        self._errors = errors
        self._clusters = clusters
        self._spawn = spawn

    async def acquire(self, owner: Cluster, description: DataflowDescription) -> Held:
        """Return holds on the imports, from `as_of` or earlier, and capabilities on the sinks.

        Raises ObjectNotInPrerequisiteState if an import is not readable as of `as_of`, and
        UndefinedObject if the cluster is dropped meanwhile.
        """
        holds: dict[GlobalId, ReadCapability] = {}
        writes: dict[GlobalId, WriteCapability] = {}
        try:
            for id in description.imports:
                hold = await self._storage.clone_capability(self._capabilities(id)[0])
                holds[id] = hold
                needed = self._clusters.saved_since(owner, description.id, description.as_of)
                if description.refresh is not None:  # another one may be added before the first
                    needed = min(needed, max(hold.frontier, self._storage.upper(id) - 1))
                if hold.frontier < needed:
                    holds[id] = await self._storage.downgrade_capability(hold, needed)
                elif hold.frontier > description.as_of:
                    raise ObjectNotInPrerequisiteState(
                        f"{id} cannot be read as of {description.as_of}",
                        detail=f"It is readable from {hold.frontier}.",
                    )
            for export in description.exports:
                if isinstance(export, SinkExport):
                    await self._errors.settled(export.shard)
                    _, write = self._capabilities(export.shard)
                    # Otherwise the shard is complete and never written again.
                    if EMPTY not in (write.frontier, self._storage.upper(export.shard)):
                        write = await self._storage.clone_capability(write)
                    writes[export.shard] = write
            self._clusters.check_alive(owner)
        except BaseException:
            self.release([*holds.values(), *writes.values()])
            raise
        return holds, writes

    def release(self, held: Iterable[ReadCapability | WriteCapability]) -> None:
        """Release capabilities in the background."""
        for each in held:
            if each.frontier != EMPTY:
                self._spawn(self._release(each))

    async def _release(self, capability: ReadCapability | WriteCapability) -> None:
        # The shard may have been dropped with its capabilities, or be complete and have no writer.
        with suppress(UndefinedObject, InvalidCapability):
            await self._storage.drop_capability(capability)
