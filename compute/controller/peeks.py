"""Peeks of all clusters: sent to all replicas of a cluster, answered by the first.

A peek may also be sent to one replica only.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.compute.controller.cluster import Cluster, PendingPeek, Replica, prepare
from foreshore.compute.protocol import CancelPeek, Peek, PeekResponse
from foreshore.compute.replica.inputs import describe_rows
from foreshore.compute.transport import Tables
from foreshore.errors import DatabaseError, DataError, UndefinedObject
from foreshore.expr.ir import Finishing, Literal, Relation
from foreshore.ids import GlobalId
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """A query to a cluster as of a time.

    With `index`: the rows of that index whose key is in `keys`, or all; `relation` is Map, Filter
    and Project over the Get of the indexed collection. Otherwise the engine evaluates `relation`:
    over the shards, over the cluster's index `indexes[id]` for each `id` that has one, and over
    `tables[id]`, rows provided by the caller. If `replica` is given, only it is asked.
    """

    as_of: Timestamp
    relation: Relation
    finishing: Finishing | None = None
    index: GlobalId | None = None
    keys: tuple[tuple[Literal, ...], ...] | None = None
    imports: tuple[GlobalId, ...] = ()
    indexes: Mapping[GlobalId, GlobalId] = field(default_factory=dict)
    tables: Mapping[GlobalId, pa.Table] = field(default_factory=dict)
    replica: str | None = None

    @property
    def reads(self) -> tuple[GlobalId, ...]:
        """Return the shards and indexes that are read."""
        index = () if self.index is None else (self.index,)
        return (*self.imports, *self.indexes.values(), *index)


@dataclass(slots=True)
class _Pending:
    cluster: Cluster
    replica: str | None  # the only one asked
    reads: tuple[GlobalId, ...]
    answer: asyncio.Future[pa.Table]
    failures: dict[str, DatabaseError] = field(default_factory=dict)  # by the replica's name

    def fail(self, error: DatabaseError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def fail_if_all_have(self) -> None:
        """Fail with the last replica's error if no other connected replica can answer."""
        others = {
            each.name
            for each in self.cluster.replicas.values()
            if each.connection is not None and self.replica in (None, each.name)
        }
        if self.failures and others <= self.failures.keys():
            self.fail(list(self.failures.values())[-1])


class Peeks:
    """The unanswered peeks of all clusters."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._last = 0

    async def ask(
        self, cluster: Cluster, request: PeekRequest, snapshots: Sequence[Snapshot]
    ) -> pa.Table:
        """Return the answer of the first replica, or raise its error.

        `snapshots` are of the request's imports and are always released. Raises UndefinedObject if
        the replica asked does not exist or is dropped.
        """
        self._last += 1
        number = self._last
        answer: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()
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
            )
            if request.replica is not None and request.replica not in cluster.replicas:
                raise _dropped(cluster, request.replica)
            self._pending[number] = _Pending(cluster, request.replica, request.reads, answer)
            cluster.ask(PendingPeek(peek, tables, request.replica))
            return await answer
        finally:
            self._pending.pop(number, None)
            others = len(cluster.replicas) > 1 and request.index is None and request.replica is None
            if others or answer.cancelled():  # cancelled with its caller
                cluster.send(CancelPeek(number))
            cluster.forget_peek(number)
            for snapshot in snapshots:
                snapshot.release()

    def answered(self, replica: Replica, response: PeekResponse, tables: Tables) -> None:
        """Process a replica's answer. Its own failure counts only if the others fail as well."""
        pending = self._pending.get(response.number)
        if pending is None:
            return
        failure = response.failure
        if failure is None:
            if not pending.answer.done():
                pending.answer.set_result(tables[0])
            return
        kind = DataError if failure.sqlstate.startswith("22") else DatabaseError
        error = kind(
            failure.message, sqlstate=failure.sqlstate, detail=failure.detail, hint=failure.hint
        )
        pending.failures[replica.name] = error
        if failure.sqlstate.startswith(("22", "57014")):
            pending.fail(error)
        else:
            pending.fail_if_all_have()

    def lost(self, cluster: Cluster, replica: Replica) -> None:
        """Forget a replica's failures; it is asked again after it reconnects."""
        for pending in self._pending.values():
            if pending.cluster is cluster:
                pending.failures.pop(replica.name, None)

    def dropped(self, cluster: Cluster) -> None:
        """Note that a replica of the cluster was dropped and will not answer."""
        for pending in self._pending.values():
            if pending.cluster is not cluster:
                continue
            if pending.replica is not None and pending.replica not in cluster.replicas:
                pending.fail(_dropped(cluster, pending.replica))
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


def _dropped(cluster: Cluster, replica: str) -> UndefinedObject:
    return UndefinedObject(f'cluster replica "{cluster.id}.{replica}" was dropped')
