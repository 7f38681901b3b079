"""All tails of the environment: one for each shard, index or query that somebody follows.

    shard   its listener in storage; who begins, or has fallen behind, reads the shard itself
    index   what its dataflow puts out, told by the replicas; it is not computed a second time
    query   a dataflow of its own, shared by all on the cluster that follow the same query

A tail of an index or a query begins with the contents as of a time, for the one who opened it. Who
comes later takes the contents by a query, as of a time from which the tail has everything. It ends
with the last who follows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from foreshore.adapter.read.read_holds import Hold
from foreshore.adapter.subscribe.changelog import Behind, Cursor, Tail
from foreshore.compute.controller.outputs import Subscription
from foreshore.compute.protocol import DataflowDescription, SubscribeExport
from foreshore.errors import (
    DatabaseError,
    DataError,
    InternalError,
    ObjectNotInPrerequisiteState,
)
from foreshore.expr.ir import Relation, sources_of
from foreshore.ids import GlobalId, global_id
from foreshore.storage.controller import ListenEvent
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

logger = logging.getLogger(__name__)

TAILS = Gauge("adapter_tails", "Collections and queries that are followed.")
SUBSCRIPTIONS = Gauge("adapter_subscriptions", "Subscriptions that follow them.")


@dataclass(eq=False, slots=True)
class _Open:
    tail: Tail
    key: object
    sources: frozenset[GlobalId]  # whose end is its end
    close: Callable[[], None]
    cluster: str | None  # that of a query, whose end is its end as well


class Tails:
    """The tails that are open."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._open: dict[Tail, _Open] = {}
        self._shared: dict[object, Tail] = {}
        self._cursors: set[Cursor] = set()
        self._ids = count(1)
        coordinator.compute.on_stall(self._stand_still)

    def __iter__(self) -> Iterator[Tail]:
        return iter(self._open)

    def shard(self, id: GlobalId) -> Tail:
        """Return the tail of a table or a materialized view."""
        found = self._shared.get(id)
        if found is not None and found.failure is None:
            return found
        storage, compute = self._coordinator.storage, self._coordinator.compute
        first_error = partial(compute.maintained.first_error, [id])
        start = max(storage.upper(id), storage.since(id))  # a new view is readable from later on
        tail = Tail(id, start, first_error)

        def heard(event: ListenEvent) -> None:
            tail.publish(event.lower, event.upper, event.updates)
            if tail.failure is not None:  # those who follow take what was heard before it
                self._close(tail)

        listen = storage.listen(id, tail.frontier, heard)
        return self._opened(tail, id, frozenset({id}), listen.cancel)

    def index(self, index: GlobalId, as_of: Timestamp) -> tuple[Tail, bool]:
        """Return the tail of an index, and whether it begins with the contents as of `as_of`.

        Raises Behind if what comes after that has gone.
        """
        compute = self._coordinator.compute
        number = self._id()
        return self._streamed(
            ("index", index),
            frozenset({index}),
            as_of,
            lambda: compute.subscribe_index(index, number, as_of),
            lambda: compute.unsubscribe_index(number),
        )

    def query(self, cluster: str, relation: Relation, as_of: Timestamp) -> tuple[Tail, bool]:
        """Return the tail of a query over shards, as `index` does."""
        compute = self._coordinator.compute
        id = self._id()
        sources = sources_of(relation)
        export = SubscribeExport(id)
        description = DataflowDescription(id, relation, tuple(sorted(sources)), (export,), as_of)

        def close() -> None:
            if compute.exports(id):
                compute.drop_dataflow(id)

        return self._streamed(
            ("query", cluster, relation),
            sources,
            as_of,
            lambda: compute.subscribe(cluster, description),
            close,
            cluster,
        )

    def join(self, tail: Tail, cursor: Cursor) -> None:
        """Hear that somebody follows."""
        tail.cursors.add(cursor)
        self._cursors.add(cursor)
        SUBSCRIPTIONS.inc()

    def leave(self, tail: Tail, cursor: Cursor) -> None:
        """Hear that somebody follows no longer; the last one closes the tail."""
        tail.cursors.discard(cursor)
        self._cursors.discard(cursor)
        SUBSCRIPTIONS.dec()
        if not tail.cursors and tail in self._open:
            self._close(tail)

    def ended(self, reasons: dict[str, str]) -> None:
        """End the tails of collections and in clusters that are no more, each id for a reason."""
        for opened in list(self._open.values()):
            gone = sorted(reasons[id] for id in reasons.keys() & {*opened.sources, opened.cluster})
            if gone:
                opened.tail.fail(_has_ended(gone[0]))
                self._close(opened.tail)

    def promise_less(self, at: Timestamp, reasons: dict[GlobalId, str]) -> None:
        """End who follows by a plan that may rest on what tables promise no longer from `at` on.

        The tails go on for others, but nobody joins that of a query which was planned so.
        It is told when `at` is chosen and when that is durable; should storage fail in between,
        they have ended for nothing, rather than been told what is not so.
        """
        for cursor in self._cursors:
            lost = sorted(reasons[id] for id in reasons.keys() & cursor.rests_on)
            if lost:
                cursor.end(at, _has_ended(lost[0]))
        for opened in self._open.values():
            is_query = opened.cluster is not None
            if is_query and any(reasons.keys() & each.rests_on for each in opened.tail.cursors):
                self._unshare(opened)

    def _stand_still(self) -> None:
        """End the tails of what does not go on any more."""
        for opened in list(self._open.values()):
            error = self._coordinator.compute.maintained.obstacle(opened.sources)
            if error is not None:
                opened.tail.fail(error)
                self._close(opened.tail)

    def close(self) -> None:
        """Close all of them."""
        for tail in list(self._open):
            self._close(tail)

    def _id(self) -> GlobalId:
        return global_id("t", next(self._ids))

    def _streamed(
        self,
        key: object,
        sources: frozenset[GlobalId],
        as_of: Timestamp,
        begin: Callable[[], Awaitable[Subscription]],
        end: Callable[[], None],
        cluster: str | None = None,
    ) -> tuple[Tail, bool]:
        shared = self._shared.get(key)
        if shared is not None and shared.failure is None and shared.place(as_of) is not None:
            return shared, False
        holds = self._coordinator.holds
        if any(as_of < holds.since(id) for id in sources):
            raise Behind
        first_error = partial(self._coordinator.compute.maintained.first_error, sources)
        tail = Tail(str(key), as_of + 1, first_error)
        tail.frontier = as_of  # the contents then are yet to be heard
        hold = holds.acquire(sources, as_of, "subscription")
        work = self._pump(tail, sources, as_of, hold, begin)
        task = asyncio.get_running_loop().create_task(work)

        def close() -> None:
            task.cancel()
            hold.release()
            end()

        return self._opened(tail, key, sources, close, cluster), True

    async def _pump(
        self,
        tail: Tail,
        sources: frozenset[GlobalId],
        as_of: Timestamp,
        hold: Hold,
        begin: Callable[[], Awaitable[Subscription]],
    ) -> None:
        """Publish what comes; the first batch begins with the contents as of `as_of`."""
        coordinator = self._coordinator
        try:
            for id in sources:
                await coordinator.wait_readable(id, as_of)
            # what a view's writer knows of its errors, others cannot see from its rows
            await coordinator.compute.maintained.check_errors(sources, as_of)
            subscription = await begin()
            async for batch in subscription:
                hold.release()
                tail.publish(max(batch.lower, as_of), batch.upper, batch.updates)
                if tail.failure is not None:
                    break
        except DataError as error:
            tail.fail(error, at=tail.frontier)
        except DatabaseError as error:
            tail.fail(error)
        except Exception:
            logger.exception("a tail has failed", extra={"tail": tail.name})
            tail.fail(InternalError("the subscription has failed"))
        finally:
            hold.release()
            if tail in self._open:  # it has failed: nothing is computed for it any more
                self._close(tail)

    def _opened(
        self,
        tail: Tail,
        key: object,
        sources: Iterable[GlobalId],
        close: Callable[[], None],
        cluster: str | None = None,
    ) -> Tail:
        self._open[tail] = _Open(tail, key, frozenset(sources), close, cluster)
        shared = self._shared.get(key)
        if shared is None or shared.failure is not None or tail.heard_from < shared.heard_from:
            self._shared[key] = tail  # more of those who come find their place in it
        TAILS.set(len(self._open))
        return tail

    def _close(self, tail: Tail) -> None:
        opened = self._open.pop(tail)
        self._unshare(opened)
        TAILS.set(len(self._open))
        opened.close()

    def _unshare(self, opened: _Open) -> None:
        if self._shared.get(opened.key) is opened.tail:
            del self._shared[opened.key]


def _has_ended(reason: str) -> DatabaseError:
    return ObjectNotInPrerequisiteState(f"the subscription has ended because {reason}")
