"""EXPLAIN FRESHNESS: the collections that a query would read, their inputs, and what delays them.

It shows the present state and waits for nothing, so that it answers even if no query does.
"""

from collections.abc import Iterable

from foreshore.adapter.introspection.failing_views import failing_of
from foreshore.adapter.read.bound.cluster_choice import collections_read
from foreshore.adapter.services.names import Names
from foreshore.adapter.services.tables import Tables
from foreshore.adapter.services.times import Times
from foreshore.adapter.services.views import Views
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.calendar import TIMESTAMP_INFINITY
from foreshore.compute.controller.freshness import (
    Collection,
    Freshness,
    delay_reason,
    freshness_of,
)
from foreshore.compute.controller.progress import Progress
from foreshore.compute.finish import batch_of_rows
from foreshore.ids import GlobalId
from foreshore.sql.plan import FRESHNESS_DESC, ExplainFreshness, Query
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import Datum
from foreshore.update import EMPTY, Timestamp

Row = tuple[Datum, ...]


def explain_freshness(context: StatementContext, plan: ExplainFreshness) -> Selected:
    """Run EXPLAIN FRESHNESS: a row for each collection, each before its inputs."""
    times = context.times
    if isinstance(plan.of, Query):
        assert context.prepared.made.peek is not None
        read = collections_read(context, context.prepared.made.peek)
    else:
        read = {plan.of}
    new = sorted(read - times.holds.collections.keys())  # in this transaction
    below = _with_inputs(context.names, read.difference(new))
    progress = {id: _progress(context.tables, context.views, id) for id in below}
    known = [
        Collection(id, progress[id].state, _upper(context.times, context.views, id), inputs)
        for id, inputs in below.items()
    ]
    judged = freshness_of(known, times.oracle.read_ts(), times.clock.now())
    rows = [
        *(_uncommitted(context, id) for id in new),
        *(_row(context, each, progress[each.id], judged[each.id]) for each in known),
    ]
    batch = batch_of_rows(rows, FRESHNESS_DESC.columns)
    return Selected(FRESHNESS_DESC, BatchSource(batch), "EXPLAIN")


def _with_inputs(names: Names, read: Iterable[GlobalId]) -> dict[GlobalId, frozenset[GlobalId]]:
    """Return the inputs of collections and of all collections below, each before its inputs."""
    found: dict[GlobalId, frozenset[GlobalId]] = {}
    stack = sorted(read, reverse=True)
    while stack:
        id = stack.pop()
        if id in found:
            continue
        item = names.state.item(id)
        inputs = frozenset() if item.type == "table" else names.catalog.sources(item.id)
        found[id] = inputs
        stack += sorted(inputs, reverse=True)
    return found


def _upper(times: Times, views: Views, id: GlobalId) -> Timestamp | None:
    """Return the upper of a collection, None if it is not readable yet."""
    if id in views.as_ofs and not views.is_hydrated(id):
        return None
    return times.upper(id)


def _progress(tables: Tables, views: Views, id: GlobalId) -> Progress:
    """Return the progress of a collection's dataflow, or of the group commit for a table."""
    if (corruption := tables.storage.corruptions.of(id)) is not None:
        return Progress("damaged", failure=corruption.message)
    if id in views.as_ofs:
        return views.compute.progress(id)
    error = tables.group.standstill
    return Progress("running") if error is None else Progress("not written", failure=str(error))


def _row(context: StatementContext, each: Collection, progress: Progress, judged: Freshness) -> Row:
    objects = context.names.state.objects
    item = context.names.state.item(each.id)
    cluster = None if item.cluster is None else objects[item.cluster].name
    reason = None
    if judged.culprit or progress.state not in ("running", "waiting"):
        replica = "" if progress.replica is None else objects[progress.replica].name
        reason = delay_reason(progress, replica, cluster or "", is_table=item.type == "table")
    elif judged.late and judged.slowest_input is not None:
        reason = f"waits for {_name(context, judged.slowest_input)}"
    state: str = progress.state
    failing = failing_of(context, each.id) if state == "running" else None
    if failing is not None:
        state = "failing"
        reason = f"reads of it fail: {failing.error or 'its data have errors'}"
    return (
        _name(context, each.id),
        item.type,
        cluster,
        state,
        _timestamptz(each.upper),
        _interval(judged.wallclock_lag),
        _interval(judged.oracle_lag),
        _interval(judged.own_lag),
        judged.culprit,
        reason,
    )


def _uncommitted(context: StatementContext, id: GlobalId) -> Row:
    """Return the row of a collection that the running transaction has created."""
    item = context.planner.reader().state.item(id)
    nothing = (None, None, None, None)
    return (_name(context, id), item.type, None, "uncommitted", *nothing, False, None)


def _name(context: StatementContext, id: GlobalId) -> str:
    """Return a collection's full name, as the transaction sees it if it sees the collection."""
    seen, state = context.planner.reader().state, context.names.state
    found = seen if id in seen.objects else state
    return dotted(found.full_name(found.item(id)))


def _timestamptz(time: Timestamp | None) -> Datum:
    if time is None:
        return None
    return TIMESTAMP_INFINITY if time == EMPTY else 1000 * time


def _interval(lag_ms: int | None) -> Datum:
    return None if lag_ms is None else (0, 0, 1000 * lag_ms)
