"""The coordinator: the one owner of the catalog, of times, and of what is maintained.

All its state belongs to the event loop and changes between two awaits, so that a command sees all
of another or nothing. Changes of the catalog go one at a time: shards are created, then the
catalog's rows and what the transaction writes become durable in one append, and at that same moment
the new state is shown; dataflows and replicas follow from the difference of the two states. Slow
work is handed off to storage, to replicas and to threads.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

import pyarrow as pa

from foreshore.adapter.ddl.view_handoff import Beginning, ViewHandoff
from foreshore.adapter.introspection.view_errors import ViewErrors
from foreshore.adapter.read.timestamp_selection import Interval
from foreshore.adapter.subscribe.changelogs import Changelogs
from foreshore.adapter.subscribe.durable_positions import DurablePositions
from foreshore.adapter.transaction.advisory_locks import AdvisoryLocks
from foreshore.adapter.transaction.catalog_change import CatalogChange, rebased
from foreshore.adapter.transaction.constraint_guard import ConstraintGuard
from foreshore.adapter.transaction.group_commit import GroupCommit, Write
from foreshore.adapter.transaction.locks import Locks
from foreshore.adapter.transaction.oracle import TimestampOracle
from foreshore.adapter.transaction.read_holds import ReadHolds
from foreshore.catalog.builtin.answers import CatalogAnswers
from foreshore.catalog.catalog import Catalog, Planned
from foreshore.catalog.durable import CATALOG_SHARD, difference
from foreshore.catalog.item import AT_COMMIT, Cluster, Item, Object, Replica
from foreshore.catalog.sequence_numbers import Generation, Sequences, generation_of
from foreshore.catalog.state import State, name_key, wholes_of
from foreshore.clock import Clock
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.compute.protocol import DataflowDescription, IndexExport, SinkExport
from foreshore.errors import DatabaseError, FeatureNotSupported, RelationRedefined, UndefinedObject
from foreshore.expr.ir import Get, Relation, sources_of
from foreshore.failpoint import reached
from foreshore.ids import GlobalId, is_builtin
from foreshore.loop_latency import LoopLatency
from foreshore.storage.controller import (
    Appended,
    ReadCapability,
    ShardWrite,
    StorageController,
    WriteCapability,
)
from foreshore.update import Timestamp, at_time

logger = logging.getLogger(__name__)

HOLDS_INTERVAL_S = 1.0
PIECE_BYTES = 16 << 20  # of a table's first rows, in one record of the log


class Coordinator:
    """The state of one environment; `adapter.environment` puts it together."""

    def __init__(
        self,
        *,
        clock: Clock,
        storage: StorageController,
        compute: ComputeController,
        engine: BulkEngine,
        isolated: IsolatedEngine,
        executor: Executor,
        oracle: TimestampOracle,
        catalog: Catalog,
        holds: ReadHolds,
        sequences: Sequences,
        errors: ViewErrors,
    ) -> None:
        self.clock = clock
        self.storage = storage
        self.compute = compute
        self.isolated = isolated  # for what would hold up this process
        self.engine = engine  # of this process: queries over the catalog and over few rows
        self.executor = executor
        self.oracle = oracle
        self.catalog = catalog
        self.holds = holds
        self.sequences = sequences
        self.errors = errors
        self.keys = KeyIndexes(self.readable_since, storage.corruptions)
        self.subscriptions = DurablePositions(holds, self._followed)
        guard = ConstraintGuard(
            self.keys,
            lambda: (self.catalog.state, self.catalog.planned),
            self.subscriptions,
            storage.corruptions,
        )
        self.group = GroupCommit(storage, oracle, guard)
        self.locks = Locks(self.group, lambda: self.state)
        self.advisory = AdvisoryLocks()
        self.catalog_answers = CatalogAnswers()
        self.loop_latency = LoopLatency(clock)
        self.changelogs = Changelogs(self)
        self.view_handoff = ViewHandoff(self)
        self.capabilities: dict[GlobalId, tuple[ReadCapability, WriteCapability]] = {}
        self.as_ofs: dict[GlobalId, Timestamp] = {}  # of dataflows: since when they are exact
        self._defined: dict[str, Timestamp] = {}  # when an object's name or definition changed
        self._ddl = asyncio.Lock()
        self._changes: set[asyncio.Task[Timestamp] | asyncio.Task[None]] = set()
        self._arranged: dict[str, tuple[State, list[GlobalId], frozenset[GlobalId]]] = {}
        self._bases: tuple[int, dict[GlobalId, frozenset[GlobalId]]] = (-1, {})

    # --- what there is -------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The catalog's present state."""
        return self.catalog.state

    def bases(self, id: GlobalId) -> frozenset[GlobalId]:
        """Return the tables that the contents of `id` come from."""
        version, known = self._bases
        if version != self.state.version:
            known = {}
            self._bases = (self.state.version, known)
        found = known.get(id)
        if found is None:
            planned = self.catalog.planned.get(id)
            if planned is None or planned.definition is None:
                found = frozenset({id})
            else:
                found = self.bases_of(planned.definition)
            known[id] = found
        return found

    def bases_of(self, relation: Relation) -> frozenset[GlobalId]:
        """Return the tables that `relation` reads in the end, and builtin relations."""
        return frozenset().union(*map(self.bases, sources_of(relation)))

    def interval(self, id: GlobalId) -> Interval:
        """Return the times at which a shard or an index can be read."""
        return Interval(self.since(id), self.upper(id), self.altered(id))

    def since(self, id: GlobalId) -> Timestamp:
        """Return from when on a collection can be read as what it is now: as it was altered."""
        return max(self.holds.since(id), self.altered(id) or 0)

    def altered(self, id: GlobalId) -> Timestamp | None:
        """Return when a table was altered last, before which it cannot be read; None: never.

        No index on it is read then for what the table is now.
        """
        item = self.state.get(id)
        if isinstance(item, Item) and item.on is not None:
            item = self.state.item(item.on)
        if not isinstance(item, Item) or item.type != "table":
            return None
        return max(item.since, item.constrained_since or 0) or None

    def check_defined(self, ids: Iterable[GlobalId], time: Timestamp) -> None:
        """Raise RelationRedefined if the name or definition of an item changed after `time`."""
        for id in ids:
            item = self.state.get(id)
            if isinstance(item, Item):
                times = map(self._defined.get, (id, *wholes_of(item)))
                if any(changed is not None and changed > time for changed in times):
                    raise RelationRedefined(item.name)

    def altered_below(self, ids: Iterable[GlobalId]) -> dict[GlobalId, Timestamp]:
        """Return when the tables that `ids` are, or are views of, were altered last, if ever."""
        tables = self.state.tables_named(ids)
        return {id: time for id in tables if (time := self.altered(id)) is not None}

    def upper(self, id: GlobalId) -> Timestamp:
        """Return the time from which on a shard or an index is not known."""
        if id in self.capabilities:
            return self.storage.upper(id)
        if not self.compute.exports(id):
            return self.as_ofs[id]  # in the catalog already, soon to be maintained
        return max(self.compute.upper(id), self.as_ofs[id])

    def arranged(self, cluster: str) -> frozenset[GlobalId]:
        """Return the relations that have a hydrated index on the cluster `cluster`.

        It is the same object as long as nothing has changed.
        """
        known = self._arranged.get(cluster)
        if known is not None:
            state, waiting, found = known
            if state is self.state and not any(map(self.is_hydrated, waiting)):
                return found
        owner = self.state.cluster(cluster)
        indexes = [
            item
            for item in self.state.all(Item)
            if item.on is not None and owner is not None and item.cluster == owner.id
        ]
        waiting = [item.id for item in indexes if not self.is_hydrated(item.id)]
        found = frozenset(
            item.on for item in indexes if item.on is not None and item.id not in waiting
        )
        if known is not None and known[2] == found:
            found = known[2]
        self._arranged[cluster] = (self.state, waiting, found)
        return found

    def index_for(self, id: GlobalId, cluster: str) -> list[Item]:
        """Return the hydrated indexes on `id` on the cluster with name `cluster`."""
        found = self.state.cluster(cluster)
        if found is None:
            return []
        return [
            item
            for item in self.state.indexes_on(id)
            if item.cluster == found.id and self.is_hydrated(item.id)
        ]

    def is_hydrated(self, id: GlobalId) -> bool:
        """Whether a dataflow's output has been computed at some time."""
        return id in self.as_ofs and self.upper(id) > self.as_ofs[id]

    def readable_since(self, id: GlobalId) -> Timestamp:
        """Return the least time at which somebody reads a table, or will."""
        return self.holds.least(id, self.oracle.read_ts())

    async def wait_readable(self, id: GlobalId, time: Timestamp) -> None:
        """Wait until a shard or an index can be read at `time`; raises why it cannot."""
        if id not in self.capabilities and id not in self.as_ofs:
            raise UndefinedObject(f'collection "{id}" was dropped')
        if self.upper(id) > time:
            return
        await self.compute.wait_upper(id, time, patient=False)

    # --- commit --------------------------------------------------------------------------------

    async def commit(self, write: Write, change: CatalogChange | None = None) -> Timestamp:
        """Make a write, and a change of the catalog, durable and visible at one time."""
        if change is None or not change.transaction.changed:
            if moves := write.moves:
                write.rows[CATALOG_SHARD] = ()
                write.at = lambda time: {CATALOG_SHARD: self.subscriptions.updates(time, moves)}
                write.applied = lambda time: self.subscriptions.apply(time, moves)
            return await self.group.write(write)
        # It goes through to its end, also when the client has gone: half of it must not happen.
        work = self._change(write, change)
        task = asyncio.get_running_loop().create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changed)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])  # it rests on the locks that its transaction has until then
            raise

    def _drop(self, id: GlobalId) -> None:
        """Drop a shard that came to nothing; that may wait for room, and nobody waits for it."""
        dropping = asyncio.get_running_loop().create_task(self.storage.drop(id))
        self._changes.add(dropping)
        dropping.add_done_callback(self._changed)

    async def settled(self) -> None:
        """Wait for the changes of the catalog that are under way."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    def _changed(self, task: asyncio.Task[Timestamp] | asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.info("a change of the catalog failed", extra={"error": str(task.exception())})

    async def _change(self, write: Write, change: CatalogChange) -> Timestamp:
        async with self._ddl:
            change = rebased(change, self.state)
            change.transaction.state.check()  # what is durable is shown, and read at every start
            return await self._commit_change(write, change)

    async def _commit_change(self, write: Write, change: CatalogChange) -> Timestamp:
        old, new = self.state, change.transaction.state
        created = [each for id, each in new.objects.items() if id not in old.objects]
        dropped = [each for id, each in old.objects.items() if id not in new.objects]
        shards = [item for item in created if _has_shard(item)]
        promising = [item.id for item in new.all(Item) if item.constrained_since == AT_COMMIT]
        moved = self.view_handoff.moved(change.transaction.planned, new)
        made: list[GlobalId] = []
        begun = _generations(new) - _generations(old)
        indexes = {id: dict(self.keys.of(id)) for id in change.indexes}
        try:
            for item in shards:
                assert isinstance(item, Item)
                desc = change.transaction.planned[item.id].desc
                is_table = item.type == "table"
                schema = desc.stored_schema() if is_table else desc.arrow_schema()
                self.capabilities[item.id] = await self.storage.create(item.id, schema)
                made.append(item.id)
                reached("shard.made")
                if is_table:
                    if item.id in change.contents:
                        await self._fill(item, change.contents[item.id])
                    self.group.add(self.capabilities[item.id][1])
            if moved:
                self.storage.log_uppers_soon()
            for id, found in change.indexes.items():
                self.keys.replace(id, found)
            if begun:
                await self.sequences.publish(begun)
                reached("sequence.begun")
            gone = {each.id for each in dropped}
            write.rows = {id: tables for id, tables in write.rows.items() if id not in gone}
            write.rows[CATALOG_SHARD] = ()
            write.retires = frozenset(item.id for item in dropped if isinstance(item, Item))
            write.keyed = {id: parts for id, parts in write.keyed.items() if id not in gone}
            moves = write.moves = {id: each for id, each in write.moves.items() if id not in gone}
            begins, ends = _subscriptions(created), _subscriptions(dropped)
            promising_less = self._promising_less(change.transaction.planned)

            def rows_at(time: Timestamp) -> Mapping[GlobalId, pa.Table]:
                change.transaction.set_constraint_times(promising, time)
                changed = difference(old, change.transaction.state, time)
                positions = self.subscriptions.updates(time, moves, begins, ends)
                # Before `time` is heard of: who follows may hear of it earlier than of the state.
                self.changelogs.end_unconstrained(time, promising_less)
                return {CATALOG_SHARD: pa.concat_tables([changed, positions])}

            def show(time: Timestamp) -> None:
                self.subscriptions.apply(time, moves)
                self.changelogs.end_unconstrained(time, promising_less)  # who has come since
                self._show(time, change, created, dropped, moved)

            write.at, write.applied = rows_at, show
            time = await self.group.write(write)
        except BaseException:
            if self.state is old:
                for id, found in indexes.items():
                    self.keys.replace(id, found)
                for id in made:
                    self.group.remove(id)
                    del self.capabilities[id]
                    self._drop(id)
                if not self.group.failed:  # otherwise the next start may find that it has happened
                    self.sequences.forget(begun)
            raise
        reached("catalog.committed")
        await self._follow(time, created, dropped, moved)
        return time

    async def _fill(self, table: Item, rows: pa.Table) -> None:
        """Write the first rows of a table that nobody knows yet, in pieces.

        Each piece has a time of its own; the last of them is the table's `since`, before which
        nobody reads it.
        """
        pieces = max(-(-rows.nbytes // PIECE_BYTES), 1)
        size = max(-(-rows.num_rows // pieces), 1)
        parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        times = range(table.since - len(parts) + 1, table.since + 1)
        lower = 0
        for time, part in zip(times, parts, strict=True):
            outcome = await self.storage.append(
                [ShardWrite(table.id, lower, time + 1, at_time(part, time))]
            )
            assert isinstance(outcome, Appended), outcome
            lower = time + 1
        reached("shard.filled")

    def _show(
        self,
        time: Timestamp,
        change: CatalogChange,
        created: Iterable[Object],
        dropped: Iterable[Object],
        moved: Iterable[Item],
    ) -> None:
        """Let everybody see the new state; it has just become durable at `time`."""
        oids = {each.oid for each in created}
        ends: dict[str, str] = {}  # by id
        for each in dropped:
            if isinstance(each, Cluster):
                ends[each.id] = f'cluster "{each.name}" was dropped'
            elif isinstance(each, Item):
                is_altered = each.oid in oids
                ends[each.id] = f'"{each.name}" was {"altered" if is_altered else "dropped"}'
                if each.type == "table":
                    self.group.retire(each.id, None if is_altered else each.name, time)
                self.holds.remove(each.id)
                self.keys.replace(each.id, {})
                self.subscriptions.forget(each.id)
        self.changelogs.end_dropped(ends)
        for id, each in change.transaction.state.objects.items():
            if _meaning(each) != _meaning(self.state.get(id)):
                self._defined[id] = time
        for each in dropped:
            self._defined.pop(each.id, None)
        before = _generations(self.state)
        self.catalog.commit(change.transaction)
        after = _generations(self.state)
        self.sequences.published(after - before)
        self.sequences.forget(before - after)
        for item in self.state.all(Item):
            if item.id in self.holds.collections:
                self.holds.retain(item.id, item.retain_ms or None)
        for each in created:
            if isinstance(each, Item) and each.is_collection:
                if each.type != "table":
                    self.as_ofs[each.id] = each.since or time
                self.look_after(each, each.since or time)
        for id in _subscriptions(created):
            self.subscriptions.begin(id, time)
        for item in moved:
            self.holds.follow(item.id, sources_of(self.relation_of(item)))

    def _promising_less(self, planned: Mapping[GlobalId, Planned]) -> dict[GlobalId, str]:
        """Return the tables that promise less when they become as `planned`, and what is said."""
        found: dict[GlobalId, str] = {}
        for id, each in planned.items():
            item, before = self.state.get(id), self.catalog.planned.get(id)
            if before is not None and isinstance(item, Item) and item.type == "table":
                old, new = before.desc, each.desc
                if set(old.keys) - set(new.keys) or any(
                    now.nullable and not was.nullable
                    for was, now in zip(old.columns, new.columns, strict=True)
                ):
                    found[id] = f'"{item.name}" was altered'
        return found

    def look_after(self, item: Item, since: Timestamp) -> None:
        """Hold the item's collection, and what it is made of.

        What will never change is known for all times to come, and yet is read at the present one.
        """
        self.holds.add(
            item.id,
            since,
            lambda: min(self.upper(item.id), self.oracle.read_ts() + 1),
            sources_of(self.relation_of(item)),
            lag_ms=item.retain_ms or None,
            durable=item.type != "index",
        )

    def _followed(self, id: GlobalId) -> frozenset[GlobalId]:
        """Return the collections that a subscription reads."""
        definition = self.catalog.planned[id].definition
        assert definition is not None, id
        return sources_of(definition)

    def relation_of(self, item: Item) -> Relation:
        """Return what the item's collection is made of: itself for a table."""
        if item.on is not None:
            on = self.catalog.planned[item.on]
            if self.state.item(item.on).type == "view":
                assert on.definition is not None
                return on.definition
            return Get(item.on, on.desc.columns, on.desc.keys)
        planned = self.catalog.planned[item.id]
        if item.type == "table":
            return Get(item.id, planned.desc.columns)
        assert planned.definition is not None, item
        return planned.definition

    async def _follow(
        self,
        time: Timestamp,
        created: Sequence[Object],
        dropped: Sequence[Object],
        moved: Sequence[Item],
    ) -> None:
        """Do what the new state asks of storage and compute."""
        for each in created:
            if isinstance(each, Cluster):
                self.compute.create_cluster(each.id, each.size, dict(each.options))
        for each in created:
            if isinstance(each, Replica):
                self.compute.create_replica(each.cluster, each.id, each.options.get("address"))
        for each in created:
            if isinstance(each, Item):
                if _has_shard(each):
                    await self.downgrade(each.id, each.since or time)
                await self.maintain(each, Beginning(each.since or time))
        for item in moved:
            await self.view_handoff.hand_over(item)
        for each in dropped:
            if isinstance(each, Item):
                await self._forget(each)
        for each in dropped:
            if isinstance(each, Replica):
                await self.compute.drop_replica(each.cluster, each.id)
        for each in dropped:
            if isinstance(each, Cluster):
                await self.compute.drop_cluster(each.id)

    async def maintain(self, item: Item, begins: Beginning) -> None:
        """Create the dataflow of a materialized view or an index."""
        if item.type not in ("materialized view", "index"):
            return
        assert item.cluster is not None, item
        self.as_ofs[item.id] = begins.as_of
        relation = self.relation_of(item)
        export = (
            IndexExport(item.id, self.catalog.planned[item.id].key)
            if item.type == "index"
            else SinkExport(item.id)
        )
        await self.compute.create_dataflow(
            item.cluster,
            DataflowDescription(
                item.id,
                relation,
                tuple(sorted(sources_of(relation))),
                (export,),
                begins.as_of,
            ),
            lost=begins.lost,
        )

    def capabilities_of(self, id: GlobalId) -> tuple[ReadCapability, WriteCapability]:
        """Return what is held of a collection; raises UndefinedObject if that has been dropped."""
        held = self.capabilities.get(id)
        if held is None:
            raise UndefinedObject(f'collection "{id}" was dropped')
        return held

    async def _forget(self, item: Item) -> None:
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
        """Let storage and compute forget what nobody needs.

        Where that fails for one collection it is done for the others all the same, and raised then.
        """
        # Nobody reads how the catalog was, and each change leaves updates of what was before.
        written = self.group.changed(CATALOG_SHARD)
        if self.capabilities[CATALOG_SHARD][0].frontier < written <= self.oracle.read_ts():
            await self.downgrade(CATALOG_SHARD, written)
        failed: DatabaseError | None = None
        for id, since in self.holds.due().items():
            if id in self.capabilities:
                try:
                    await self.downgrade(id, since)
                except DatabaseError as error:
                    failed = failed or error
            elif id in self.as_ofs:
                self.compute.allow_compaction(id, since)
        if failed is not None:
            raise failed

    async def run_holds(self) -> None:
        """Allow compaction now and then, until cancelled."""
        while True:
            await asyncio.sleep(HOLDS_INTERVAL_S)
            try:
                await self.allow_compaction()
            except DatabaseError:
                logger.exception("compaction could not be allowed")

    # --- invariants ----------------------------------------------------------------------------

    async def check_settled(self) -> None:
        """Assert the invariants as soon as no change of the catalog is half done."""
        async with self._ddl:
            self.check_consistency()

    def check_consistency(self) -> None:
        """Assert what holds between two commands."""
        self.catalog.check()
        self.holds.check()
        self.group.check()
        self.keys.check(self.oracle.read_ts())
        self.subscriptions.check(_subscriptions(self.state.objects.values()))
        for item in self.state.items():
            if not item.is_collection:
                continue
            assert item.id in self.holds.collections, f"nobody holds {item.id}"
            assert (item.id in self.capabilities) == _has_shard(item), item
            if _has_shard(item):
                read, _ = self.capabilities[item.id]
                assert self.storage.since(item.id) <= self.holds.since(item.id), item
                assert self.storage.exists(item.id), item
                assert read.frontier <= self.holds.since(item.id), item
            if item.type != "table":
                assert item.id in self.as_ofs, f"nothing maintains {item.id}"
        items = {item.id for item in self.state.items()}
        assert self.holds.collections.keys() <= items, self.holds.collections.keys() - items
        assert self.capabilities.keys() <= items | {CATALOG_SHARD}


def _generations(state: State) -> set[Generation]:
    return {generation_of(item) for item in state.all(Item) if item.type == "sequence"}


def _meaning(each: Object | None) -> object:
    """Return what a query takes from an object: its name, where it is, and its definition."""
    return each and (name_key(each), each.create_sql if isinstance(each, Item) else None)


def _has_shard(each: Object) -> bool:
    return isinstance(each, Item) and each.type in ("table", "materialized view")


def _subscriptions(objects: Iterable[Object]) -> list[GlobalId]:
    return [each.id for each in objects if isinstance(each, Item) and each.type == "subscription"]


def refuse_system_inputs(relation: Relation, what: str) -> None:
    """Raise if something maintained would be made of the system's relations."""
    if any(is_builtin(id) for id in sources_of(relation)):
        raise FeatureNotSupported(f"{what} over system relations is not supported")
