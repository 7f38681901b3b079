"""Peeks of all clusters: sent to all replicas of a cluster, answered by the first.

A peek may also be sent to one replica only.

An answer of many rows comes in parts, each of which is put into the result before more are
requested. If the replica is lost before the last part, the peek starts again. A query fails
if each replica has ended `MOST_LOST` times while it was asked: it may be what ends them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore import blocking
from foreshore.compute.controller.cluster import Cluster, PendingPeek, Replica, prepare
from foreshore.compute.inputs import describe_rows
from foreshore.compute.protocol import (
    PEEK_WINDOW,
    BulkChoice,
    CancelPeek,
    Peek,
    PeekPartTaken,
    PeekResponse,
)
from foreshore.compute.result import KEPT_BYTES, Result, one_batch
from foreshore.compute.span import Span
from foreshore.errors import DatabaseError, DataError, Unavailable, UndefinedObject
from foreshore.expr.ir import Finishing, Literal, Relation
from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp

MOST_LOST = 3


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """A query to a cluster as of a time.

    With `index`: the rows of that index whose key is in `keys`, or those in `span`, or all;
    `relation` is Map, Filter and Project over the Get of the indexed collection. Otherwise the
    engine evaluates `relation`:
    over the shards, over the cluster's index `indexes[id]` for each `id` that has one, and over
    `tables[id]`, rows provided by the caller. If `replica` is given, only it is asked. If it
    `is_repeated`, `relation` and `finishing` are the same objects each time that it is asked.
    """

    as_of: Timestamp
    relation: Relation
    finishing: Finishing | None = None
    index: GlobalId | None = None
    keys: tuple[tuple[Literal, ...], ...] | None = None
    span: Span | None = None
    imports: tuple[GlobalId, ...] = ()
    indexes: Mapping[GlobalId, GlobalId] = field(default_factory=dict)
    tables: Mapping[GlobalId, pa.Table] = field(default_factory=dict)
    replica: str | None = None
    is_repeated: bool = False
    bulk: BulkChoice | None = None
    memory: int | None = None  # the most bytes that its evaluation may take

    @property
    def reads(self) -> tuple[GlobalId, ...]:
        """Return the shards and indexes that are read."""
        index = () if self.index is None else (self.index,)
        return (*self.imports, *self.indexes.values(), *index)


class _ReplicaLost(Exception):
    """The replica was lost before the last part of its answer."""


@dataclass(slots=True)
class _Pending:
    cluster: Cluster
    replica: str | None  # the only one asked
    reads: tuple[GlobalId, ...]
    waits: bool  # perhaps for an index, so that a replica may have it and not evaluate it
    lost: Counter[str]  # how often a replica, by name, has ended while it may have evaluated it
    parts: list[tuple[pa.Table, bool]] = field(default_factory=list)  # and whether more follow
    arrival: asyncio.Future[None] | None = None  # of a part or an error that is waited for
    error: Exception | None = None
    complete: bool = False  # whether the last part has come
    answering: Replica | None = None  # whose parts count, from the first on
    failures: dict[str, DatabaseError] = field(default_factory=dict)  # by the replica's name

    def fail(self, error: Exception) -> None:
        if self.error is None and not self.complete:
            self.error = error
            self._arrived()

    def put(self, rows: pa.Table, *, more: bool) -> None:
        assert len(self.parts) <= PEEK_WINDOW, "a replica sends more than it may"
        self.complete = not more
        self.parts.append((rows, more))
        self._arrived()

    def _arrived(self) -> None:
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(None)

    def note_lost(self, replica: Replica) -> None:
        """Note that a replica has ended by itself; fails if each that is asked has, too often.

        One that has failed, or was cancelled as another one answers, did not evaluate it.
        """
        is_asked = self.replica in (None, replica.name) and replica.name not in self.failures
        if self.waits or self.complete or not is_asked:
            return
        if self.answering not in (None, replica):
            return
        self.lost[replica.name] += 1
        names = self.cluster.replicas if self.replica is None else (self.replica,)
        if all(self.lost[name] >= MOST_LOST for name in names):
            self.fail(_lost_too_often())

    def fail_if_all_have(self) -> None:
        """Fail with the last replica's error if no other connected replica can answer."""
        others = {
            each.name
            for each in self.cluster.replicas.values()
            if each.connection is not None and self.replica in (None, each.name)
        }
        if self.failures and others <= self.failures.keys():
            self.fail(list(self.failures.values())[-1])

    async def next(self) -> tuple[pa.Table, bool]:
        """Return the next part, and whether more follow; raises the error that comes instead."""
        if not self.parts and self.error is None:
            self.arrival = asyncio.get_running_loop().create_future()
            await self.arrival
        if self.error is not None:
            raise self.error
        return self.parts.pop(0)


class Peeks:
    """The unanswered peeks of all clusters."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._last = 0

    async def ask(
        self, cluster: Cluster, request: PeekRequest, snapshots: Sequence[Snapshot]
    ) -> Result:
        """Return the answer of the first replica, or raise its error.

        `snapshots` are of the request's imports and are always released. Raises UndefinedObject if
        the replica asked does not exist or is dropped.
        """
        lost: Counter[str] = Counter()
        try:
            while True:
                with suppress(_ReplicaLost):
                    return await self._ask_once(cluster, request, snapshots, lost)
        finally:
            for snapshot in snapshots:
                snapshot.release()

    async def _ask_once(
        self,
        cluster: Cluster,
        request: PeekRequest,
        snapshots: Sequence[Snapshot],
        lost: Counter[str],
    ) -> Result:
        self._last += 1
        number = self._last
        waits = request.index is not None or bool(request.indexes)
        pending = _Pending(cluster, request.replica, request.reads, waits, lost)
        answered = False
        try:
            _, messages, tables = prepare(snapshots)
            for id, rows in request.tables.items():
                message, table = describe_rows(id, rows, request.as_of)
                messages = (*messages, message)
                tables.append(table)
            peek = Peek(
                number,
                request.as_of,
                request.relation,
                request.finishing,
                request.index,
                request.keys,
                messages,
                dict(request.indexes),
                request.span,
                request.bulk,
                request.memory,
            )
            if request.replica is not None and request.replica not in cluster.replicas:
                raise _dropped(cluster, request.replica)
            self._pending[number] = pending
            await cluster.ask(PendingPeek(peek, tables, request.replica))
            result = await self._answer(number, pending)
            answered = True
            return result
        finally:
            self._pending.pop(number, None)
            others = len(cluster.replicas) > 1 and request.index is None and request.replica is None
            if others or not answered:
                cluster.send(CancelPeek(number))
            cluster.forget_peek(number)

    async def _answer(self, number: int, pending: _Pending) -> Result:
        """Return the rows as they come from the replica that answers."""
        table, more = await pending.next()
        if not more and table.get_total_buffer_size() <= KEPT_BYTES:
            return Result.of(one_batch(table))
        result = Result(table.schema)
        try:
            while True:
                await blocking.run(None, result.add, one_batch(table))
                if not more:
                    return result
                if pending.answering is not None and pending.answering.connection is not None:
                    pending.answering.connection.send(PeekPartTaken(number))
                table, more = await pending.next()
        except BaseException:
            result.close()
            raise

    def answered(self, replica: Replica, response: PeekResponse, tables: Tables) -> None:
        """Process a replica's answer. Its own failure counts only if the others fail as well."""
        pending = self._pending.get(response.number)
        if pending is None or pending.answering not in (None, replica):
            return
        failure = response.failure
        if failure is None:
            if pending.answering is None:
                self._choose(response.number, pending, replica)
            pending.put(tables[0], more=response.more)
            return
        kind = DataError if failure.sqlstate.startswith("22") else DatabaseError
        error = kind(
            failure.message, sqlstate=failure.sqlstate, detail=failure.detail, hint=failure.hint
        )
        error.collection = failure.collection
        pending.failures[replica.name] = error
        if failure.sqlstate.startswith(("22", "57014")) or pending.answering is replica:
            pending.fail(error)
        else:
            pending.fail_if_all_have()

    def _choose(self, number: int, pending: _Pending, replica: Replica) -> None:
        """Choose the answer of `replica`, and cancel long evaluations on the others."""
        pending.answering = replica
        for other in pending.cluster.replicas.values():
            if other is not replica and other.connection is not None:
                other.connection.send(CancelPeek(number))

    def lost(self, cluster: Cluster, replica: Replica) -> None:
        """Forget a replica's failures; it is asked again after it reconnects."""
        for pending in self._pending.values():
            if pending.cluster is cluster:
                if cluster.replicas.get(replica.name) is replica:  # else it was dropped
                    pending.note_lost(replica)
                pending.failures.pop(replica.name, None)
                if pending.answering is replica:
                    pending.fail(_ReplicaLost())

    def dropped(self, cluster: Cluster) -> None:
        """Note that a replica of the cluster was dropped and will not answer."""
        for pending in self._pending.values():
            if pending.cluster is not cluster:
                continue
            if pending.replica is not None and pending.replica not in cluster.replicas:
                pending.fail(_dropped(cluster, pending.replica))
            elif pending.answering not in (None, *cluster.replicas.values()):
                pending.fail(_ReplicaLost())
            else:
                pending.fail_if_all_have()

    def fail_for(self, why: Callable[[Iterable[GlobalId]], DatabaseError | None]) -> None:
        """Fail the peeks that read collections for which `why` returns an error."""
        for pending in self._pending.values():
            if (error := why(pending.reads)) is not None:
                pending.fail(error)

    def fail(self, cluster: Cluster, error: DatabaseError) -> None:
        """Fail all peeks of a cluster with an error."""
        for pending in self._pending.values():
            if pending.cluster is cluster:
                pending.fail(error)


def _lost_too_often() -> Unavailable:
    return Unavailable(
        f"{MOST_LOST} processes of the cluster have ended while they evaluated the query",
        sqlstate="58000",
        detail="They may have been killed because it needs too much memory.",
        hint="max_query_memory bounds the memory of a query.",
    )


def _dropped(cluster: Cluster, replica: str) -> UndefinedObject:
    return UndefinedObject(f'cluster replica "{cluster.id}.{replica}" was dropped')
