"""The coordinator: the owner of the catalog, of times, and of maintained collections.

Its state belongs to the event loop and changes between two awaits, so a command sees all effects of
another one or none. `transaction/catalog_commit.py` changes the catalog and the collections with
it. Slow work is done by storage, by replicas and on threads.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from foreshore import blocking
from foreshore.activity import Activity
from foreshore.adapter.client import ServerConfiguration
from foreshore.adapter.coordinator.catalog_commit import (
    CatalogCommits,
    has_shard,
    subscription_ids,
)
from foreshore.adapter.coordinator.view_handoff import Beginning, ViewHandoff
from foreshore.adapter.ddl.error_policy import error_policy
from foreshore.adapter.introspection.usage_history import UsageHistory
from foreshore.adapter.introspection.view_errors import ViewErrors
from foreshore.adapter.leftovers import Leftovers
from foreshore.adapter.metrics.published import PublishedMetrics
from foreshore.adapter.services.copies import Copies
from foreshore.adapter.services.process import Audit
from foreshore.adapter.sinks.exports import SinkExports
from foreshore.adapter.sinks.previous import previous_of
from foreshore.adapter.sources.ingestion import Ingestion
from foreshore.adapter.sources.webhooks import Webhooks
from foreshore.adapter.subscribe.changelogs import Changelogs
from foreshore.adapter.transaction.advisory_locks import AdvisoryLocks
from foreshore.adapter.transaction.constraint_guard import ConstraintGuard
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.locks import Locks
from foreshore.adapter.transaction.timestamp_selection import Interval
from foreshore.adapter.transaction.watermarks import Watermarks
from foreshore.catalog.builtin.answers import CatalogAnswers
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.dangling import dangling, describe
from foreshore.catalog.durable import CATALOG_SHARD
from foreshore.catalog.item import Item, Replica
from foreshore.catalog.secret_values import Secrets
from foreshore.catalog.sequence_numbers import Sequences
from foreshore.catalog.state import State
from foreshore.catalog.subscription_positions import DurablePositions
from foreshore.clock import Clock
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.controller.pending_replicas import PendingReplicas
from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.compute.protocol import DataflowDescription, IndexExport, SinkExport
from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.expr.traversal import sources_of
from foreshore.failpoint import reached
from foreshore.ids import GlobalId
from foreshore.loop_latency import LoopLatency
from foreshore.memory_shares import APART
from foreshore.notifications import Channels
from foreshore.processes.launch import Launcher
from foreshore.shares import Shares
from foreshore.statement_history import StatementHistory
from foreshore.storage.controller import ReadCapability, StorageController, WriteCapability
from foreshore.storage.decoded_files import DecodedFiles
from foreshore.storage.lineage import Lineage
from foreshore.storage.oracle import TimestampOracle
from foreshore.storage.read_holds import ReadHolds
from foreshore.update import Timestamp
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

HOLDS_INTERVAL_S = 1.0


@dataclass(kw_only=True, eq=False)
class Coordinator:
    """The state of one environment; `adapter.environment` puts it together."""

    clock: Clock
    storage: StorageController
    compute: ComputeController
    engine: BulkEngine  # of this process: queries over the catalog and over few rows
    isolated: IsolatedEngine  # for work that would block this process
    executor: Executor
    oracle: TimestampOracle
    catalog: Catalog
    holds: ReadHolds
    sequences: Sequences
    errors: ViewErrors
    capabilities: dict[GlobalId, tuple[ReadCapability, WriteCapability]]
    ingest: Launcher
    export: Launcher
    lineage: Lineage
    environment_id: str  # as Materialize writes it: the provider, the region, a UUID, a number

    def __post_init__(self) -> None:
        self.started = self.clock.now() * 1000  # microseconds since 1970
        self.apart = Shares(APART - 1, APART)  # of evaluations in `isolated`, by login roles
        corruptions = self.storage.corruptions
        self.keys = KeyIndexes(self.readable_since, corruptions)
        self.subscriptions = DurablePositions(
            self.holds, self.catalog.sources, partial(previous_of, self.catalog)
        )
        self.watermarks = Watermarks(lambda: self.catalog.planned, self._committed_column)
        guard = ConstraintGuard(
            self.keys, self.catalog, self.subscriptions, corruptions, self.watermarks
        )
        self.group = GroupCommit(self.storage, self.oracle, guard)
        self.locks = Locks(self.group, lambda: self.state)
        self.advisory = AdvisoryLocks()
        self.channels = Channels()
        self.copies = Copies()
        self.audits: dict[GlobalId, Audit] = {}  # the last one of each view
        self.secrets = Secrets(lambda: self.state)
        self.host_keys = Path()  # the folder of those that SSH servers had at first
        self.configuration: ServerConfiguration | None = None  # of who serves it, if it has one
        self.catalog_answers = CatalogAnswers()
        self.activity = Activity()
        self.statement_history = StatementHistory()
        self.usage = UsageHistory(self)
        self.decoded = DecodedFiles()
        self.loop_latency = LoopLatency(self.clock)
        self.changelogs = Changelogs(self)
        self.view_handoff = ViewHandoff(self)
        self.catalog_commits = CatalogCommits(self)
        self.ingestion = Ingestion(self, self.ingest)
        self.webhooks = Webhooks(self)
        self.exports = SinkExports(self, self.export, self.lineage)
        self.leftovers = Leftovers(self)
        self.published = PublishedMetrics(self)
        self.resizes = PendingReplicas(self.compute, lambda id: id in self.state.objects)
        self.as_ofs: dict[GlobalId, Timestamp] = {}  # the times from which dataflows are exact
        self._answering: tuple[State | None, frozenset[str]] = (None, frozenset())
        self._arranged: dict[str, tuple[State, list[GlobalId], frozenset[GlobalId]]] = {}

    # --- what there is -------------------------------------------------------------------------

    @property
    def database(self) -> str:
        """Return the id of the database."""
        return self.lineage.database

    @property
    def state(self) -> State:
        """The catalog's present state."""
        return self.catalog.state

    def interval(self, id: GlobalId) -> Interval:
        """Return the times at which a shard or an index can be read."""
        altered = self.state.altered(id)
        since = max(self.holds.since(id), altered or 0)
        return Interval(since, self.upper(id), altered, self.compute.skipped[id])

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which a collection can be read with its present definition."""
        return max(self.holds.since(id), self.state.altered(id) or 0)

    def upper(self, id: GlobalId) -> Timestamp:
        """Return the time before which a shard or an index is known."""
        if id in self.capabilities:
            return self.storage.upper(id)
        if not self.compute.exports(id):
            return self.as_ofs[id]  # its dataflow is about to be created
        return max(self.compute.upper(id), self.as_ofs[id])

    def arranged(self, cluster: str) -> frozenset[GlobalId]:
        """Return the relations that have an index to be read on the cluster `cluster`.

        It is the same object while nothing has changed.
        """
        known = self._arranged.get(cluster)
        if known is not None:
            state, waiting, found = known
            if state is self.state and not any(map(self.is_to_be_read, waiting)):
                return found
        owner = self.state.cluster(cluster)
        indexes = [] if owner is None else self.state.indexes_in(owner.id)
        waiting = [item.id for item in indexes if not self.is_to_be_read(item.id)]
        found = frozenset(
            item.on for item in indexes if item.on is not None and item.id not in waiting
        )
        if known is not None and known[2] == found:
            found = known[2]
        self._arranged[cluster] = (self.state, waiting, found)
        return found

    def has_replica(self, cluster: str) -> bool:
        """Return whether the cluster with id `cluster` has a replica."""
        state, answering = self._answering
        if state is not self.state:
            answering = frozenset(each.cluster for each in self.state.all(Replica))
            self._answering = (self.state, answering)
        return cluster in answering

    def index_for(self, id: GlobalId, cluster: str) -> list[Item]:
        """Return the indexes on `id` to be read on the cluster with name `cluster`."""
        found = self.state.cluster(cluster)
        if found is None:
            return []
        return [
            item
            for item in self.state.indexes_on(id)
            if item.cluster == found.id and self.is_to_be_read(item.id)
        ]

    def is_to_be_read(self, id: GlobalId) -> bool:
        """Return whether an index is hydrated, or a checkpoint has it, so that it is soon."""
        return self.is_hydrated(id) or self.compute.is_resuming(id)

    def is_hydrated(self, id: GlobalId) -> bool:
        """Return whether the output of a dataflow has been computed at some time."""
        return id in self.as_ofs and self.upper(id) > self.as_ofs[id]

    async def _committed_column(self, id: GlobalId, column: int) -> AsyncGenerator[pa.Table, None]:
        """Yield one column of the committed rows of a table that never loses any, in parts."""
        if id not in self.capabilities:
            return  # it was dropped
        read, _ = self.capabilities[id]
        with self.storage.snapshot(read, self.oracle.read_ts()) as snapshot:
            async with aclosing(snapshot.column_parts(column)) as parts:
                async for part in parts:
                    yield part

    def readable_since(self, id: GlobalId) -> Timestamp:
        """Return the earliest time at which a table is read, now or later."""
        return self.holds.least(id, self.oracle.read_ts())

    async def wait_readable(self, id: GlobalId, time: Timestamp) -> None:
        """Wait until a shard or an index can be read at `time`; raises the error if it cannot."""
        if id not in self.capabilities and id not in self.as_ofs:
            raise UndefinedObject(f'collection "{id}" was dropped')
        if self.upper(id) > time:
            return
        await self.compute.wait_upper(id, time, patient=False)

    # --- collections ---------------------------------------------------------------------------

    def look_after(self, item: Item, since: Timestamp) -> None:
        """Hold the history of the item's collection, and of its inputs.

        A collection that never changes is known at all future times, but is read at the present.
        """
        self.holds.add(
            item.id,
            since,
            lambda: min(self.upper(item.id), self.oracle.read_ts() + 1),
            self.catalog.sources(item.id),
            lag_ms=item.retain_ms or None,
            durable=item.type != "index",
            written=partial(self.group.changed, item.id) if item.type == "table" else None,
        )

    async def maintain(self, item: Item, begins: Beginning) -> None:
        """Create the dataflow of a materialized view or an index."""
        if item.type not in ("materialized view", "index"):
            return
        assert item.cluster is not None, item
        self.as_ofs[item.id] = begins.as_of
        relation = self.catalog.relation_of(item)
        export = (
            IndexExport(item.id, self.catalog.planned[item.id].key)
            if item.type == "index"
            else SinkExport(item.id)
        )
        imports = tuple(sorted(sources_of(relation)))
        refresh = (item.refresh or None) if imports else None  # constants never change
        await self.compute.create_dataflow(
            item.cluster,
            DataflowDescription(
                item.id,
                relation,
                imports,
                (export,),
                begins.as_of,
                item.memory_limit or None,
                refresh,
                item.hydrate or None,
            ),
            lost=begins.lost,
            error_policy=error_policy(item),
        )

    def capabilities_of(self, id: GlobalId) -> tuple[ReadCapability, WriteCapability]:
        """Return the capabilities on a shard; raises UndefinedObject if it has been dropped."""
        held = self.capabilities.get(id)
        if held is None:
            raise UndefinedObject(f'collection "{id}" was dropped')
        return held

    async def forget(self, item: Item) -> None:
        """Drop the dataflow and the shard of a dropped item."""
        if item.id in self.as_ofs:
            self.compute.drop_dataflow(item.id)
            del self.as_ofs[item.id]
            self.errors.forget(item.id)
        if item.id in self.capabilities:
            del self.capabilities[item.id]
            await self.storage.drop(item.id)
            reached("shard.dropped")

    # --- the past ------------------------------------------------------------------------------

    async def downgrade(self, id: GlobalId, since: Timestamp) -> None:
        """Give up the right to read a shard before `since`."""
        read, write = self.capabilities[id]
        lower = await self.storage.downgrade_capability(read, since)
        assert isinstance(lower, ReadCapability)
        self.capabilities[id] = (lower, write)

    async def allow_compaction(self) -> None:
        """Let storage and compute compact history that is not held.

        An error of one collection is raised after the others.
        """
        # The catalog's past is never read.
        written = self.group.changed(CATALOG_SHARD)
        if self.capabilities[CATALOG_SHARD][0].frontier < written <= self.oracle.read_ts():
            await self.downgrade(CATALOG_SHARD, written)
        failed: DatabaseError | None = None
        due = self.holds.due(self.group.take_written(), self.oracle.read_ts() + 1)
        for id, since in due.items():
            if id in self.capabilities:
                try:
                    await self.downgrade(id, since)
                except DatabaseError as error:
                    failed = failed or error
            elif id in self.as_ofs:
                self.compute.allow_compaction(id, since)
        if failed is not None:
            raise failed

    def skip_late_times(self) -> None:
        """Let indexes that are behind skip times that nobody reads (`skipped_times.py`)."""
        now = self.oracle.read_ts()
        for id in self.as_ofs:
            if id in self.capabilities or id not in self.holds.collections:  # stored, or dropped
                continue
            if self.holds.retains(id) or not self.is_hydrated(id):
                continue
            reached = self.compute.skipped.reached(id)
            upper = self.holds.first_held(id, reached, now)
            if reached > self.holds.since(id):
                self.compute.skipped.skip(id, reached, upper)
            elif upper > self.holds.since(id):  # no replica has it
                self.holds.forget_before(id, self.compute.begin_later(id, upper))

    async def run_holds(self) -> None:
        """Allow compaction every second, until cancelled."""
        while True:
            await asyncio.sleep(HOLDS_INTERVAL_S)
            await goes_on(self._forget_history, "compaction could not be allowed")

    async def _forget_history(self) -> None:
        self.skip_late_times()
        await self.allow_compaction()

    # --- invariants ----------------------------------------------------------------------------

    async def check_settled(self) -> None:
        """Assert the invariants when no change of the catalog is half done."""
        async with self.catalog_commits.lock:
            self.check_consistency()
            state = self.state
        lost = await blocking.run(None, dangling, state)
        assert not lost, "; ".join(map(describe, lost))

    def check_consistency(self) -> None:
        """Assert the invariants that hold between two commands."""
        self.catalog.check()
        self.holds.check()
        self.group.check()
        self.keys.check(self.oracle.read_ts())
        self.subscriptions.check(subscription_ids(self.state.objects.values()))
        for item in self.state.items():
            if not item.is_collection:
                continue
            assert item.id in self.holds.collections, f"{item.id} is not held"
            assert (item.id in self.capabilities) == has_shard(item), item
            if has_shard(item):
                read, _ = self.capabilities[item.id]
                assert self.storage.since(item.id) <= self.holds.since(item.id), item
                assert self.storage.exists(item.id), item
                assert read.frontier <= self.holds.since(item.id), item
            if item.type != "table":
                assert item.id in self.as_ofs, f"{item.id} is not maintained"
        items = {item.id for item in self.state.items()}
        assert self.holds.collections.keys() <= items, self.holds.collections.keys() - items
        assert self.capabilities.keys() <= items | {CATALOG_SHARD}
