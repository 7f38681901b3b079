"""The compute controller: maintains views on clusters of replicas, and answers peeks.

    create_cluster, create_replica      processes that do the work, the same in all of a cluster
    create_dataflow, drop_dataflow      a plan maintained from a time on, into indexes or a shard
    peek, subscribe                     the rows at a time; the changes from a time on
    upper, wait_upper, allow_compaction the frontiers of exports

The controller owns no collection. Replicas compute updates. For a materialized view, the controller
appends them to its shard, using the first replica's result. The upper of an index is that of its
most advanced replica. Capabilities on inputs keep them readable from the earliest time that readers
of the outputs may need, so that a new replica can start there. A dataflow writes its shards with
capabilities of its own, which end with it, so it cannot interfere with its successor.

All methods belong on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, assert_never

import msgspec

from foreshore.compute.controller import index_streams
from foreshore.compute.controller.awaited import tell_awaited
from foreshore.compute.controller.background import run_background
from foreshore.compute.controller.bursts import Bursts
from foreshore.compute.controller.capabilities import DataflowCapabilities
from foreshore.compute.controller.cluster import Prepared
from foreshore.compute.controller.clusters import Clusters
from foreshore.compute.controller.error_log import ErrorStore, NothingKept
from foreshore.compute.controller.error_policy import FAILS, ErrorPolicy
from foreshore.compute.controller.feeds import Feeds
from foreshore.compute.controller.hydration import Capabilities, hydration_snapshots, take_snapshots
from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.compute.controller.mirrors import Mirrors
from foreshore.compute.controller.moves import Moves
from foreshore.compute.controller.outputs import Subscription
from foreshore.compute.controller.peeks import PeekRequest, Peeks
from foreshore.compute.controller.progress import Progress, progress_of
from foreshore.compute.controller.readiness import Readiness, resumed
from foreshore.compute.controller.refresh_costs import RefreshCost
from foreshore.compute.controller.refreshes import Refreshes, readable_imports
from foreshore.compute.controller.responses import Responses
from foreshore.compute.controller.sinks import Sinks
from foreshore.compute.controller.skipped_times import SkippedTimes
from foreshore.compute.controller.unchanged import UnchangedOutputs
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.protocol import (
    AllowCompaction,
    CheckpointStatus,
    DataflowDescription,
    IndexExport,
    LimitMemory,
    SinkExport,
    SubscribeExport,
    SubscribeIndex,
)
from foreshore.compute.result import Result
from foreshore.errors import (
    DatabaseError,
    DataCorrupted,
    DuplicateObject,
    UndefinedObject,
)
from foreshore.ids import GlobalId, global_id
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.launch import Launcher
from foreshore.refresh import Refresh
from foreshore.storage.controller import (
    ReadCapability,
    StorageController,
    WriteCapability,
)
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


class ComputeController:
    """The clusters of one environment.

    `capabilities` returns the environment's own capability on a shard; dataflows clone it, and
    snapshots are taken with it. `errors` stores the errors of views. `maintained` reports obstacles
    and errors of collections, `clusters` the status of replicas. `options` apply to every engine,
    unless the cluster overrides them. Replicas that outlive the environment keep their state for an
    environment of the same `database`.
    """

    def __init__(
        self,
        storage: StorageController,
        capabilities: Capabilities,
        *,
        errors: ErrorStore | None = None,
        options: Mapping[str, str] | None = None,
        database: str = "",
        launcher: Launcher | None = None,
        checkpoints: Mapping[str, tuple[CheckpointStatus, ...]] | None = None,
    ) -> None:
        self._storage = storage
        self._capabilities = capabilities
        self._dataflows: dict[GlobalId, Dataflow] = {}
        self._exporters: dict[GlobalId, Dataflow] = {}
        # Dataflows that another one with the same exports is about to replace.
        self._being_replaced: dict[GlobalId, Dataflow] = {}
        self._uppers = Uppers(storage, self._hurry_feeds)
        self._unchanged = UnchangedOutputs(self._exporters, self._uppers, storage)
        self.maintained = Maintained(
            self._exporters,
            self._being_replaced,
            storage.corruptions,
            self._uppers,
            self._unchanged,
        )
        self._feeds = Feeds(storage)
        self._peeks = Peeks()
        self.skipped = SkippedTimes(self._exporters)
        self._transient = count(1)
        self.mirrors = Mirrors(self._exporters, self._uppers, self._unchanged, self.transient_id)
        self._responses = Responses(
            self._dataflows,
            self._exporters,
            self.maintained,
            self._uppers,
            self._peeks,
            lambda dataflow: self._spawn(storage.examine(dataflow.reads)),
        )
        self._refreshes = Refreshes(storage, self._dataflows)
        self.clusters = Clusters(
            storage,
            self._dataflows,
            self._peeks,
            self._responses,
            launcher or ProcessLauncher(),
            options or {},
            database,
            self._hydration_snapshots,
            self._fail_waiters,
            checkpoints or {},
            self._refreshes.advance_all,
        )
        errors = errors or NothingKept()
        self._held = DataflowCapabilities(storage, capabilities, errors, self.clusters, self._spawn)
        self._sinks = Sinks(
            storage,
            errors,
            self._dataflows,
            self._being_replaced,
            self.maintained,
            self._fail_waiters,
        )
        self._moves = Moves(
            storage, self._dataflows, self.clusters, self._feeds, self.upper, self._spawn
        )
        self.bursts = Bursts(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._holding: asyncio.Task[None] | None = None
        self._when_still: list[Callable[[], None]] = []
        storage.corruptions.listen(self._fail_waiters)

    def _hurry_feeds(self, upper: Timestamp) -> None:
        for cluster in self.clusters:
            cluster.hurry(upper)

    async def close(self) -> None:
        """End all replicas. The read holds stay, so the next environment finds inputs readable."""
        for dataflow in list(self._dataflows.values()):
            self._forget(dataflow)
        for cluster in self.clusters:
            await self.drop_cluster(cluster.id)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- clusters

    def create_cluster(
        self, id: str, size: str = "embedded", options: Mapping[str, str] | None = None
    ) -> None:
        """Create a cluster without replicas; raises InvalidParameterValue for an unknown size."""
        self.clusters.create(id, size, options)

    async def drop_cluster(self, id: str) -> None:
        """Drop a cluster with its replicas and dataflows."""
        cluster = self.clusters.remove(id)
        for dataflow in list(self._dataflows.values()):
            if dataflow.cluster is cluster:
                self.drop_dataflow(dataflow.description.id)
            elif cluster in dataflow.clusters:
                self._moves.end(dataflow)
        self._peeks.fail(cluster, UndefinedObject(f'cluster "{id}" was dropped'))
        for name in list(cluster.replicas):
            await self.clusters.end_replica(cluster, name)

    def create_replica(
        self,
        cluster: str,
        name: str,
        address: str | None = None,
        *,
        size: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Create a replica: a child process, or the one that listens at `address` (HOST:PORT).

        Its `size` and `options` are its cluster's if no size is given.
        """
        self.clusters.create_replica(cluster, name, address, size, options)

    async def drop_replica(self, cluster: str, name: str) -> None:
        """End a replica."""
        await self.clusters.end_replica(self.clusters[cluster], name)

    def has_replica(self, cluster: str, name: str) -> bool:
        """Whether the cluster has that replica."""
        return name in self.clusters[cluster].replicas

    def readiness(self, cluster: str, names: Collection[str]) -> Readiness:
        """Return what tells whether new replicas of a cluster have caught up with the others."""
        owner = self.clusters[cluster]
        return Readiness(owner, names, self._dataflows, self.maintained, self.upper)

    async def resumed(self) -> None:
        """Wait, a while at most, until replicas go on from where their checkpoints end."""
        await resumed(self.clusters, self._dataflows)

    # --- dataflows

    async def create_dataflow(
        self,
        cluster: str,
        description: DataflowDescription,
        *,
        lost: Timestamp | None = None,
        error_policy: ErrorPolicy = FAILS,
    ) -> None:
        """Maintain a plan from `as_of` on; on return its inputs are held readable.

        If `lost` is given, the contents of its sinks are unknown from that time until `as_of`. The
        `error_policy` says whether errors in their data make reads of them fail.
        Hydration starts when all imports are past `as_of` and there is a replica. Raises
        UndefinedObject if there is no such cluster, or it is dropped meanwhile.
        """
        owner = self.clusters[cluster]
        if description.id in self._dataflows:
            raise DuplicateObject(f'dataflow "{description.id}" already exists')
        holds, writes = await self._held.acquire(owner, description)
        entry = owner.history.create(description)
        created: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        dataflow = Dataflow(description, owner, entry, holds, writes, created)
        self._dataflows[description.id] = dataflow
        for export in description.exports:
            self._exporters[export.id] = dataflow
            match export:
                case IndexExport():
                    self._uppers.add(export.id, description.as_of)
                case SinkExport(shard=shard):
                    backpressure = partial(self._apply_backpressure, dataflow)
                    writer = self._sinks.writer(
                        dataflow, shard, lost, backpressure, policy=error_policy
                    )
                    dataflow.writers[shard] = writer
                    dataflow.tasks.append(self._spawn(self._sinks.run(writer)))
                case SubscribeExport(id=id):
                    dataflow.subscriptions[id] = Subscription(id, description.as_of)
                case _:
                    assert_never(export)
        dataflow.tasks.append(self._spawn(self._start(dataflow)))
        if self._holding is None:
            self._holding = self._spawn(
                run_background(self._storage, self._dataflows, self.clusters, self.bursts)
            )

    def holds(self) -> Iterator[tuple[GlobalId, ReadCapability]]:
        """Yield the read holds of dataflows on their inputs, each with the dataflow's id."""
        for id, dataflow in self._dataflows.items():
            for hold in dataflow.holds.values():
                yield id, hold

    def writes(self) -> Iterator[tuple[GlobalId, WriteCapability]]:
        """Yield the write capabilities of dataflows, each with the dataflow's id."""
        for id, dataflow in self._dataflows.items():
            for write in dataflow.writes.values():
                yield id, write

    async def _start(self, dataflow: Dataflow) -> None:
        """Send the dataflow to the replicas once its imports are readable as of its as_of."""
        description = dataflow.description
        try:
            for id in description.imports if description.refresh is None else ():
                await self.wait_upper(id, description.as_of)
        except DatabaseError as error:  # an import was dropped, or stopped
            logger.warning("a dataflow cannot begin: %s", error, extra={"dataflow": description.id})
            self._not_created(dataflow, error)
            return
        for id in description.imports:
            self._feeds.add(id, dataflow.description.id, dataflow.cluster)
        if description.refresh is None:
            dataflow.cluster.create(dataflow.entry)
        else:
            self._refreshes.add(dataflow)
        if not dataflow.created.done():
            dataflow.created.set_result(None)
        if self.maintained.corruption_of(dataflow) is not None:
            self._fail_waiters()

    def _not_created(self, dataflow: Dataflow, error: DatabaseError) -> None:
        if not dataflow.created.done():
            dataflow.created.set_exception(error)
            dataflow.created.exception()  # marks it as retrieved

    def _fail_waiters(self) -> None:
        """Fail the waiters of collections that will not advance."""
        for id in self._uppers.waited_for():
            if (error := self.maintained.obstacle([id])) is not None:
                self._uppers.fail(id, error)
        for dataflow in (*self._dataflows.values(), *self._being_replaced.values()):
            error = self.maintained.obstacle(export.id for export in dataflow.description.exports)
            if error is not None:
                for stream in dataflow.streams:
                    stream.fail(error)
                for writer in dataflow.writers.values():
                    writer.errors.fail(error)
        self._peeks.fail_for(self.maintained.corruption_below)
        for tell in self._when_still:
            tell()

    def on_stall(self, tell: Callable[[], None]) -> None:
        """Call `tell` when a collection may have stopped advancing; see `maintained`."""
        self._when_still.append(tell)

    def limit_memory(self, id: GlobalId, limit: int | None) -> None:
        """Change how many bytes a dataflow may take; where it is stalled, it starts again."""
        dataflow = self._dataflows.get(id)
        if dataflow is None or dataflow.entry.description.memory_limit == limit:
            return
        for each in (dataflow.entry, dataflow):
            each.description = msgspec.structs.replace(each.description, memory_limit=limit)
        dataflow.cluster.send(LimitMemory(id, limit))

    def set_error_policy(self, view: GlobalId, policy: ErrorPolicy) -> None:
        """Change whether errors in the data of a materialized view make reads of it fail."""
        dataflow = self._exporters.get(view) or self._being_replaced.get(view)
        if dataflow is not None and view in dataflow.writers:
            dataflow.writers[view].errors.policy = policy

    def drop_dataflow(self, id: GlobalId, *, replaced: bool = False) -> None:
        """End a dataflow and free its resources.

        Waiters for its exports fail unless it is `replaced`, that is, unless another dataflow is
        about to write its shards. Its past errors stay known until then; `stop_replaced` says that
        there will be none.
        """
        dataflow = self._dataflows.get(id)
        if dataflow is None:
            if not self._forget_replaced(id):
                raise UndefinedObject(f'dataflow "{id}" does not exist')
            return
        for export in dataflow.description.exports:
            dataflow.cluster.send(AllowCompaction(export.id, None))
        self._forget(dataflow, replaced=replaced)
        self._held.release([*dataflow.holds.values(), *dataflow.writes.values()])

    def stop_replaced(self, id: GlobalId) -> None:
        """Note that no other dataflow replaces one that was dropped for that.

        What it has written stays readable, and its past errors known. Waiters for more fail.
        """
        for dataflow in self._being_replaced.values():
            if dataflow.description.id == id:
                for writer in dataflow.writers.values():
                    writer.stop()
        self._fail_waiters()

    def _forget_replaced(self, id: GlobalId) -> bool:
        """Forget a dataflow that no other has replaced; return whether there is one."""
        found = [e for e, each in self._being_replaced.items() if each.description.id == id]
        for export in found:
            gone = UndefinedObject(f'collection "{export}" was dropped')
            self._uppers.drop(export, gone)
            self._being_replaced.pop(export).writers[export].errors.fail(gone)
        return bool(found)

    def _forget(self, dataflow: Dataflow, *, replaced: bool = False) -> None:
        id = dataflow.description.id
        self._moves.end(dataflow)
        self._refreshes.remove(dataflow)
        del self._dataflows[id]
        for task in dataflow.tasks:
            task.cancel()
        self._not_created(dataflow, UndefinedObject(f'collection "{id}" was dropped'))
        for export in dataflow.description.exports:
            dataflow.cluster.history.drop(export.id)
            self._exporters.pop(export.id, None)
            self.skipped.forget(export.id)
            for replica in dataflow.cluster.replicas.values():
                replica.uppers.pop(export.id, None)
                replica.begun.discard(export.id)
            gone = UndefinedObject(f'collection "{export.id}" was dropped')
            if not replaced:
                self._uppers.drop(export.id, gone)
            if export.id in dataflow.subscriptions:
                dataflow.subscriptions[export.id].fail(gone)
            if export.id in dataflow.writers:
                if replaced:
                    self._being_replaced[export.id] = dataflow
                else:
                    dataflow.writers[export.id].errors.fail(gone)
        for subscriber, stream in list(dataflow.index_subscriptions.items()):
            index_streams.forget(self._exporters, subscriber)
            stream.fail(UndefinedObject(f'collection "{id}" was dropped'))
        dataflow.cluster.drop(id)
        self.clusters.apply_backpressure(dataflow.cluster)
        self._feeds.remove(dataflow.description.imports, id, dataflow.cluster)

    def move_dataflow(self, id: GlobalId, cluster: str) -> None:
        """Let another cluster maintain a dataflow of sinks, without a pause; see `Moves`."""
        self._moves.begin(self._dataflows[id], self.clusters[cluster])

    def _apply_backpressure(self, dataflow: Dataflow) -> None:
        for cluster in dataflow.clusters:
            self.clusters.apply_backpressure(cluster)

    def _hydration_snapshots(self, description: DataflowDescription) -> tuple[Prepared, Prepared]:
        dataflow = self._dataflows[description.id]
        return hydration_snapshots(self._storage, self._capabilities, dataflow, description)

    # --- frontiers

    def schedule(self, id: GlobalId) -> Refresh | None:
        """Return the schedule of refreshes of a view, with those that were added."""
        return self._refreshes.schedule(id)

    def refresh_cost(self, id: GlobalId) -> RefreshCost:
        """Return what refreshes of a view with the policy auto cost, and how the next is done."""
        return self._refreshes.cost(id)

    def refresh_now(self, id: GlobalId, at_least: Timestamp) -> Timestamp:
        """Let a view with a schedule be refreshed at `at_least` or soon after; return the time."""
        return self._refreshes.refresh_now(id, at_least)

    def progress(self, id: GlobalId) -> Progress:
        """Return the progress of the dataflow that maintains an index, or a sink's shard."""
        dataflow = self.maintained.dataflow_of(id)
        if dataflow is None:  # about to be created
            return Progress("waiting")
        if id in dataflow.writers and (failure := dataflow.writers[id].failure) is not None:
            return Progress("not written", failure=failure)
        if (corruption := self.maintained.corruption_of(dataflow)) is not None:
            return Progress("damaged", failure=corruption.message)
        now = asyncio.get_running_loop().time()
        return progress_of(dataflow.description.id, dataflow.cluster, now)

    def exports(self, id: GlobalId) -> bool:
        """Whether a dataflow exports the collection."""
        return id in self._exporters

    def is_resuming(self, id: GlobalId) -> bool:
        """Whether an index is about to be there: a replica has its dataflow in a checkpoint."""
        dataflow = self._exporters.get(id)
        return dataflow is not None and any(
            dataflow.description.id in replica.checkpoints for replica in dataflow.replicas
        )

    def upper(self, id: GlobalId) -> Timestamp:
        """Return the time before which an index, or a sink's shard, is readable."""
        dataflow = self._exporters.get(id)
        if dataflow is not None and (stream := dataflow.stream(id)) is not None:
            return stream.upper
        return self._uppers[id]

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which an index is readable."""
        dataflow = self._exporters.get(id)
        if dataflow is None or id in dataflow.writers:
            return self._storage.since(id)
        return dataflow.entry.sinces[id]

    async def wait_upper(self, id: GlobalId, beyond: Timestamp, *, patient: bool = True) -> None:
        """Wait until the upper of an index or a shard is greater than `beyond`.

        Raises UndefinedObject if it is dropped, InternalError if an input has stopped, and
        CollectionCorrupted if corruption prevents progress. If not `patient`, raises the error of
        repeated failures too, although they are retried.
        """
        if self._uppers[id] <= beyond:
            self._unchanged.advance(id)
        if self._uppers[id] > beyond:
            return
        self.maintained.check_advances([id], patient=patient)
        if not patient:
            tell_awaited(self._exporters, self._uppers, id, beyond)
        await self._uppers.wait(id, beyond, patient=patient)

    def allow_compaction(self, id: GlobalId, since: Timestamp) -> None:
        """Declare that an index is not read before `since` any more.

        Subscribers hold it at the time from which another replica would continue for them.
        """
        dataflow = self._exporters.get(id)
        if dataflow is None:
            return
        since = min([since, *index_streams.holds(dataflow, id)])
        self.mirrors.compact(id, since)
        if dataflow.cluster.history.allow_compaction(id, since):
            self.skipped.compact(id, since)
            dataflow.cluster.send(AllowCompaction(id, since))

    def begin_later(self, id: GlobalId, since: Timestamp) -> Timestamp:
        """Let a replica that starts begin with an index at `since`; nobody reads it before.

        It begins no later than its inputs are known. Returns the time from which it is readable.
        """
        imports = self._exporters[id].description.imports
        self.allow_compaction(id, min(since, readable_imports(self._storage, imports)))
        return self.since(id)

    # --- peeks

    async def peek(self, cluster: str, request: PeekRequest) -> Result:
        """Return the answer of the first replica, or raise its error."""
        owner = self.clusters[cluster]
        indexes = [*request.indexes.values()]
        if request.index is not None:
            indexes.append(request.index)
        for id in indexes:
            dataflow = self._exporters.get(id)
            if dataflow is None or dataflow.cluster is not owner:
                raise UndefinedObject(f'index "{id}" does not exist in cluster "{cluster}"')
            if not dataflow.created.done():
                await asyncio.shield(dataflow.created)
        for id in request.imports:
            await self.wait_upper(id, request.as_of, patient=False)
        await self.maintained.check_errors([*request.imports, *indexes], request.as_of)
        self.clusters.check_alive(owner)
        self.skipped.check(indexes, request.as_of)
        if (answer := await self.mirrors.answer(request)) is not None:
            return answer
        self.clusters.check_alive(owner)
        self.skipped.check(indexes, request.as_of)
        self._uppers.hurry(request.as_of)  # replicas wait for what they read of indexes
        reads = [(self._capabilities(id)[0], request.as_of) for id in request.imports]
        try:
            return await self._peeks.ask(owner, request, take_snapshots(self._storage, reads))
        except DatabaseError as error:
            if error.sqlstate == DataCorrupted.sqlstate:
                await self._storage.examine(request.imports)
            self.maintained.check_not_corrupt(request.reads)
            if error.sqlstate in ("55000", "XX000"):  # that replica could not start the index
                begun = [dataflow for id in indexes if (dataflow := self._exporters.get(id))]
                self._storage.corruptions.check(*(id for each in begun for id in each.reads))
            raise

    # --- subscriptions

    async def subscribe(self, cluster: str, description: DataflowDescription) -> Subscription:
        """Subscribe to a plan's output: `description` has one SubscribeExport.

        The contents as of `as_of` come first, all at that time, then each change at its own.
        `drop_dataflow` drops the dataflow, independently of the reader.
        """
        (export,) = description.exports
        assert isinstance(export, SubscribeExport), export
        as_of = description.as_of
        self.maintained.check_no_errors(description.imports, as_of, as_of + 1)
        await self.create_dataflow(cluster, description)
        return self._dataflows[description.id].subscriptions[export.id]

    async def subscribe_index(
        self, index: GlobalId, id: GlobalId, as_of: Timestamp
    ) -> Subscription:
        """Subscribe to an index as `id`: its contents as of `as_of`, then each change.

        This needs no computation. `unsubscribe_index` ends it.
        """
        self.skipped.check_onwards(index, as_of)
        subscription = Subscription(id, as_of, index)
        request = SubscribeIndex(id, index, as_of, 0)
        await index_streams.begin(self._exporters, subscription, request)
        return subscription

    def unsubscribe_index(self, id: GlobalId) -> None:
        """End a subscription to an index; no effect if it has ended."""
        index_streams.end(self._exporters, id)

    def transient_id(self) -> GlobalId:
        """Return an id for a subscription, which no other has."""
        return global_id("t", next(self._transient))

    # --- about itself

    def dataflow(self, id: GlobalId) -> DataflowDescription | None:
        """Return the description of a dataflow, or of the one that exports collection `id`."""
        dataflow = self._dataflows.get(id) or self._exporters.get(id)
        return dataflow.description if dataflow is not None else None

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of the controller has failed", exc_info=task.exception())
