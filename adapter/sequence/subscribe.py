"""SUBSCRIBE: the contents of a query at one time, and then every change at its own.

The query becomes a dataflow of its own on the session's cluster, dropped when the stream is closed.
Its inputs are held by compute for as long as it runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.coordinator import refuse_system_inputs
from foreshore.adapter.local import evaluate_linear, is_linear
from foreshore.adapter.peek_plan import plan_peek
from foreshore.adapter.result import BATCH_ROWS, BatchSource, Selected
from foreshore.adapter.sequence.peek import choose, filled, timestamp_of, with_time
from foreshore.compute.outputs import Subscription
from foreshore.compute.protocol import DataflowDescription, SubscribeExport
from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.expr.ir import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import Subscribe
from foreshore.types import Datum, RelationDesc, arrow_type
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session import Session


async def subscribe(session: "Session", plan: Subscribe, args: Sequence[Datum]) -> Selected:
    """Run a SUBSCRIBE."""
    transaction = session.begin()
    coordinator = session.coordinator
    if transaction.has_effects:
        raise FeatureNotSupported("SUBSCRIBE after writes in the same transaction is not supported")
    peek = plan_peek(plan.query, lambda id: [])
    refuse_system_inputs(peek.relation, "SUBSCRIBE")
    ids = sorted(peek.shards)
    chosen = choose(session, ids, plan.as_of, args, future=True)
    until = None if plan.up_to is None else timestamp_of(session, plan.up_to, args)
    if until is not None and until < chosen.time:
        raise InvalidParameterValue(
            f"UP TO {until} is before AS OF {chosen.time}", detail="Nothing could come of it."
        )
    relation, _, _ = filled(session, peek, args, chosen.time)
    if not ids and is_linear(relation):
        rows = with_time(evaluate_linear(relation), chosen.time)
        shaped = _shaped(plan, rows) if plan.snapshot else _shaped(plan, rows.slice(0, 0))
        return Selected(plan.desc, BatchSource(shaped), "SUBSCRIBE")
    cluster = coordinator.state.cluster(session.cluster)
    if cluster is None:
        raise UndefinedObject(f'unknown cluster "{session.cluster}"')
    if not coordinator.state.replicas_of(cluster.id):
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" has no replicas available to service request'
        )
    id = session.environment.transient_id()
    description = DataflowDescription(
        id,
        relation,
        tuple(sorted(sources_of(relation))),
        (SubscribeExport(id),),
        chosen.time,
        until,
    )
    with coordinator.holds.acquire(ids, chosen.time):
        subscription = await coordinator.compute.subscribe(cluster.id, description)
    return Selected(
        plan.desc, SubscribeSource(session, plan, id, subscription, chosen.time), "SUBSCRIBE"
    )


class SubscribeSource:
    """The stream of one subscription, in the order of time."""

    streaming = True

    def __init__(
        self,
        session: "Session",
        plan: Subscribe,
        id: GlobalId,
        subscription: Subscription,
        as_of: Timestamp,
    ) -> None:
        self._session = session
        self._plan = plan
        self._id = id
        self._subscription = subscription
        self._as_of = as_of
        self._ready: list[pa.RecordBatch] = []
        self._closed = False
        if plan.progress:
            self._ready.append(_progress(plan.desc, as_of))

    @property
    def has_ready(self) -> bool:
        """Whether `next` need not wait."""
        return bool(self._ready)

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next changes, as soon as there are any."""
        while not self._ready:
            try:
                batch = await anext(self._subscription)
            except StopAsyncIteration:
                self.close()
                return None
            rows = batch.updates
            if rows is not None and not self._plan.snapshot:
                rows = rows.filter(pc.greater(rows.column(rows.num_columns - 2), self._as_of))
            if rows is not None and rows.num_rows:
                self._ready.append(_shaped(self._plan, rows))
            if self._plan.progress:
                self._ready.append(_progress(self._plan.desc, batch.upper))
        first = self._ready[0]
        taken = first.slice(0, min(limit, BATCH_ROWS))
        if taken.num_rows == first.num_rows:
            self._ready.pop(0)
        else:
            self._ready[0] = first.slice(taken.num_rows)
        return taken

    def close(self) -> None:
        """Drop the dataflow."""
        if not self._closed:
            self._closed = True
            compute = self._session.coordinator.compute
            if compute.exports(self._id):
                compute.drop_dataflow(self._id)


def _shaped(plan: Subscribe, updates: pa.Table) -> pa.RecordBatch:
    """Return updates in the columns of the statement, by time."""
    width = len(plan.query.finishing.project)
    order = pc.sort_indices(updates.column(updates.num_columns - 2))
    rows = updates.take(order).combine_chunks()
    columns = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for column in rows.columns
    ]
    times, diffs = columns[-2], columns[-1]
    head = [times]
    if plan.progress:
        head.append(pa.array([False] * len(times), pa.bool_()))
    head.append(diffs)
    body = [columns[i] for i in plan.query.finishing.project[:width]]
    return pa.RecordBatch.from_arrays(
        [*head, *body], names=[f"c{i}" for i in range(len(head) + len(body))]
    )


def _progress(desc: RelationDesc, time: Timestamp) -> pa.RecordBatch:
    """Return the row that says: all before `time` has been sent."""
    types = [arrow_type(column.type) for column in desc.columns]
    columns = [pa.array([time], pa.int64()), pa.array([True], pa.bool_())]
    columns += [pa.nulls(1, type) for type in types[2:]]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(types))])
