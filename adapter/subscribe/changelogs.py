"""The changelogs of the environment: one for each shard, index or query that has subscribers.

    shard   a table or a materialized view: the updates that storage publishes
    index   an indexed view: the output of its dataflow, which is not computed a second time
    query   the output of a dataflow for this query, one for all its subscribers on a cluster

A changelog of an index or a query begins with the contents as of a time, for the subscriber that
opened it. It is closed when its last subscriber leaves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from prometheus_client import Gauge

from foreshore.adapter.services.changelogs import Follower, Source, ended_because
from foreshore.adapter.services.collections import Collections
from foreshore.catalog.state import State
from foreshore.catalog.watch import Watch, may_change_rights
from foreshore.compute.changelog import Changelog, End
from foreshore.compute.envelope import Form, Rendering
from foreshore.compute.protocol import DataflowDescription, SubscribeExport
from foreshore.errors import DatabaseError, InternalError
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.storage.controller import ListenEvent
from foreshore.storage.read_holds import Hold
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

CHANGELOGS = Gauge("foreshore_changelogs", "Collections and queries that have subscribers.")
SUBSCRIPTIONS = Gauge("foreshore_subscriptions", "Subscriptions that are running.")


@dataclass(frozen=True, slots=True)
class _Open:
    source: Source
    close: Callable[[], None]


class Changelogs:
    """All open changelogs and all running subscriptions; equal sources share a changelog."""

    def __init__(self, coordinator: Collections) -> None:
        self._coordinator = coordinator
        self._open: dict[Changelog, _Open] = {}
        self._shared: dict[Source, Changelog] = {}
        self._subscribers: set[Follower] = set()
        self._renderings: WeakValueDictionary[tuple[Relation | None, Form], Rendering] = (
            WeakValueDictionary()
        )
        coordinator.compute.on_stall(self._end_stopped)

    def __iter__(self) -> Iterator[Changelog]:
        return iter(self._open)

    def source(self, log: Changelog) -> Source:
        """Return what an open changelog is of."""
        return self._open[log].source

    def rendering(self, relation: Relation | None, form: Form) -> Rendering:
        """Return the one rendering for these, so that its subscribers share their rows."""
        key = relation, form
        found = self._renderings.get(key)
        if found is None:
            found = self._renderings[key] = Rendering(relation, form)
        return found

    # --- subscribers

    def add(self, subscriber: Follower) -> None:
        """Register a subscription that is starting."""
        self._subscribers.add(subscriber)
        SUBSCRIPTIONS.set(len(self._subscribers))

    def join(self, subscriber: Follower, source: Source, as_of: Timestamp) -> Changelog:
        """Return a changelog with all changes later than `as_of` for a subscriber.

        Only that of a shard may lack some, which the subscriber reads from the shard.
        """
        log = self._shared.get(source)
        if log is None or log.end or not (source.is_shard or log.has_changes(as_of)):
            log = self._listen(source) if source.is_shard else self._stream(source, as_of)
            self._shared[source] = log
            CHANGELOGS.set(len(self._open))
        log.subscribers.add(subscriber)
        return log

    def leave(self, subscriber: Follower, log: Changelog | None) -> None:
        """Remove a subscription; the last one closes its changelog."""
        self._subscribers.discard(subscriber)
        SUBSCRIPTIONS.set(len(self._subscribers))
        if log is not None:
            log.subscribers.discard(subscriber)
            if not log.subscribers:
                self._close(log)

    # --- ends

    def end_dropped(self, reasons: Mapping[str, str]) -> None:
        """End what needs a dropped or altered object; `reasons` says for each why."""
        for log, opened in list(self._open.items()):
            self._end(log, opened.source.end(reasons))
        for subscriber in list(self._subscribers):
            if (error := subscriber.source.end(reasons)) is not None:
                subscriber.interrupt(error)

    def end_unconstrained(self, at: Timestamp, reasons: Mapping[GlobalId, str]) -> None:
        """End at `at` the subscriptions whose plan may need a constraint that is dropped then.

        It is called when `at` is chosen and again when the change is durable. If the change fails
        in between, subscriptions have ended needlessly, but none has sent a wrong row.
        """
        for subscriber in list(self._subscribers):
            lost = sorted(reasons[id] for id in reasons.keys() & subscriber.constrained)
            if lost:
                subscriber.limit(End(at, ended_because(lost[0])))

    def end_unauthorized(self, old: State, new: State) -> None:
        """End the subscriptions whose roles have lost a right that they need."""
        watched = [each for each in self._subscribers if each.watch is not None]
        if not watched or not may_change_rights(old, new):
            return
        planned = self._coordinator.catalog.planned
        lost: dict[Watch, DatabaseError | None] = {}
        for subscriber in watched:
            watch = subscriber.watch
            assert watch is not None
            if watch not in lost:
                lost[watch] = watch.lost(new, planned)
            if (error := lost[watch]) is not None:
                subscriber.revoke(error)

    def _end_stopped(self) -> None:
        """End the changelogs of collections that will not be maintained any more."""
        for log, opened in list(self._open.items()):
            self._end(log, self._coordinator.compute.maintained.obstacle(opened.source.inputs))

    def _end(self, log: Changelog, error: DatabaseError | None) -> None:
        if error is not None:
            log.fail(error)
            self._close(log)

    def close(self) -> None:
        """Close all changelogs."""
        for log in list(self._open):
            self._close(log)

    def _close(self, log: Changelog) -> None:
        """Close a changelog if it is open; its subscribers may still take its events."""
        opened = self._open.pop(log, None)
        if opened is not None:
            if self._shared.get(opened.source) is log:
                del self._shared[opened.source]
            CHANGELOGS.set(len(self._open))
            opened.close()

    # --- sources

    def _listen(self, source: Source) -> Changelog:
        storage, compute = self._coordinator.storage, self._coordinator.compute
        (id,) = source.inputs
        # A new view is readable only from a later time on.
        start = max(storage.upper(id), storage.since(id))
        log = Changelog(start, partial(compute.maintained.first_error, [id]))

        def publish(event: ListenEvent) -> None:
            log.publish(event.lower, event.upper, event.updates)
            if log.end is not None:
                self._close(log)

        self._open[log] = _Open(source, storage.listen(id, start, publish).cancel)
        return log

    def _stream(self, source: Source, as_of: Timestamp) -> Changelog:
        coordinator, id = self._coordinator, self._coordinator.compute.transient_id()
        first_error = partial(coordinator.compute.maintained.first_error, source.inputs)
        log = Changelog(as_of, first_error, with_contents=True)
        hold = coordinator.holds.acquire(source.inputs, as_of, "subscription")
        task = asyncio.get_running_loop().create_task(self._pump(log, source, id, hold))

        def close() -> None:
            task.cancel()
            hold.release()
            if source.index is not None:
                coordinator.compute.unsubscribe_index(id)
            elif coordinator.compute.exports(id):
                coordinator.compute.drop_dataflow(id)

        self._open[log] = _Open(source, close)
        return log

    async def _pump(self, log: Changelog, source: Source, id: GlobalId, hold: Hold) -> None:
        """Publish a dataflow's output; its first batch begins with the contents."""
        compute, as_of = self._coordinator.compute, hold.time
        try:
            if source.index is not None:
                output = await compute.subscribe_index(source.index, id, as_of)
            else:
                assert source.cluster is not None
                imports, exports = tuple(sorted(source.inputs)), (SubscribeExport(id),)
                dataflow = DataflowDescription(
                    id, source.relation, imports, exports, as_of, source.memory
                )
                output = await compute.subscribe(source.cluster, dataflow)
            async for batch in output:
                hold.release()
                log.publish(max(batch.lower, as_of), batch.upper, batch.updates)
                if log.end is not None:
                    break
        except DatabaseError as error:
            log.fail(error)
        except Exception:
            logger.exception("a changelog has failed", extra={"changelog": id})
            log.fail(InternalError("the subscription has failed"))
        finally:
            hold.release()
            self._close(log)
