"""The controller's dataflows, their inputs, and the obstacles to their progress.

    writer stopped      a sink's shard cannot be written any more, or belongs to another
                        environment now
    shard corrupt       a replica that starts a dataflow reads its inputs, and a sink's shard in
                        order to correct it. If these are corrupt no replica can start it. A replica
                        that has started continues, because it has all that it needs.

Both last as long as the environment. Waiting for such a collection fails.

    dataflow failing    all replicas have repeatedly failed to take the same step

This may pass, because they retry. Readers fail; dependent dataflows wait. Readers of anything
derived from a materialized view also fail if the view has an error at the time that they read.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.controller.error_log import LOST
from foreshore.compute.controller.history import Entry
from foreshore.compute.controller.index_streams import Stream
from foreshore.compute.controller.outputs import SinkWriter, Subscription
from foreshore.compute.controller.read_errors import ReadErrors
from foreshore.compute.controller.unchanged import UnchangedOutputs
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.protocol import DataflowDescription, DataflowStatus
from foreshore.errors import CollectionCorrupted, DatabaseError, DataError, InternalError
from foreshore.expr.temporal import has_temporal_filter
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability, WriteCapability
from foreshore.storage.corruption import Corruptions
from foreshore.update import Timestamp


@dataclass(slots=True)
class Dataflow:
    """A dataflow of the controller.

    While it moves to another cluster, the one that it is `leaving` maintains it too.
    """

    description: DataflowDescription
    cluster: Cluster
    entry: Entry
    holds: dict[GlobalId, ReadCapability]
    writes: dict[GlobalId, WriteCapability]  # on its sinks' shards
    created: asyncio.Future[None]  # set when the cluster's replicas have been sent it
    # Tasks that start it and write its sinks.
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    writers: dict[GlobalId, SinkWriter] = field(default_factory=dict)
    subscriptions: dict[GlobalId, Subscription] = field(default_factory=dict)
    # Subscriptions to its indexes, and mirrors of them.
    index_subscriptions: dict[GlobalId, Stream] = field(default_factory=dict)

    leaving: tuple[Cluster, Entry] | None = None
    is_timed: bool = field(init=False)  # its output changes with the time alone

    def __post_init__(self) -> None:
        self.is_timed = has_temporal_filter(self.description.relation)

    @property
    def clusters(self) -> Sequence[Cluster]:
        """Return the clusters that maintain it."""
        return [self.cluster] if self.leaving is None else [self.cluster, self.leaving[0]]

    @property
    def replicas(self) -> list[Replica]:
        """Return the replicas that maintain it."""
        return [each for cluster in self.clusters for each in cluster.replicas.values()]

    @property
    def entries(self) -> Sequence[Entry]:
        """Return its entries in the histories of `clusters`."""
        return [self.entry] if self.leaving is None else [self.entry, self.leaving[1]]

    @property
    def since(self) -> Timestamp:
        """Return the time from which its inputs have to be readable."""
        return min(entry.since for entry in self.entries)

    @property
    def stalled(self) -> DataflowStatus | None:
        """Its status, if it has exceeded a limit of memory on all replicas; else None."""
        found = [each.failing.get(self.description.id) for each in self.replicas]
        first = found[0] if found else None
        is_stalled = all(each is not None and each.state == "stalled" for each in found)
        return first if is_stalled else None

    def stream(self, id: GlobalId) -> Stream | None:
        """Return the subscription `id`; None: it is not one."""
        return self.subscriptions.get(id) or self.index_subscriptions.get(id)

    @property
    def streams(self) -> list[Stream]:
        """Return the subscriptions to the dataflow."""
        return [*self.subscriptions.values(), *self.index_subscriptions.values()]

    @property
    def is_running(self) -> bool:
        """Whether a replica has started it, that is, has reported a frontier."""
        return any(
            export.id in replica.uppers
            for export in self.description.exports
            for replica in self.replicas
        )

    @property
    def reads(self) -> list[GlobalId]:
        """Return the shards that a replica reads to start it."""
        corrected = [id for id, writer in self.writers.items() if not writer.corrected]
        return [*self.description.imports, *corrected]


class Maintained:
    """The dataflows by export, and questions about collections derived from them.

    A dataflow that is `being_replaced` still represents its exports until another one exports them.
    """

    def __init__(
        self,
        exporters: Mapping[GlobalId, Dataflow],
        being_replaced: Mapping[GlobalId, Dataflow],
        corruptions: Corruptions,
        uppers: Uppers,
        unchanged: UnchangedOutputs,
    ) -> None:
        self._exporters = exporters
        self._being_replaced = being_replaced
        self._corruptions = corruptions
        self._uppers = uppers
        self._unchanged = unchanged
        self.read_errors = ReadErrors(self.dataflow_of)

    def dataflow_of(self, id: GlobalId) -> Dataflow | None:
        """Return the dataflow that exports a collection."""
        return self._exporters.get(id) or self._being_replaced.get(id)

    def below(self, ids: Iterable[GlobalId]) -> Iterator[tuple[GlobalId, Dataflow]]:
        """Yield the exports that the collections are or are derived from, with their dataflows."""
        seen: set[GlobalId] = set()
        stack = list(ids)
        while stack:
            id = stack.pop()
            dataflow = self.dataflow_of(id)
            if id in seen or dataflow is None:
                continue
            seen.add(id)
            yield id, dataflow
            stack.extend(dataflow.description.imports)

    def sinks_below(self, ids: Iterable[GlobalId]) -> list[tuple[SinkWriter, Dataflow]]:
        """Return the sinks that the collections are or are derived from, with their dataflows."""
        return [
            (dataflow.writers[id], dataflow)
            for id, dataflow in self.below(ids)
            if id in dataflow.writers
        ]

    # --- obstacles

    def corruption_of(self, dataflow: Dataflow) -> DatabaseError | None:
        """Return the corruption that prevents all replicas from starting a dataflow, or None."""
        if not self._corruptions.messages or dataflow.is_running:
            return None
        return next(filter(None, map(self._corruptions.of, dataflow.reads)), None)

    def corruption_below(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return the corruption that stops the collections or their inputs, or None."""
        if not self._corruptions.messages:
            return None
        found = (self.corruption_of(dataflow) for _, dataflow in self.below(ids))
        return next(filter(None, found), None)

    def obstacle(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return the error why the collections will not advance, None if no reason is known."""
        ids = list(ids)
        for writer, _ in self.sinks_below(ids):
            if writer.fenced is not None:
                return writer.fenced.with_traceback(None)
            if writer.stopped:
                return InternalError(
                    f"{self._corruptions.name(writer.id)} is not kept up to date any more",
                    detail="The server's log has the details.",
                )
        return self.corruption_below(ids)

    def failing(self, ids: Iterable[GlobalId]) -> DatabaseError | None:
        """Return the error why the collections do not advance now, None if no reason is known."""
        for id, dataflow in self.below(ids):
            found = [each.failing.get(dataflow.description.id) for each in dataflow.replicas]
            first = found[0] if found and None not in found else None
            if first is not None:
                return DatabaseError(
                    f"{self._corruptions.name(id)} cannot be kept up to date: {first.failure}",
                    sqlstate=first.sqlstate or InternalError.sqlstate,
                    detail="It is tried again." if first.state != "stalled" else None,
                    hint=first.hint,
                )
        return None

    def check_advances(self, ids: Iterable[GlobalId], *, patient: bool) -> None:
        """Raise the error why the collections will not advance.

        If not `patient`, also raise the error why they do not advance now.
        """
        ids = list(ids)
        if (error := self.obstacle(ids)) is not None:
            raise error
        if not patient and (error := self.failing(ids)) is not None:
            raise error

    def check_not_corrupt(self, ids: Iterable[GlobalId]) -> None:
        """Raise CollectionCorrupted if a shard in `ids` or one of their inputs is corrupt.

        Corrupt inputs matter at all times, because only a running dataflow knows a view's errors.
        """
        if not self._corruptions.messages:
            return
        ids = list(ids)
        self._corruptions.check(*ids)
        if (corruption := self.corruption_below(ids)) is not None:
            raise corruption

    def can_advance(
        self, id: GlobalId, time: Timestamp, patience: float, upper: Callable[[GlobalId], Timestamp]
    ) -> bool:
        """Whether replicas can bring an export, and its inputs, beyond `time`.

        They must be running without repeated failures, or be away for less than `patience` seconds.
        """
        now = asyncio.get_running_loop().time()
        return all(
            any(
                dataflow.description.id not in replica.failing
                if replica.is_running
                else now < replica.away_since + patience
                for replica in dataflow.replicas
            )
            for each, dataflow in self.below([id])
            if upper(each) <= time
        )

    # --- the errors of materialized views

    async def check_errors(
        self, ids: Iterable[GlobalId], first: Timestamp, last: Timestamp | None = None
    ) -> None:
        """Raise DataError if a materialized view under `ids` has an error.

        All times from `first` to `last` are checked, by default only `first`.
        """
        ids = list(ids)
        if not self.sinks_below(ids):
            return
        last = first if last is None else last
        await self.errors_known(ids, last)
        self.check_no_errors(ids, first, last + 1)

    async def errors_known(self, ids: Iterable[GlobalId], last: Timestamp) -> None:
        """Wait until the errors of the views under `ids` are known up to `last`.

        A new view that is not maintained yet is waited for, unless nothing maintains it. Raises the
        error why they will not be known, or not now.
        """
        ids = list(ids)
        while (writer := self._unknown(ids, last)) is not None:
            self.check_not_corrupt([writer.id])
            self.check_advances([writer.id], patient=False)
            self._unchanged.advance(writer.id)
            if not writer.errors.is_known(last):
                self._uppers.hurry(last)
                await writer.errors.known(last)

    def _unknown(self, ids: Iterable[GlobalId], last: Timestamp) -> SinkWriter | None:
        """Return a sink under `ids` whose errors up to `last` are to be waited for, if any."""
        for writer, dataflow in self.sinks_below(ids):
            if not writer.errors.is_known(last) and dataflow.replicas:
                return writer
        return None

    def check_no_errors(self, ids: Iterable[GlobalId], lower: Timestamp, upper: Timestamp) -> None:
        """Raise the first known error in [lower, upper); see `first_error`."""
        found = self.first_error(ids, lower, upper)
        if found is not None:
            raise found[1]

    def first_error(
        self, ids: Iterable[GlobalId], lower: Timestamp, upper: Timestamp
    ) -> tuple[Timestamp, DatabaseError] | None:
        """Return the first time in [lower, upper) at which `ids` cannot be read, and the error.

        The error is the least one that `read_errors` has, or CollectionCorrupted if it cannot be
        known.
        """
        ids = list(ids)
        if not self.sinks_below(ids):
            return None
        try:
            found = self.read_errors.first(ids, lower, upper)
        except CollectionCorrupted as corruption:
            return lower, corruption
        if found is None:
            return None
        time, (text, view) = found
        return time, DataError.parse(text, None if text == LOST else view)
