"""Moves of dataflows from one cluster to another, without a pause.

The former cluster goes on until the new one has caught up. The replicas of both compute the same
updates, each of which counts once, so nothing is lost if either ends in between.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.controller.clusters import Clusters
from foreshore.compute.controller.feeds import Feeds
from foreshore.compute.controller.input_holds import compact_sinks
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.readiness import CaughtUp
from foreshore.compute.protocol import AllowCompaction
from foreshore.ids import GlobalId
from foreshore.storage.controller import StorageController
from foreshore.update import Timestamp

READY_SECONDS = 0.05  # between two looks at whether a replica is ready


class Moves:
    """Moves the dataflows of one controller; `spawn` starts a task of it."""

    def __init__(
        self,
        storage: StorageController,
        dataflows: Mapping[GlobalId, Dataflow],
        clusters: Clusters,
        feeds: Feeds,
        upper: Callable[[GlobalId], Timestamp],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._storage = storage
        self._dataflows = dataflows
        self._clusters = clusters
        self._feeds = feeds
        self._upper = upper
        self._spawn = spawn

    def begin(self, dataflow: Dataflow, owner: Cluster) -> None:
        """Let the cluster `owner` maintain a dataflow of sinks."""
        assert not dataflow.streams, f"{dataflow.description.id} has readers in its cluster"
        if owner is dataflow.cluster:
            return
        self.end(dataflow)  # if it had not arrived yet where it is
        compact_sinks(self._storage, self._dataflows)
        former = dataflow.cluster, dataflow.entry
        entry = owner.history.create(dataflow.entry.current())
        dataflow.cluster, dataflow.entry, dataflow.leaving = owner, entry, former
        if not dataflow.created.done():  # nothing has been sent yet
            self.end(dataflow)
            return
        for shard in dataflow.description.imports:
            self._feeds.add(shard, dataflow.description.id, owner)
        if entry.description.refresh is None:  # otherwise it begins at the next refresh
            owner.create(entry)
        self._clusters.apply_backpressure(owner)
        dataflow.tasks.append(self._spawn(self._end_when_ready(dataflow)))

    async def _end_when_ready(self, dataflow: Dataflow) -> None:
        leaving, caught_up = dataflow.leaving, CaughtUp(self._upper)
        exports = [export.id for export in dataflow.description.exports]
        while dataflow.leaving is leaving:
            if any(caught_up.has(each, exports) for each in dataflow.cluster.replicas.values()):
                self.end(dataflow)
                return
            await asyncio.sleep(READY_SECONDS)

    def end(self, dataflow: Dataflow) -> None:
        """End the part that a former cluster still has in a dataflow, if there is one."""
        if dataflow.leaving is None:
            return
        (cluster, _), dataflow.leaving = dataflow.leaving, None
        id = dataflow.description.id
        for export in dataflow.description.exports:
            cluster.send(AllowCompaction(export.id, None))
            cluster.history.drop(export.id)
            for replica in cluster.replicas.values():
                replica.uppers.pop(export.id, None)
                replica.begun.discard(export.id)
        cluster.drop(id)
        self._feeds.remove(dataflow.description.imports, id, cluster)
        self._clusters.apply_backpressure(cluster)
