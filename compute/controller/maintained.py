"""What a controller maintains: its dataflows, what they stand on, and why one does not go on.

    writer stopped      a sink cannot be written any more: its shard stays as it is, or is
                        another environment's to write
    shard damaged       a replica that starts a dataflow reads its inputs, and the shard of a sink
                        to correct it; where that cannot be read no replica can begin. One that has
                        begun before goes on: it has all that it needs.

Both last as long as the environment. Whoever would wait for what does not go on hears of it
instead, and so does whoever waits already.

    dataflow failing    all replicas have failed to take the same step again and again

That may pass, as they go on trying: who reads hears of it, who maintains something else waits.
So does who reads what is made of a materialized view that has an error at the time that is read.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.controller.history import Entry
from foreshore.compute.controller.outputs import SinkWriter, Subscription
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import CollectionCorrupted, DatabaseError, DataError, InternalError
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability, WriteCapability
from foreshore.storage.corruption import Corruptions
from foreshore.update import Timestamp


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
    """The dataflows by what they export, which the controller keeps, and what is asked of them.

    What one that is `giving_way` exported stands for its export until another one exports it.
    """

    def __init__(
        self,
        exporters: Mapping[GlobalId, Dataflow],
        giving_way: Mapping[GlobalId, Dataflow],
        corruptions: Corruptions,
    ) -> None:
        self._exporters = exporters
        self._giving_way = giving_way
        self._corruptions = corruptions

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

    # --- why it does not go on

    def damage_of(self, dataflow: Dataflow) -> DatabaseError | None:
        """Return which damage keeps all replicas from beginning a dataflow; None: it goes on."""
        if not len(self._corruptions) or dataflow.is_at_work:
            return None
        return next(filter(None, map(self._corruptions.of, dataflow.reads)), None)

    def damage_below(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return which damage keeps from going on what the collections are, or are made of."""
        if not len(self._corruptions):
            return None
        found = (self.damage_of(dataflow) for _, dataflow in self.below(ids))
        return next(filter(None, found), None)

    def obstacle(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return why the collections will be known at no later time; None: nothing says so."""
        ids = list(ids)
        for writer, _ in self.sinks_below(ids):
            if writer.fenced is not None:
                return writer.fenced.with_traceback(None)
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

    def check_goes_on(self, ids: Iterable[GlobalId], *, patient: bool) -> None:
        """Raise why the collections will be known at no later time.

        To who is not `patient` also why they are not for now, though it is tried again and again.
        """
        ids = list(ids)
        if (error := self.obstacle(ids)) is not None:
            raise error
        if not patient and (error := self.failing(ids)) is not None:
            raise error

    def check_whole(self, ids: Iterable[GlobalId]) -> None:
        """Raise CollectionCorrupted if a shard in `ids` or one of their inputs is corrupt.

        The latter holds at all times: which errors a view has is known to who maintains it alone.
        """
        if not len(self._corruptions):
            return
        ids = list(ids)
        self._corruptions.check(*ids)
        if (corruption := self.damage_below(ids)) is not None:
            raise corruption

    # --- the errors of materialized views

    async def check_errors(
        self, ids: Iterable[GlobalId], first: Timestamp, last: Timestamp | None = None
    ) -> None:
        """Raise DataError if a materialized view, of which `ids` are made, has an error.

        That is asked of all times from `first` to `last`, by default of `first` alone.
        """
        last = first if last is None else last
        ids = list(ids)
        await self.errors_known(ids, last)
        self.refuse_errors(ids, first, last + 1)

    async def errors_known(self, ids: Iterable[GlobalId], last: Timestamp) -> None:
        """Wait until it is known up to `last` which errors there are in what `ids` are made of.

        A view that has just been created is not maintained before it is waited for, unless nobody
        maintains it. Why they will not be known, or not for now, is raised.
        """
        ids = list(ids)
        while (writer := self._unknown(ids, last)) is not None:
            self.check_whole([writer.id])
            self.check_goes_on([writer.id], patient=False)
            await writer.errors.known(last)

    def _unknown(self, ids: Iterable[GlobalId], last: Timestamp) -> SinkWriter | None:
        """Return a sink below `ids` whose errors up to `last` are to be waited for, if any."""
        for writer, dataflow in self.sinks_below(ids):
            if not writer.errors.is_known(last) and dataflow.cluster.replicas:
                return writer
        return None

    def refuse_errors(self, ids: Iterable[GlobalId], lower: Timestamp, upper: Timestamp) -> None:
        """Raise the first error that is known of in [lower, upper): see `first_error`."""
        found = self.first_error(ids, lower, upper)
        if found is not None:
            raise found[1]

    def first_error(
        self, ids: Iterable[GlobalId], lower: Timestamp, upper: Timestamp
    ) -> tuple[Timestamp, DatabaseError] | None:
        """Return the first time in [lower, upper) at which `ids` cannot be read, and why.

        That is the least error then of the materialized views of which they are made, or
        CollectionCorrupted, where it cannot be known.
        """
        try:
            found = [writer.errors.first(lower, upper) for writer, _ in self.sinks_below(ids)]
        except CollectionCorrupted as corruption:
            return lower, corruption
        first = min((each for each in found if each is not None), default=None)
        return None if first is None else (first[0], DataError.parse(first[1]))
