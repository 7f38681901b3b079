"""Graceful resizing: the new replicas of a cluster hydrate while the old ones serve.

ALTER CLUSTER ... WITH (WAIT ...) starts the new replicas before it takes the catalog lock, and
waits until they are ready. Then its transaction replaces the old replicas by them. Until it commits
the catalog knows nothing of the new ones. So a cancelled or failed statement leaves the cluster as
it was, and so does a server that ends meanwhile: its replicas end with it.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foreshore.errors import UndefinedObject

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator
    from foreshore.adapter.transaction.transaction import Transaction
    from foreshore.sql.plan import ClusterWait

logger = logging.getLogger(__name__)

READY_SECONDS = 0.05  # between two looks at whether the replicas are ready


@dataclass(frozen=True, slots=True)
class Pending:
    """New replicas of a cluster, by name with their ids, and their size and options."""

    cluster: str
    replicas: Mapping[str, str]
    size: str
    options: Mapping[str, str]


class Resizes:
    """The new replicas that are not in the catalog yet, by the transactions that will add them."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self.owned: dict[Transaction, Pending] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def of(self, transaction: "Transaction") -> Pending | None:
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
        owner: "Transaction",
        cluster: str,
        names: list[str],
        size: str,
        options: dict[str, str],
    ) -> Pending:
        """Start new replicas of a cluster on behalf of a transaction."""
        coordinator = self._coordinator
        numbers = coordinator.catalog.transaction()
        replicas = {name: f"r{numbers.allot('r')}" for name in names}
        pending = self.owned[owner] = Pending(cluster, replicas, size, options)
        for id in replicas.values():
            coordinator.compute.create_replica(cluster, id, size=size, options=options)
        return pending

    async def wait(self, pending: Pending, wait: "ClusterWait") -> bool:
        """Wait until the replicas are ready, or for the whole time; return whether they are.

        Raises UndefinedObject if the cluster is dropped meanwhile.
        """
        compute = self._coordinator.compute
        readiness = compute.readiness(pending.cluster, pending.replicas.values())
        ends = asyncio.get_running_loop().time() + wait.timeout_ms / 1000
        while True:
            if pending.cluster not in self._coordinator.state.objects:
                raise UndefinedObject(f'cluster "{pending.cluster}" was dropped')
            ready = readiness.reached()
            left = ends - asyncio.get_running_loop().time()
            if (ready and wait.until_ready) or left <= 0:
                return ready
            await asyncio.sleep(min(READY_SECONDS, left))

    def end(self, owner: "Transaction") -> None:
        """End the new replicas of a transaction that are not in the catalog at its end."""
        pending = self.owned.pop(owner, None)
        if pending is None:
            return
        for id in pending.replicas.values():
            if id not in self._coordinator.state.objects:
                task = asyncio.get_running_loop().create_task(self._drop(pending.cluster, id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _drop(self, cluster: str, replica: str) -> None:
        try:
            await self._coordinator.compute.drop_replica(cluster, replica)
        except UndefinedObject:
            logger.info("a new replica ended with its cluster", extra={"replica": replica})
