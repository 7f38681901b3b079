"""Graceful resizing: the new replicas of a cluster hydrate while the old ones serve.

ALTER CLUSTER ... WITH (WAIT ...) starts the new replicas before it takes the catalog lock, and
waits until they are ready. Then its transaction replaces the old replicas by them. Until it commits
the catalog knows nothing of the new ones. So a cancelled or failed statement leaves the cluster as
it was, and so does a server that ends meanwhile: its replicas end with it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foreshore.errors import UndefinedObject

if TYPE_CHECKING:
    from foreshore.compute.controller.controller import ComputeController

logger = logging.getLogger(__name__)

READY_SECONDS = 0.05  # between two looks at whether the replicas are ready


@dataclass(frozen=True, slots=True)
class Pending:
    """New replicas of a cluster, by name with their ids, and their size and options."""

    cluster: str
    replicas: Mapping[str, str]
    size: str
    options: Mapping[str, str]


class PendingReplicas:
    """The new replicas that are not in the catalog yet, by the transactions that will add them.

    `exists` tells whether an object with an id is in the catalog.
    """

    def __init__(self, compute: "ComputeController", exists: Callable[[str], bool]) -> None:
        self._compute = compute
        self._exists = exists
        self.owned: dict[object, Pending] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def of(self, transaction: object) -> Pending | None:
        """Return the new replicas of a transaction."""
        return self.owned.get(transaction)

    def on(self, cluster: str) -> Pending | None:
        """Return the new replicas of a cluster."""
        return next((each for each in self.owned.values() if each.cluster == cluster), None)

    def pending(self) -> list[Pending]:
        """Return all new replicas."""
        return list(self.owned.values())

    def begin(
        self,
        owner: object,
        cluster: str,
        replicas: Mapping[str, str],
        size: str,
        options: dict[str, str],
    ) -> Pending:
        """Start new replicas of a cluster on behalf of a transaction."""
        pending = self.owned[owner] = Pending(cluster, replicas, size, options)
        for id in replicas.values():
            self._compute.create_replica(cluster, id, size=size, options=options)
        return pending

    async def wait(self, pending: Pending, timeout_ms: int, *, until_ready: bool) -> bool:
        """Wait for `timeout_ms`, or `until_ready`; return whether the replicas are ready.

        Raises UndefinedObject if the cluster is dropped meanwhile.
        """
        readiness = self._compute.readiness(pending.cluster, pending.replicas.values())
        ends = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            if not self._exists(pending.cluster):
                raise UndefinedObject(f'cluster "{pending.cluster}" was dropped')
            ready = readiness.reached()
            left = ends - asyncio.get_running_loop().time()
            if (ready and until_ready) or left <= 0:
                return ready
            await asyncio.sleep(min(READY_SECONDS, left))

    def end(self, owner: object) -> None:
        """End the new replicas of a transaction that are not in the catalog at its end."""
        pending = self.owned.pop(owner, None)
        if pending is None:
            return
        for id in pending.replicas.values():
            if not self._exists(id):
                task = asyncio.get_running_loop().create_task(self._drop(pending.cluster, id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _drop(self, cluster: str, replica: str) -> None:
        try:
            await self._compute.drop_replica(cluster, replica)
        except UndefinedObject:
            logger.info("a new replica ended with its cluster", extra={"replica": replica})
