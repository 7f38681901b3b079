"""Readiness: whether new replicas can take over, and whether those of a new server have resumed.

A replica is ready when it has hydrated all dataflows of its cluster, and has then caught up with
what was known at that moment. So nobody who reads after the old replicas have gone waits longer
than before, however far an engine is always behind.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

RESUME_SECONDS = 30.0  # for replicas to resume, before other work of a start begins
LOOK_SECONDS = 0.05


class CaughtUp:
    """Tells whether replicas have caught up; `upper` is that of a collection."""

    def __init__(self, upper: Callable[[GlobalId], Timestamp]) -> None:
        self._upper = upper
        self._targets: dict[GlobalId, Timestamp] = {}  # at the first hydration

    def has(self, replica: Replica, exports: Collection[GlobalId]) -> bool:
        """Return whether the replica has hydrated the exports, and has caught up since."""
        if not replica.is_running or not set(exports) <= replica.uppers.keys():
            return False
        for id in exports:
            self._targets.setdefault(id, self._upper(id))
        return all(replica.uppers[id] >= self._targets[id] for id in exports)


class Readiness:
    """Follows the new replicas `names` of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        names: Collection[str],
        dataflows: Mapping[GlobalId, Dataflow],
        maintained: Maintained,
        upper: Callable[[GlobalId], Timestamp],
    ) -> None:
        self._cluster = cluster
        self._names = names
        self._dataflows = dataflows
        self._maintained = maintained
        self._caught_up = CaughtUp(upper)

    def follows(self, names: Collection[str]) -> bool:
        """Return whether the replicas are those called `names`."""
        return set(names) == set(self._names)

    def reached(self) -> bool:
        """Return whether all of the replicas are ready."""
        exports = set(self._exports())
        replicas = [self._cluster.replicas.get(name) for name in self._names]
        return all(each is not None and self._caught_up.has(each, exports) for each in replicas)

    def _exports(self) -> Iterator[GlobalId]:
        """Yield the exports that the cluster keeps up to date and that can advance."""
        for dataflow in self._dataflows.values():
            # The shard of a view with a schedule has what is read before the next refresh.
            if dataflow.cluster is self._cluster and dataflow.description.refresh is None:
                for export in dataflow.description.exports:
                    if self._maintained.obstacle([export.id]) is None:
                        yield export.id


async def resumed(clusters: Iterable[Cluster], dataflows: Mapping[GlobalId, Dataflow]) -> None:
    """Return when each replica has the dataflows of its checkpoint, or after RESUME_SECONDS."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + RESUME_SECONDS

    def is_missing(replica: Replica, id: GlobalId) -> bool:
        dataflow = dataflows.get(id)
        if dataflow is None or dataflow.description.refresh is not None or id in replica.failing:
            return False
        return not {export.id for export in dataflow.description.exports} <= replica.uppers.keys()

    def is_waiting() -> bool:
        return any(
            is_missing(replica, id)
            for cluster in clusters
            for replica in cluster.replicas.values()
            for id in replica.checkpoints
        )

    while loop.time() < deadline and is_waiting():  # noqa: ASYNC110 - several events change it
        await asyncio.sleep(LOOK_SECONDS)
