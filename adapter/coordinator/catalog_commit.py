"""Commits of changes of the catalog, one at a time.

First the shards of new tables are created. Then the catalog's rows and what the transaction writes
become durable in one append, and at that moment everybody sees the new state. Dataflows and
replicas follow from the difference of the two states.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.coordinator.view_handoff import Beginning
from foreshore.adapter.ddl.error_policy import error_policy, set_policy_times
from foreshore.adapter.sinks.previous import refuse_awaited, set_cut_times
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.audit import AuditRows
from foreshore.catalog.dangling import check_references
from foreshore.catalog.durable import CATALOG_SHARD, difference, left
from foreshore.catalog.item import AT_COMMIT, Cluster, Item, Object, Replica
from foreshore.catalog.limits import check_limits
from foreshore.catalog.naming import name_key
from foreshore.catalog.rebase import rebased
from foreshore.catalog.sequence_numbers import Generation, generation_of
from foreshore.catalog.state import AUDIT_EVENTS, State
from foreshore.catalog.table_changes import moved_views
from foreshore.catalog.transaction import Transaction
from foreshore.catalog.watch import may_change_rights
from foreshore.compute.controller.controller import ComputeController
from foreshore.failpoint import reached
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator.coordinator import Coordinator

logger = logging.getLogger(__name__)

R = TypeVar("R")

FEW_OBJECTS = 32  # created or dropped, whose audit is encoded on the loop


class _Difference:
    """The difference that a change makes to the present state."""

    def __init__(self, coordinator: "Coordinator", change: CatalogChange) -> None:
        old, new = coordinator.state, change.transaction.state
        changed = new.changed(old)
        before = [each for id in changed if (each := old.get(id)) is not None]
        after = [each for id in changed if (each := new.get(id)) is not None]
        self.changed = [*before, *after]
        self.created = [each for each in after if each.id not in old.objects]
        self.dropped = [each for each in before if each.id not in new.objects]
        self.rights = may_change_rights(old, new)
        self.begun = _generations(after) - _generations(before)  # of sequences
        self.ended = _generations(before) - _generations(after)
        # Materialized views that continue over other collections.
        self.moved = moved_views(coordinator.catalog.planned, change.transaction.planned, new)
        moved = {item.id for item in self.moved}
        # Those that continue in another cluster.
        self.reassigned = [
            item
            for item in after
            if isinstance(item, Item)
            and isinstance(was := old.get(item.id), Item)
            and item.cluster not in (None, was.cluster)
            and item.id not in moved
        ]


class CatalogCommits:
    """Changes the catalog of `coordinator`, and what is maintained with it."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self.lock = asyncio.Lock()  # held while a change is half done
        self._tasks: set[asyncio.Task[Any]] = set()

    async def commit(self, write: Write, change: CatalogChange) -> Timestamp:
        """Make a write and a change of the catalog durable and visible at one time; return it.

        When it is cancelled, the change is completed all the same before this returns: until then
        it needs the locks of its transaction.
        """
        task = self._start(self._change(write, change))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def settled(self) -> None:
        """Wait for the changes that are under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[None, None, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.info("a change of the catalog failed", extra={"error": str(task.exception())})

    async def _change(self, write: Write, change: CatalogChange) -> Timestamp:
        coordinator = self._coordinator
        async with self.lock:
            change = replace(change, transaction=rebased(change.transaction, coordinator.state))
            # What is durable is shown, and read at every start.
            new = change.transaction.state
            check_references(coordinator.state, new)
            check_limits(coordinator.state, new)
            new.check(new.changed(coordinator.state))
            made = _Difference(coordinator, change)
            refuse_awaited(coordinator, made.changed, made.dropped)
            time = await self._write(write, change, made)
            reached("catalog.committed")
            await self._follow(time, made)
            return time

    # --- making it durable ---------------------------------------------------------------------

    async def _write(self, write: Write, change: CatalogChange, made: _Difference) -> Timestamp:
        """Create shards, and commit the write; undo all of it if that fails."""
        coordinator = self._coordinator
        old = coordinator.state
        shards: list[GlobalId] = []
        indexes = {id: dict(coordinator.keys.of(id)) for id in change.indexes}
        try:
            for item in made.created:
                if isinstance(item, Item) and has_shard(item):
                    await self._create_shard(item, change, shards)
            if made.moved:
                coordinator.storage.log_uppers_soon()
            for id, found in change.indexes.items():
                coordinator.keys.replace(id, found)
            if made.begun:
                await coordinator.sequences.publish(made.begun)
                reached("sequence.begun")
            audited = await self._audited(old, change.transaction, made)
            self._add_catalog_rows(write, change, made, audited)
            return await coordinator.group.write(write)
        except BaseException:
            if coordinator.state is old:
                for id, found in indexes.items():
                    coordinator.keys.replace(id, found)
                for id in shards:
                    coordinator.watermarks.forget(id)
                    coordinator.group.remove(id)
                    del coordinator.capabilities[id]
                    self._start(coordinator.storage.drop(id))  # which may wait for disk space
                if not coordinator.group.failed:  # else the next start may find that it happened
                    coordinator.sequences.forget(made.begun)
            raise

    async def _create_shard(
        self, item: Item, change: CatalogChange, shards: list[GlobalId]
    ) -> None:
        """Create the shard of a new item, with its rows; it is in `shards` once it exists."""
        coordinator, desc = self._coordinator, change.transaction.planned[item.id].desc
        is_table = item.type == "table"
        schema = desc.stored_schema() if is_table else desc.arrow_schema()
        coordinator.capabilities[item.id] = await coordinator.storage.create(item.id, schema)
        shards.append(item.id)
        reached("shard.made")
        if is_table:
            if desc.watermark is not None and (old := coordinator.state.item_with(item.oid)):
                await coordinator.watermarks.ready(old.id)  # a table goes on from there
            coordinator.watermarks.begin(item.id, desc.watermark, change.contents.get(item.id))
            if item.id in change.contents:
                await coordinator.storage.fill(item.id, change.contents[item.id], item.since)
                reached("shard.filled")
            coordinator.group.add(coordinator.capabilities[item.id][1])

    def _add_catalog_rows(
        self, write: Write, change: CatalogChange, made: _Difference, audited: AuditRows
    ) -> None:
        """Add the catalog's rows to the write; dropped tables and subscriptions leave it."""
        coordinator, old = self._coordinator, self._coordinator.state
        gone = {each.id for each in made.dropped}
        write.rows = {id: tables for id, tables in write.rows.items() if id not in gone}
        write.rows[CATALOG_SHARD] = write.rows[AUDIT_EVENTS.id] = ()
        write.retires = frozenset(each.id for each in made.dropped if isinstance(each, Item))
        write.keyed = {id: parts for id, parts in write.keyed.items() if id not in gone}
        moves = write.moves = {id: each for id, each in write.moves.items() if id not in gone}
        begins, ends = subscription_ids(made.created), subscription_ids(made.dropped)
        leaves = coordinator.leftovers.left_by(made.dropped, made.created)
        new = change.transaction.state
        altered = new.changed(old)
        constrained = [
            item.id
            for item in map(new.get, altered)
            if isinstance(item, Item) and item.constrained_since == AT_COMMIT
        ]
        relaxed = {
            item.id: f'"{item.name}" was altered'
            for item in coordinator.catalog.relaxed(change.transaction.planned)
        }

        def rows_at(time: Timestamp) -> Mapping[GlobalId, pa.Table]:
            change.transaction.set_constraint_times(constrained, time)
            set_policy_times(change.transaction, map(new.get, altered), time)
            set_cut_times(change.transaction, map(new.get, altered), time)
            changed = difference(old, change.transaction.state, time)
            positions = coordinator.subscriptions.updates(time, moves, begins, ends)
            # Before `time` is published: subscribers may see it earlier than the new state.
            coordinator.changelogs.end_unconstrained(time, relaxed)
            catalog = pa.concat_tables([changed, positions, left(leaves, time)])
            return {CATALOG_SHARD: catalog, AUDIT_EVENTS.id: audited.at(time)}

        then = write.applied

        def show(time: Timestamp) -> None:
            coordinator.subscriptions.apply(time, moves)
            coordinator.leftovers.add(leaves)
            coordinator.changelogs.end_unconstrained(time, relaxed)  # of new subscribers
            self._show(time, change, made)
            if then is not None:
                then(time)

        write.at, write.applied = rows_at, show

    async def _audited(self, old: State, transaction: Transaction, made: _Difference) -> AuditRows:
        """Return the rows of the audit for a change of `old`; of many objects, on a thread."""
        coordinator = self._coordinator
        schema = coordinator.catalog.planned[AUDIT_EVENTS.id].desc.stored_schema()
        now = coordinator.clock.now() * 1000
        encoded = partial(AuditRows, old, transaction.state, transaction.user, now, schema)
        if len(made.created) + len(made.dropped) <= FEW_OBJECTS:
            return encoded()
        return await blocking.run(coordinator.executor, encoded)

    # --- showing it ----------------------------------------------------------------------------

    def _show(self, time: Timestamp, change: CatalogChange, made: _Difference) -> None:
        """Let everybody see the new state; it has just become durable at `time`."""
        coordinator = self._coordinator
        created = {each.oid: each for each in made.created}
        names = {name_key(each) for each in made.created}
        ends: dict[str, str] = {}  # messages, by id
        for each in made.dropped:
            if isinstance(each, Cluster):
                ends[each.id] = f'cluster "{each.name}" was dropped'
            elif isinstance(each, Item):
                altered = created.get(each.oid)
                replaced = "replaced" if name_key(each) in names else "dropped"
                ends[each.id] = f'"{each.name}" was {"altered" if altered else replaced}'
                if each.type == "table":
                    name = None if altered else name_key(each)
                    coordinator.group.retire(each.id, name, time)
                coordinator.activity.tables.pop(each.id, None)
                coordinator.holds.remove(each.id)
                coordinator.keys.drop(each.id)
                if isinstance(altered, Item):
                    coordinator.watermarks.go_on(each.id, altered.id)
                coordinator.watermarks.forget(each.id)
                coordinator.subscriptions.forget(each.id)
        coordinator.changelogs.end_dropped(ends)
        old = coordinator.state
        coordinator.catalog.commit(change.transaction, time)
        coordinator.changelogs.end_unauthorized(old, coordinator.state)
        coordinator.sequences.published(made.begun)
        coordinator.sequences.forget(made.ended)
        for id in coordinator.state.changed(old):
            item = coordinator.state.get(id)
            if isinstance(item, Item) and item.sink:
                coordinator.subscriptions.hold_anew(item.id)
            if isinstance(item, Item) and item.id in coordinator.holds.collections:
                coordinator.holds.retain(item.id, item.retain_ms or None)
                coordinator.compute.limit_memory(item.id, item.memory_limit or None)
                if item.type == "materialized view":
                    coordinator.compute.set_error_policy(item.id, error_policy(item))
        for each in made.created:
            if isinstance(each, Item) and each.is_collection:
                if each.type != "table":
                    coordinator.as_ofs[each.id] = each.since or time
                coordinator.look_after(each, each.since or time)
        for id in subscription_ids(made.created):
            coordinator.subscriptions.begin(id, time)
        for item in made.moved:
            coordinator.holds.follow(item.id, coordinator.catalog.sources(item.id))

    async def _follow(self, time: Timestamp, made: _Difference) -> None:
        """Let storage and compute follow the new state: clusters, replicas, then dataflows."""
        coordinator, compute = self._coordinator, self._coordinator.compute
        for each in made.created:
            if isinstance(each, Cluster):
                compute.create_cluster(each.id, each.size, dict(each.options))
        for each in made.created:
            if isinstance(each, Replica):
                start_replica(compute, each)
        for each in made.created:
            if isinstance(each, Item):
                if has_shard(each):
                    await coordinator.downgrade(each.id, each.since or time)
                await coordinator.maintain(each, Beginning(each.since or time))
        concerned = made.changed
        if made.rights:  # a sink or a source runs as long as its owner has the rights
            concerned = [*concerned, *coordinator.state.all(Item)]
        await coordinator.ingestion.follow(concerned)
        await coordinator.exports.follow(concerned)
        coordinator.leftovers.follow(made.changed)
        coordinator.leftovers.begin()
        await coordinator.published.follow(made.changed)
        for item in made.moved:
            await coordinator.view_handoff.hand_over(item)
        for item in made.reassigned:
            assert item.cluster is not None, item
            compute.move_dataflow(item.id, item.cluster)
        for each in made.dropped:
            if isinstance(each, Item):
                await coordinator.forget(each)
        for each in made.dropped:
            if isinstance(each, Replica):
                await compute.drop_replica(each.cluster, each.id)
        for each in made.dropped:
            if isinstance(each, Cluster):
                await compute.drop_cluster(each.id)
        follow_bursts(compute, coordinator.state)


def follow_bursts(compute: ComputeController, state: State) -> None:
    """Let compute follow the clusters' bursts."""
    compute.bursts.follow({each.id: each.burst for each in state.all(Cluster) if each.burst})


def start_replica(compute: ComputeController, replica: Replica) -> None:
    """Start a replica of the catalog, unless it was started before it came there."""
    if not compute.has_replica(replica.cluster, replica.id):
        options = dict(replica.options)
        address = options.pop("address", None)
        options.pop("workload_class", None)
        compute.create_replica(
            replica.cluster, replica.id, address, size=replica.size, options=options
        )


def has_shard(each: Object) -> bool:
    """Return whether an object is stored in a shard of its own."""
    return isinstance(each, Item) and each.type in ("table", "materialized view")


def subscription_ids(objects: Iterable[Object]) -> list[GlobalId]:
    """Return the ids of the durable subscriptions among `objects`."""
    return [each.id for each in objects if isinstance(each, Item) and each.type == "subscription"]


def _generations(objects: Iterable[Object]) -> set[Generation]:
    return {
        generation_of(each)
        for each in objects
        if isinstance(each, Item) and each.type == "sequence"
    }
