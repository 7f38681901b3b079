"""EXPLAIN FRESHNESS: what a query would read, all that this is made of, and what holds it up.

It looks at the present state and waits for nothing, so that it answers when nothing else does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foreshore.adapter.introspection.freshness import LATE_MS, Collection, Freshness, freshness_of
from foreshore.adapter.read.cluster_choice import collections_read
from foreshore.adapter.read.result import BatchSource, Selected
from foreshore.adapter.session.context import StatementContext
from foreshore.calendar import TIMESTAMP_INFINITY
from foreshore.catalog.item import Item
from foreshore.compute.finish import batch_of_rows
from foreshore.compute.replica.progress import Progress
from foreshore.expr.ir import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import FRESHNESS_DESC, ExplainFreshness, Query
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import Datum
from foreshore.update import EMPTY, Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

Row = tuple[Datum, ...]


def explain_freshness(context: StatementContext, plan: ExplainFreshness) -> Selected:
    """Run EXPLAIN FRESHNESS: a row for each collection, what is read before what it is made of."""
    coordinator = context.coordinator
    if isinstance(plan.of, Query):
        assert context.prepared.peek is not None
        read = collections_read(context, context.prepared.peek)
    else:
        read = {plan.of}
    new = sorted(read - coordinator.holds.collections.keys())  # of this transaction
    below = _with_inputs(coordinator, read.difference(new))
    progress = {id: _progress(coordinator, id) for id in below}
    known = [
        Collection(id, progress[id].state, _upper(coordinator, id), inputs)
        for id, inputs in below.items()
    ]
    judged = freshness_of(known, coordinator.oracle.read_ts(), coordinator.clock.now())
    rows = [
        *(_uncommitted(context, id) for id in new),
        *(_row(context, each, progress[each.id], judged[each.id]) for each in known),
    ]
    batch = batch_of_rows(rows, FRESHNESS_DESC.columns)
    return Selected(FRESHNESS_DESC, BatchSource(batch), "EXPLAIN")


def _with_inputs(
    coordinator: "Coordinator", read: Iterable[GlobalId]
) -> dict[GlobalId, frozenset[GlobalId]]:
    """Return collections and all that they are made of, each with its inputs and before them."""
    found: dict[GlobalId, frozenset[GlobalId]] = {}
    stack = sorted(read, reverse=True)
    while stack:
        id = stack.pop()
        if id in found:
            continue
        item = coordinator.state.item(id)
        made_of = frozenset() if item.type == "table" else sources_of(coordinator.relation_of(item))
        found[id] = made_of
        stack += sorted(made_of, reverse=True)
    return found


def _upper(coordinator: "Coordinator", id: GlobalId) -> Timestamp | None:
    """Return the upper of a collection, None if it cannot be read at any time yet."""
    if id in coordinator.as_ofs and not coordinator.is_hydrated(id):
        return None
    return coordinator.upper(id)


def _progress(coordinator: "Coordinator", id: GlobalId) -> Progress:
    """Return how it stands with what keeps a collection; of a table that is the group commit."""
    if (corruption := coordinator.storage.corruptions.of(id)) is not None:
        return Progress("damaged", failure=corruption.message)
    if id in coordinator.as_ofs:
        return coordinator.compute.progress(id)
    error = coordinator.group.standstill
    return Progress("running") if error is None else Progress("not written", failure=str(error))


def _row(context: StatementContext, each: Collection, progress: Progress, judged: Freshness) -> Row:
    coordinator = context.coordinator
    item = coordinator.state.item(each.id)
    reason = None
    if judged.culprit or progress.state not in ("running", "waiting"):
        reason = _reason(coordinator, item, progress)
    elif judged.late and judged.slowest_input is not None:
        reason = f"waits for {_name(context, judged.slowest_input)}"
    return (
        _name(context, each.id),
        item.type,
        None if item.cluster is None else coordinator.state.objects[item.cluster].name,
        progress.state,
        _timestamptz(each.upper),
        _interval(judged.wallclock_lag),
        _interval(judged.oracle_lag),
        _interval(judged.own_lag),
        judged.culprit,
        reason,
    )


def _uncommitted(context: StatementContext, id: GlobalId) -> Row:
    """Return the row of what only the running transaction knows."""
    item = context.planner.reader().state.item(id)
    nothing = (None, None, None, None)
    return (_name(context, id), item.type, None, "uncommitted", *nothing, False, None)


def _reason(coordinator: "Coordinator", item: Item, progress: Progress) -> str:
    """Return why a collection is not further, as far as that is known."""
    replica = ""
    if progress.replica is not None:
        replica = f'replica "{coordinator.state.objects[progress.replica].name}"'
    failure = "" if progress.failure is None else f": {progress.failure}"
    busy = f"{progress.busy_ms / 1000:.1f} s"
    match progress.state:
        case "no replica":
            assert item.cluster is not None, item
            return f'cluster "{coordinator.state.objects[item.cluster].name}" has no replica'
        case "replica starting":
            failed = progress.starts - 1
            starts = f", after {failed} that came to nothing" if failed else ""
            return f"{replica} is starting{starts}{failure}"
        case "replica silent":
            return f"{replica} has not given an account of itself for {busy}"
        case "waiting":
            return "its inputs are not known yet at the time as of which it begins"
        case "pending":
            return f"{replica} has not begun to fill it; it fills one after the other"
        case "hydrating":
            before = f"; before, that failed{failure}" if failure else ""
            return f"it is being filled, for {busy} by now{before}"
        case "failed":
            return f"its dataflow failed, and is tried again{failure}"
        case "not written":
            return f"nothing is written{failure}"
        case "damaged":
            return progress.failure or ""
        case "running" if item.type == "table":
            return "no later time has been given out"
        case "running" if progress.busy_ms >= LATE_MS:
            return f"its tick has been running for {busy}"
        case "running":
            ticks = f", and one begins every {progress.tick_ms} ms" if progress.tick_ms else ""
            return f"it is behind its inputs; its last tick took {progress.step_ms:.1f} ms{ticks}"


def _name(context: StatementContext, id: GlobalId) -> str:
    """Return a collection's full name, as the transaction sees it if that knows it."""
    seen, state = context.planner.reader().state, context.coordinator.state
    found = seen if id in seen.objects else state
    return dotted(found.full_name(found.item(id)))


def _timestamptz(time: Timestamp | None) -> Datum:
    if time is None:
        return None
    return TIMESTAMP_INFINITY if time == EMPTY else 1000 * time


def _interval(lag_ms: int | None) -> Datum:
    return None if lag_ms is None else (0, 0, 1000 * lag_ms)
