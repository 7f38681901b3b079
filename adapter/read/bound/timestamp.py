"""The time at which a statement reads: chosen by its transaction's first read, held until the end.

`timestamp_selection.py` chooses, as a pure function. This file gives it the state of the inputs,
and keeps the choice in the transaction. A transaction that has read only under keys that it has
locked moves to the newest time before it reads again.

A view's rows at a time are what its query gives at that time. So AS OF a time that a materialized
view does not know, because it was made later or has forgotten it, its query is evaluated, if all
that this reads knows the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.read.bound.cluster_choice import collections_read
from foreshore.adapter.services.names import Names
from foreshore.adapter.services.times import Times
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.transaction.timestamp_selection import (
    Interval,
    Selection,
    require_readable,
    select_timestamp,
)
from foreshore.catalog.item import Item
from foreshore.errors import InvalidParameterValue
from foreshore.expr.ir import Literal
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Changes
from foreshore.types import MZ_TIMESTAMP
from foreshore.update import Timestamp

FAR_AHEAD_MS = 20_000  # of a requested time from which on waiting for it sends a notice
FAR_BEHIND_MS = 20_000  # lag of an input from which on waiting for it does
FILLING_SECONDS = 10.0  # of waiting for an input that is being filled, after which it does, too


def read_timestamp(context: StatementContext, plan: PeekPlan, as_of: AsOf | None) -> Timestamp:
    """Return the time at which `plan` is executed; its inputs are held there."""
    if plan.key is not None:
        return read_time(context, plan.key.tables, as_of, by_key=True)
    if not plan.is_timed and as_of is None:
        if context.transaction.time is not None:
            require(context, (), context.transaction.time)
        return 0
    ids = collections_read(context, plan)
    time = read_time(context, ids, as_of, also=plan.shards)
    notify_of_waiting(context, ids, time)
    return time


def read_time(
    context: StatementContext,
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
    *,
    also: Iterable[GlobalId] = (),
    by_key: bool = False,
    at_once: bool = False,
) -> Timestamp:
    """Return the time at which to read `ids`, and hold them there until the transaction ends.

    If the caller reads `at_once`, and nothing else follows in the transaction, they are not held.

    The first read of a transaction chooses for all later ones; AS OF is for one query alone. The
    tables below `ids` and `also` are added to the transaction's reads, except `by_key`: the caller
    adds the keys. Raises Conflict or NotYetKnown if `ids` are not readable at the transaction's
    time, CollectionCorrupted if one is damaged.
    """
    times, transaction = context.times, context.transaction
    if at_once and context.alone and as_of is None:
        time = _newest_time(context)
        if time is not None:
            context.views.compute.maintained.check_not_corrupt(ids)
            transaction.time = time
            return time
    ids = tuple(ids)
    if as_of is not None:
        refuse_own_past(context, (*ids, *also))
    ids = [id for id in ids if id in times.holds.collections]
    context.views.compute.maintained.check_not_corrupt(ids)
    if as_of is None and transaction.time is not None:
        time = transaction.time
        require(context, ids, time)
    else:
        time = choose(context, ids, as_of).time
        if as_of is None:
            transaction.time = time
            if transaction.block:
                # A transaction block may read any of it later.
                times.holds.hold_all_for(transaction, time, context.pid)
    if (as_of is not None or not transaction.block) and not (at_once and context.alone):
        times.holds.hold_for(transaction, ids, time, context.pid)
    if as_of is None and not by_key:
        note_tables_read(context, (*ids, *also))
    if context.variables.settings.tells_time:
        _notify_of_time(context, ids, time)
    return time


def _newest_time(context: StatementContext) -> Timestamp | None:
    """Return the newest time, if a transaction that reads once, and nothing else, reads at it."""
    transaction = context.transaction
    if transaction.block or transaction.time is not None or transaction.staged.catalog is not None:
        return None
    settings = context.variables.settings
    if settings.tells_time:
        return None
    if settings.isolation != "strict serializable" and not context.reads_newest:
        return None  # it may have another time, to wait for nothing
    time = context.times.oracle.read_ts()
    altered = context.names.catalog.state.altered_below(context.prepared.made.used)
    return time if not altered or max(altered.values()) <= time else None


def note_tables_read(context: StatementContext, ids: Iterable[GlobalId]) -> None:
    """Add the tables below `ids` to the transaction's reads."""
    # The transaction's own new tables change for nobody else. A dropped table has changed.
    group, below = context.tables.group, tables_below(context, ids)
    context.transaction.tables_read.update(
        id for id in below if id in group or group.is_altered(id)
    )


def choose(
    context: StatementContext,
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
    *,
    onwards: bool = False,
) -> Selection:
    """Return the time that a new read of `ids` would choose, and why.

    If it is read `onwards`, each later time has to be exact, too.
    """
    exact = at_least = None
    if as_of is not None:
        refuse_own_past(context, ids := list(ids))
        given = timestamp_of(context, as_of.time)
        exact, at_least = (None, given) if as_of.at_least else (given, None)
    intervals = _intervals(context, ids)
    if onwards:
        for id, each in intervals.items():
            since = max(each.since, context.views.compute.skipped.exact_since(id))
            intervals[id] = replace(each, since=since, skipped=())
    return select_timestamp(
        intervals,
        context.isolation,
        context.times.oracle.read_ts(),
        as_of=exact,
        at_least=at_least,
        name_of=partial(_name_of, context),
    )


def require(context: StatementContext, ids: Iterable[GlobalId], time: Timestamp) -> None:
    """Raise Conflict or NotYetKnown if `ids` are not readable at the transaction's `time`."""
    isolation = context.isolation
    require_readable(_intervals(context, ids), isolation, time, partial(_name_of, context))


def move_forward(context: StatementContext) -> None:
    """Move the transaction to the newest time if all it has read is the same there.

    It is if it has read only under keys that it has locked, and these have not changed. The earlier
    answers are then true at both times, and the commit checks the later one.
    """
    transaction = context.transaction
    if transaction.time is None or transaction.tables_read:
        return
    now = context.times.oracle.read_ts()
    if transaction.time >= now:
        return
    keys = transaction.keys_read
    if not context.tables.locks.holds(keys, transaction):
        return
    if context.tables.keys.changed(keys, transaction.time):
        return
    transaction.time = now
    context.times.holds.move_all(transaction, now, context.pid)


def tables_below(context: StatementContext, ids: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the tables from which `ids` derive, the transaction's new ones included."""
    tables: set[GlobalId] = set()
    for id in ids:
        tables |= context.names.catalog.bases(id)
    return tables


# --- AS OF ---------------------------------------------------------------------------------


def requested_time(
    context: StatementContext, as_of: AsOf | None, changes: Sequence[Changes]
) -> AsOf | None:
    """Return the time of AS OF, or the end of CHANGES, as a literal; None if there is neither."""
    if as_of is not None:
        return AsOf(Literal(timestamp_of(context, as_of.time), MZ_TIMESTAMP), as_of.at_least)
    if context.transaction.time is not None:
        return None
    ends = [timestamp_of(context, e.through) for e in changes if e.through is not None]
    return AsOf(Literal(max(ends), MZ_TIMESTAMP), at_least=True) if ends else None


async def wait_for_time(
    context: StatementContext, ids: Iterable[GlobalId], requested: AsOf
) -> bool:
    """Wait until the requested time of a read of `ids` is reached; return whether it was future.

    `ids` are held at that time meanwhile, which keeps no history of the present. Collections that
    derive from no table never change and need no waiting.
    """
    times = context.times
    time = timestamp_of(context, requested.time)
    ahead_ms = time - times.oracle.read_ts()
    refuse_own_past(context, ids := list(ids))
    ids = [id for id in ids if id in times.holds.collections]
    if ahead_ms <= 0 or not tables_below(context, ids):
        return False
    choose(context, ids, requested)  # raises with bounded staleness, which never waits
    times.holds.hold_for(context.transaction, ids, time, context.pid)
    if ahead_ms > FAR_AHEAD_MS:
        context.notice(
            f"waiting for time {time}, which is {ahead_ms / 1000:.0f} seconds ahead",
            hint="Times are milliseconds since 1970, or of type timestamptz.",
            now=True,
        )
    await context.tables.group.reached(time)
    return True


def fixed_time(context: StatementContext, as_of: AsOf | None) -> Timestamp | None:
    """Return the time at which a query has to read; None if its read is still free to choose."""
    if as_of is None:
        return context.transaction.time
    return None if as_of.at_least else timestamp_of(context, as_of.time)


def refuse_own_past(context: StatementContext, ids: Iterable[GlobalId]) -> None:
    """Raise InvalidParameterValue if `ids` derive from tables made or altered here; for AS OF.

    Such a table has no history before the commit.
    """
    transaction = context.transaction
    if transaction.catalog is None:
        return
    state, ids = context.planner.state, tuple(ids)
    base, read = transaction.catalog.base, state.tables_named(ids)
    for id in sorted(_tables_of(context.planner, context.prepared, ids)):
        if id not in read and base.item_with(state.item(id).oid) is None:
            continue  # created here and only named, as the target of a write
        if transaction.made(id) or id in transaction.catalog.constrained_since:
            raise InvalidParameterValue(
                f'table "{_name_of(context, id)}" cannot be read as of a time in the transaction '
                "that has made or altered it",
                detail="It is what it is now from the commit on.",
                hint="Leave AS OF out, or read it before or after the transaction.",
            )


# --- materialized views at times that they do not know ------------------------------------


def younger_views(
    names: Names, times: Times, ids: Iterable[GlobalId], time: Timestamp
) -> frozenset[GlobalId]:
    """Return the views among `ids`, and below them, to be computed from what knows `time`.

    Without those whose inputs do not know it either, and those with a refresh schedule, whose rows
    are not what their query gives at each time.
    """
    younger: set[GlobalId] = set()
    for id in ids:
        found = _computed(names, times, id, time)
        if found is not None:
            younger |= found
    return frozenset(younger)


def _computed(
    names: Names, times: Times, id: GlobalId, time: Timestamp
) -> frozenset[GlobalId] | None:
    """Return the views to be computed for `id` to be known at `time`; None if it cannot be."""
    item = names.state.get(id)
    if id not in times.holds.collections or times.since(id) <= time:
        return frozenset()
    if not isinstance(item, Item) or item.type != "materialized view" or item.refresh:
        return None
    found = {id}
    for source in names.catalog.sources(id):
        below = _computed(names, times, source, time)
        if below is None:
            return None
        found |= below
    return frozenset(found)


# --- notices and inputs --------------------------------------------------------------------


def notify_of_waiting(context: StatementContext, ids: Iterable[GlobalId], time: Timestamp) -> None:
    """Send a notice for each of `ids` that is far behind `time`, or is filled for some seconds."""
    filling = []
    for id in context.times.holds.collections.keys() & set(ids):
        upper, since = context.times.upper(id), context.views.as_ofs.get(id, 0)
        if max(upper, since) <= time - FAR_BEHIND_MS:
            _notify_of_input(context, id, time)
        elif upper <= since:
            filling.append(id)
    if filling:
        _notify_later(context, filling, time)


def _notify_of_input(context: StatementContext, id: GlobalId, time: Timestamp) -> None:
    """Send a notice at once that the statement waits for a collection."""
    item = context.planner.reader().state.item(id)
    upper, since = context.times.upper(id), context.views.as_ofs.get(id, 0)
    lag_seconds = (time - upper) / 1000
    how = f"is {lag_seconds:.0f} seconds behind" if upper > since else "is being filled"
    hint = "mz_internal.mz_frontiers says how far each collection is."
    context.notice(f'waiting for {item.kind} "{item.name}", which {how}', hint=hint, now=True)


def _notify_later(context: StatementContext, ids: Sequence[GlobalId], time: Timestamp) -> None:
    """Send a notice for those of `ids` that the statement still waits for after some seconds."""

    def tell() -> None:
        for id in ids:
            if id in context.times.holds.collections and context.times.upper(id) <= time:
                _notify_of_input(context, id, time)

    context.interrupts.call_later(FILLING_SECONDS, tell)


def _notify_of_time(context: StatementContext, ids: Sequence[GlobalId], time: Timestamp) -> None:
    """Send a notice of the time at which a query reads, and of its inputs' frontiers."""
    detail = [f"The newest time that has been read or written is {context.times.oracle.read_ts()}."]
    for id in ids:
        interval = context.times.interval(id)
        name = ".".join(filter(None, context.names.state.full_name(context.names.state.item(id))))
        detail.append(f"{name} is known from {interval.since} to before {interval.upper}.")
    context.notice(f"query timestamp: {time}", detail=" ".join(detail))


def _intervals(context: StatementContext, ids: Iterable[GlobalId]) -> dict[GlobalId, Interval]:
    """Return the intervals of `ids`, and of altered tables that the statement names.

    A plan may use a table's constraints without reading it, for example to remove a join.
    """
    times = context.times
    intervals = {id: times.interval(id) for id in ids}
    for id, time in context.names.state.altered_below(context.prepared.made.used).items():
        intervals.setdefault(id, Interval(time, times.upper(id), time))
    change = context.transaction.catalog
    if change is not None and change.constrained_since:
        for id in (
            _tables_of(context.planner, context.prepared, intervals)
            & change.constrained_since.keys()
        ):
            since = max(change.constrained_since[id], times.since(id))
            intervals[id] = Interval(since, times.upper(id), since)
    return intervals


def _tables_of(planner: Planner, prepared: Prepared, ids: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the tables below `ids` and below the statement's names, new ones included."""
    return planner.state.tables_named((*ids, *prepared.made.used))


def _name_of(context: StatementContext, id: GlobalId) -> str:
    item = context.planner.state.get(id) or context.names.state.get(id)
    return id if item is None else item.name
