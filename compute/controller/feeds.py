"""Feeds: listens on imported shards, one for all dataflows and clusters that import the shard."""

from collections.abc import Iterable
from dataclasses import dataclass

from foreshore.compute.controller.cluster import Cluster
from foreshore.ids import GlobalId
from foreshore.storage.controller import Listen, ListenEvent, StorageController


@dataclass(slots=True)
class _Feed:
    listen: Listen | None
    clusters: dict[tuple[GlobalId, str], Cluster]  # by dataflow and the cluster's id
    targets: tuple[Cluster, ...] = ()  # each of them once

    def find_targets(self) -> None:
        """Note the clusters after they have changed."""
        self.targets = tuple({each.id: each for each in self.clusters.values()}.values())


class Feeds:
    """The listens of one controller."""

    def __init__(self, storage: StorageController) -> None:
        self._storage = storage
        self._feeds: dict[GlobalId, _Feed] = {}

    def __len__(self) -> int:
        """Return the number of shards that are listened to."""
        return len(self._feeds)

    def add(self, shard: GlobalId, dataflow: GlobalId, cluster: Cluster) -> None:
        """Send the updates of a shard to the cluster of a dataflow that imports it."""
        feed = self._feeds.get(shard)
        if feed is None:
            feed = self._feeds[shard] = _Feed(None, {})
            # A new shard may be readable only from a time beyond its upper.
            start = max(self._storage.upper(shard), self._storage.since(shard))
            feed.listen = self._storage.listen(shard, start, self._deliver)
        feed.clusters[dataflow, cluster.id] = cluster
        feed.find_targets()

    def remove(self, shards: Iterable[GlobalId], dataflow: GlobalId, cluster: Cluster) -> None:
        """Stop sending the updates of shards to a cluster on behalf of a dataflow."""
        for shard in shards:
            feed = self._feeds.get(shard)
            if feed is not None:
                feed.clusters.pop((dataflow, cluster.id), None)
                feed.find_targets()
                if not feed.clusters:
                    if feed.listen is not None:
                        feed.listen.cancel()
                    del self._feeds[shard]

    def _deliver(self, event: ListenEvent) -> None:
        feed = self._feeds.get(event.id)
        if feed is not None:
            for cluster in feed.targets:
                cluster.feed(event)
