"""The clusters of a controller and their replicas: created, connected, ended.

Each replica has an instance of its own, so replicas of several sizes can serve one cluster: while a
cluster is resized, the new ones hydrate beside the old ones.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from foreshore.compute.checkpoint.manifest import prefix_of
from foreshore.compute.controller.cluster import Cluster, Prepared, Replica, engine_of
from foreshore.compute.controller.input_holds import compact_sinks
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.peeks import Peeks
from foreshore.compute.controller.responses import Responses
from foreshore.compute.protocol import (
    ArrangementStatus,
    CheckpointStatus,
    CreateInstance,
    DataflowDescription,
    DataflowStatus,
    OperatorStatus,
    Response,
    StageStatus,
)
from foreshore.errors import DuplicateObject, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.processes.launch import AddressLauncher, Launcher
from foreshore.processes.link import Link
from foreshore.processes.transport import Connection
from foreshore.storage.controller import StorageController
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


class Clusters:
    """The clusters by id. `options` apply to every engine, unless a cluster overrides them.

    `snapshots` returns what a dataflow hydrates from. `fail_waiters` fails the readers of
    collections that corruption stops. `saved` has the dataflows of checkpoints that earlier
    environments have left, by the prefix of their replica. `on_connected` is called after a replica
    was sent the history.
    """

    def __init__(
        self,
        storage: StorageController,
        dataflows: Mapping[GlobalId, Dataflow],
        peeks: Peeks,
        responses: Responses,
        launcher: Launcher,
        options: Mapping[str, str],
        database: str,
        snapshots: Callable[[DataflowDescription], tuple[Prepared, Prepared]],
        fail_waiters: Callable[[], None],
        saved: Mapping[str, tuple[CheckpointStatus, ...]],
        on_connected: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._dataflows = dataflows
        self._peeks = peeks
        self._responses = responses
        self._launcher = launcher
        self.options = dict(options)
        self._database = database
        self._snapshots = snapshots
        self._fail_waiters = fail_waiters
        self._saved = dict(saved)
        self._on_connected = on_connected
        self._clusters: dict[str, Cluster] = {}

    def __iter__(self) -> Iterator[Cluster]:
        """Iterate over the clusters of this moment."""
        return iter(list(self._clusters.values()))

    def __getitem__(self, id: str) -> Cluster:
        """Return a cluster; raises UndefinedObject."""
        cluster = self._clusters.get(id)
        if cluster is None:
            raise UndefinedObject(f'unknown cluster "{id}"')
        return cluster

    def check_alive(self, cluster: Cluster) -> None:
        """Raise UndefinedObject if the cluster was dropped during an await."""
        if self._clusters.get(cluster.id) is not cluster:
            raise UndefinedObject(f'cluster "{cluster.id}" was dropped')

    def create(self, id: str, size: str, options: Mapping[str, str] | None) -> None:
        """Create a cluster without replicas; raises InvalidParameterValue for an unknown size."""
        if id in self._clusters:
            raise DuplicateObject(f'cluster "{id}" already exists')
        self._clusters[id] = Cluster(id, self._instance(size, options or {}), self._snapshots)

    def _instance(self, size: str, options: Mapping[str, str]) -> CreateInstance:
        engine, implied = engine_of(size)
        return CreateInstance(engine, {**self.options, **implied, **options}, self._database)

    def remove(self, id: str) -> Cluster:
        """Remove a cluster, so that nothing starts in it while its replicas end; return it."""
        cluster = self[id]
        del self._clusters[id]
        return cluster

    # --- replicas

    def create_replica(
        self,
        cluster: str,
        name: str,
        address: str | None,
        size: str | None,
        options: Mapping[str, str] | None,
    ) -> None:
        """Create a replica: a child process, or the one that listens at `address` (HOST:PORT)."""
        owner = self[cluster]
        if name in owner.replicas:
            raise DuplicateObject(f'cluster replica "{cluster}.{name}" already exists')
        instance = owner.instance if size is None else self._instance(size, options or {})
        link: Link[Response] = Link(
            f"{cluster}.{name}",
            self._launcher if address is None else AddressLauncher(address),
            Response,
            lambda connection: self._connected(owner, replica, connection),
            lambda message, tables: self._responses.deliver(replica, message, tables),
            lambda: self._lost(owner, replica),
        )
        now = asyncio.get_running_loop().time()
        replica = Replica(name, link, instance, away_since=now)
        saved = self._saved.pop(prefix_of(cluster, name), ())
        replica.checkpoints = {each.id: each for each in saved}
        owner.replicas[name] = replica
        replica.task = asyncio.get_running_loop().create_task(link.run())

    async def end_replica(self, owner: Cluster, name: str) -> None:
        """End a replica; raises UndefinedObject if the cluster does not have it."""
        replica = owner.replicas.pop(name, None)
        if replica is None:
            raise UndefinedObject(f'cluster replica "{owner.id}.{name}" does not exist')
        assert replica.task is not None
        replica.task.cancel()
        await asyncio.gather(replica.task, return_exceptions=True)
        owner.lost(replica)
        self._peeks.dropped(owner)
        self._responses.fail_readers()  # the remaining ones may all fail
        if not owner.replicas:  # no replica will report further errors
            for dataflow in self._dataflows.values():
                if dataflow.cluster is owner:
                    for writer in dataflow.writers.values():
                        writer.errors.wake_waiters()

    def _connected(
        self, cluster: Cluster, replica: Replica, connection: Connection[Response]
    ) -> None:
        logger.info("replica connected", extra={"replica": replica.link.name})
        compact_sinks(self._storage, self._dataflows)
        cluster.connected(replica, connection)
        self._on_connected()
        self.apply_backpressure(cluster)
        if self._storage.corruptions.messages:
            self._fail_waiters()

    def _lost(self, cluster: Cluster, replica: Replica) -> None:
        cluster.lost(replica)
        replica.away_since = asyncio.get_running_loop().time()
        replica.suspected.clear()
        replica.failing.clear()
        self._peeks.lost(cluster, replica)

    def apply_backpressure(self, cluster: Cluster) -> None:
        """Read from the cluster's replicas only if none of its sinks is behind.

        Appends wait for compaction, never for a replica, so sinks catch up on their own.
        """
        behind = any(
            writer.behind
            for dataflow in self._dataflows.values()
            if cluster in dataflow.clusters
            for writer in dataflow.writers.values()
        )
        for connection in cluster.connections:
            connection.listen(on=not behind)

    def saved_since(self, cluster: Cluster, id: GlobalId, as_of: Timestamp) -> Timestamp:
        """Return the time from which on a replica still to be created reads a dataflow's inputs.

        That is `as_of`, or earlier if it can resume from a checkpoint.
        """
        prefix = prefix_of(cluster.id)
        return min(
            (
                saved.upper - 1
                for replica, found in self._saved.items()
                for saved in found
                if saved.id == id and saved.upper <= as_of and replica.startswith(prefix)
            ),
            default=as_of,
        )

    # --- about them

    def status(self) -> list[dict[str, Any]]:
        """Return the status of each replica, for builtin relations."""
        return [row for cluster in self for row in cluster.status()]

    def arrangements(self) -> Iterator[tuple[str, ArrangementStatus]]:
        """Yield the arrangements of each replica, a few seconds old, for builtin relations."""
        for cluster in self:
            yield from cluster.arrangements()

    def dataflows(self) -> Iterator[tuple[str, DataflowStatus]]:
        """Yield what each replica reports about its dataflows."""
        for cluster in self:
            for replica in cluster.replicas.values():
                for each in replica.status.dataflows if replica.status is not None else ():
                    yield replica.name, each

    def checkpoints(self) -> Iterator[tuple[str, CheckpointStatus]]:
        """Yield the dataflows of each replica's newest checkpoint, for builtin relations."""
        for cluster in self:
            for replica in cluster.replicas.values():
                for each in replica.checkpoints.values():
                    yield replica.name, each

    def stages(self) -> Iterator[tuple[str, StageStatus]]:
        """Yield what each replica's Spark works on, for builtin relations."""
        for cluster in self:
            for replica in cluster.replicas.values():
                for each in replica.stages:
                    yield replica.name, each

    def operators(self) -> Iterator[tuple[str, OperatorStatus]]:
        """Yield what the operators of each replica have done, for builtin relations."""
        for cluster in self:
            yield from cluster.operators()
