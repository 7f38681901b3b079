"""What a controller maintains: its dataflows, what they stand on, and why one does not go on.

    writer stopped      a sink cannot be written any more: its shard stays as it is
    shard damaged       a replica that starts a dataflow reads its inputs, and the shard of a sink
                        to correct it; where that cannot be read no replica can begin. One that has
                        begun before goes on: it has all that it needs.

Both last as long as the environment. Whoever would wait for what does not go on hears of it
instead, and so does whoever waits already.

    dataflow failing    all replicas have failed to take the same step again and again

That may pass, as they go on trying: who reads hears of it, who maintains something else waits.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from foreshore.compute.cluster import Cluster
from foreshore.compute.history import Entry
from foreshore.compute.outputs import SinkWriter, Subscription
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import DatabaseError, InternalError
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability, WriteCapability
from foreshore.storage.damage import Damages


@dataclass(slots=True)
class Dataflow:
    """A dataflow as the controller has it."""

    description: DataflowDescription
    cluster: Cluster
    entry: Entry
    holds: dict[GlobalId, ReadCapability]
    writes: dict[GlobalId, WriteCapability]  # of its sinks' shards
    created: asyncio.Future[None]  # the cluster's replicas have been told
    tasks: list[asyncio.Task[None]] = field(default_factory=list)  # start it, and write
    writers: dict[GlobalId, SinkWriter] = field(default_factory=dict)
    subscriptions: dict[GlobalId, Subscription] = field(default_factory=dict)
    followed: dict[GlobalId, Subscription] = field(default_factory=dict)  # of its indexes

    def stream(self, id: GlobalId) -> Subscription | None:
        """Return what a reader follows as `id`; None: nobody does, it is written or an index."""
        return self.subscriptions.get(id) or self.followed.get(id)

    @property
    def streams(self) -> list[Subscription]:
        """What readers follow of it."""
        return [*self.subscriptions.values(), *self.followed.values()]

    @property
    def is_at_work(self) -> bool:
        """Whether a replica has begun it: it has said how far it is."""
        replicas = self.cluster.replicas.values()
        return any(
            export.id in replica.uppers
            for export in self.description.exports
            for replica in replicas
        )

    @property
    def reads(self) -> list[GlobalId]:
        """The shards that a replica reads which begins it now."""
        corrected = [id for id, writer in self.writers.items() if not writer.corrected]
        return [*self.description.imports, *corrected]


class Maintained:
    """The dataflows by what they export; the controller's own view of them.

    What one that is `giving_way` exported stands for its export until another one exports it.
    """

    def __init__(
        self,
        exporters: Mapping[GlobalId, Dataflow],
        giving_way: Mapping[GlobalId, Dataflow],
        damages: Damages,
    ) -> None:
        self._exporters = exporters
        self._giving_way = giving_way
        self._damages = damages

    def below(self, ids: Iterable[GlobalId]) -> Iterator[tuple[GlobalId, Dataflow]]:
        """Yield what is exported of all that the collections are, or are made of, and by whom."""
        seen: set[GlobalId] = set()
        stack = list(ids)
        while stack:
            id = stack.pop()
            dataflow = self._exporters.get(id) or self._giving_way.get(id)
            if id in seen or dataflow is None:
                continue
            seen.add(id)
            yield id, dataflow
            stack.extend(dataflow.description.imports)

    def sinks_below(self, ids: Iterable[GlobalId]) -> list[tuple[SinkWriter, Dataflow]]:
        """Return the sinks that the collections are, or are made of, and whose they are."""
        return [
            (dataflow.writers[id], dataflow)
            for id, dataflow in self.below(ids)
            if id in dataflow.writers
        ]

    def damage_of(self, dataflow: Dataflow) -> DatabaseError | None:
        """Return which damage keeps all replicas from beginning a dataflow; None: it goes on."""
        if not len(self._damages) or dataflow.is_at_work:
            return None
        return next(filter(None, map(self._damages.of, dataflow.reads)), None)

    def damage_below(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return which damage keeps from going on what the collections are, or are made of."""
        if not len(self._damages):
            return None
        found = (self.damage_of(dataflow) for _, dataflow in self.below(ids))
        return next(filter(None, found), None)

    def obstacle(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return why the collections will be known at no later time; None: nothing says so."""
        ids = list(ids)
        for writer, _ in self.sinks_below(ids):
            if writer.stopped:
                return InternalError(
                    f'collection "{writer.id}" is not kept up to date any more',
                    detail="The server's log has the details.",
                )
        return self.damage_below(ids)

    def failing(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return why the collections are not known for now; None: nothing says so."""
        for id, dataflow in self.below(ids):
            replicas = dataflow.cluster.replicas.values()
            found = [each.failing.get(dataflow.description.id) for each in replicas]
            first = found[0] if found and None not in found else None
            if first is not None:
                return DatabaseError(
                    f'"{id}" cannot be kept up to date: {first.failure}',
                    sqlstate=first.sqlstate or InternalError.sqlstate,
                    detail="It is tried again.",
                )
        return None
