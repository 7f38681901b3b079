"""Peeks: questions asked of all replicas of a cluster, of which the first to answer is heard.

Or of one of them, and then nobody else's answer will do.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.compute.controller.cluster import Asked, Cluster, Replica, prepare
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
    """What is asked of a cluster as of a time.

    With `index`: rows of that index, those whose key is one of `keys` or all; `relation` is Map,
    Filter and Project over the Get of what it arranges. Else `relation` is evaluated whole: over
    the shards it reads, over the cluster's index `indexes[id]` for an `id` that has one, and over
    `tables[id]`, rows that the caller has. `replica` alone is asked if it is given.
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
        """The shards and indexes that are read."""
        index = () if self.index is None else (self.index,)
        return (*self.imports, *self.indexes.values(), *index)


@dataclass(slots=True)
class _Pending:
    cluster: Cluster
    replica: str | None  # who alone is asked
    reads: tuple[GlobalId, ...]
    answer: asyncio.Future[pa.Table]
    failures: dict[str, DatabaseError] = field(default_factory=dict)  # by the replica's name

    def fail(self, error: DatabaseError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def fail_if_all_have(self) -> None:
        """Fail as the last replica did that has, if no other that is connected can answer."""
        others = {
            each.name
            for each in self.cluster.replicas.values()
            if each.connection is not None and self.replica in (None, each.name)
        }
        if self.failures and others <= self.failures.keys():
            self.fail(list(self.failures.values())[-1])


class Peeks:
    """The peeks of all clusters that are not answered yet."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._last = 0

    async def ask(
        self, cluster: Cluster, request: PeekRequest, snapshots: Sequence[Snapshot]
    ) -> pa.Table:
        """Return the answer, from the replica that is first; raises the error that it is.

        `snapshots` are of the request's imports; they are released, whatever becomes of it.
        Raises UndefinedObject if there is no such replica as is to be asked, or it is dropped.
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
            cluster.ask(Asked(peek, tables, request.replica))
            return await answer
        finally:
            self._pending.pop(number, None)
            others = len(cluster.replicas) > 1 and request.index is None and request.replica is None
            if others or answer.cancelled():  # as it is when whoever awaited it has been
                cluster.send(CancelPeek(number))
            cluster.forget_peek(number)
            for snapshot in snapshots:
                snapshot.release()

    def answered(self, replica: Replica, response: PeekResponse, tables: Tables) -> None:
        """Hear a replica's answer. A failure of its own counts only if the others fail as well."""
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
        """Forget how a replica failed that will be asked again when it is back."""
        for pending in self._pending.values():
            if pending.cluster is cluster:
                pending.failures.pop(replica.name, None)

    def dropped(self, cluster: Cluster) -> None:
        """Hear that a cluster has a replica less, for whose answer nobody waits any more."""
        for pending in self._pending.values():
            if pending.cluster is not cluster:
                continue
            if pending.replica is not None and pending.replica not in cluster.replicas:
                pending.fail(_dropped(cluster, pending.replica))
            else:
                pending.fail_if_all_have()

    def fail_for(self, why: Callable[[Iterable[GlobalId]], DatabaseError | None]) -> None:
        """Answer with an error what reads collections of which `why` gives one."""
        for pending in self._pending.values():
            if (error := why(pending.reads)) is not None:
                pending.fail(error)

    def fail(self, cluster: Cluster, error: DatabaseError) -> None:
        """Answer all that is asked of a cluster with an error."""
        for pending in self._pending.values():
            if pending.cluster is cluster:
                pending.fail(error)


def _dropped(cluster: Cluster, replica: str) -> UndefinedObject:
    return UndefinedObject(f'cluster replica "{cluster.id}.{replica}" was dropped')
