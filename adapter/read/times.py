"""The time at which statements read: chosen by a transaction's first read, held until its end.

A transaction that reads only by keys that it has locked moves to the newest time before the next.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from foreshore.adapter.read.timestamp_selection import (
    Interval,
    Selection,
    require_readable,
    select_timestamp,
)
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.errors import (
    DataError,
    InvalidParameterValue,
)
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Literal, Scalar, type_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Changes
from foreshore.sql.rewrite.bind_parameters import bind_scalar, parameter_bindings
from foreshore.types import MZ_TIMESTAMP, Datum
from foreshore.update import Timestamp

FAR_BEHIND_MS = 20_000  # of what is waited for, from which on the client is told


def tables_below(context: StatementContext, ids: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the tables that `ids` come from, new ones of the transaction included."""
    bases: set[GlobalId] = set()
    for id in ids:
        bases |= context.coordinator.bases(id)
    return bases


def read_time(
    context: StatementContext,
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
    *,
    also: Iterable[GlobalId] = (),
    by_key: bool = False,
) -> Timestamp:
    """Return when to read `ids`, held there until the transaction ends.

    The first read of a transaction decides for all that follow; AS OF is for one query alone.
    `also` are relations that the answer comes from, though they are not read themselves. Unless the
    read is `by_key` and remembered so, it is remembered as one of whole tables. Raises Conflict
    or NotYetKnown for what cannot be read at the time, CollectionCorrupted for what cannot be read
    for that.
    """
    transaction = context.transaction
    coordinator = context.coordinator
    ids = tuple(ids)
    if as_of is not None:
        _refuse_own_past(context, (*ids, *also))
    ids = [id for id in ids if id in coordinator.holds.collections]
    coordinator.compute.maintained.check_not_corrupt(ids)
    if as_of is None and transaction.time is not None:
        time = transaction.time
        require(context, ids, time)
    else:
        chosen = choose(context, ids, as_of)
        time = chosen.time
        if as_of is None:
            transaction.time = time
            if transaction.block:
                _hold_all(context, transaction, time)
    if not (transaction.block and as_of is None):
        hold = coordinator.holds.acquire(ids, time, "transaction", context.pid)
        transaction.holds.append(hold)
    if as_of is None and not by_key:
        # Those that nobody else knows change for nobody; what is dropped later has changed.
        group = coordinator.group
        below = tables_below(context, (*ids, *also))
        transaction.read |= {id for id in below if id in group or group.is_altered(id)}
    if context.variables["emit_timestamp_notice"] == "on":
        _tell_of_time(context, ids, time)
    return time


def require(context: StatementContext, ids: Iterable[GlobalId], time: Timestamp) -> None:
    """Raise if `ids` cannot be read at the time that the transaction reads at, as by then named."""
    isolation = context.transaction.isolation
    require_readable(_intervals(context, ids), isolation, time, partial(_name_of, context))


def _intervals(context: StatementContext, ids: Iterable[GlobalId]) -> dict[GlobalId, Interval]:
    """Return when `ids` are exact, and the tables that the statement names.

    A plan may use the constraints of a table without reading it, as where a join is left out.
    """
    coordinator = context.coordinator
    intervals = {id: coordinator.interval(id) for id in ids}
    for id, time in coordinator.altered_below(context.prepared.used).items():
        intervals.setdefault(id, Interval(time, coordinator.upper(id), time))
    constrained_since = context.transaction.constrained_since
    below = _tables_of(context, intervals) if constrained_since else set()
    for id in below & constrained_since.keys():
        since = max(constrained_since[id], coordinator.since(id))
        intervals[id] = Interval(since, coordinator.upper(id), since)
    return intervals


def _tables_of(context: StatementContext, ids: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the tables that `ids` and the statement's names stand for, new ones included."""
    return context.planner.state.tables_named((*ids, *context.prepared.used))


def _refuse_own_past(context: StatementContext, ids: Iterable[GlobalId]) -> None:
    """Raise if a read AS OF a time comes from tables that the transaction has made or altered.

    These are what they are now from the commit on.
    """
    transaction = context.transaction
    if transaction.catalog is None:
        return
    state, ids = context.planner.state, tuple(ids)
    base, read = transaction.catalog.base, state.tables_named(ids)
    for id in sorted(_tables_of(context, ids)):
        if id not in read and base.item_with(state.item(id).oid) is None:
            continue  # created here and only named, as the target of a write
        if transaction.made(id) or id in transaction.constrained_since:
            raise InvalidParameterValue(
                f'table "{_name_of(context, id)}" cannot be read as of a time in the transaction '
                "that has made or altered it",
                detail="It is what it is now from the commit on.",
                hint="Leave AS OF out, or read it before or after the transaction.",
            )


def asked(context: StatementContext, as_of: AsOf | None, changes: Sequence[Changes]) -> AsOf | None:
    """Return the time that a query asks for, as a literal: AS OF, or where CHANGES ends."""
    if as_of is not None:
        return AsOf(Literal(timestamp_of(context, as_of.time), MZ_TIMESTAMP), as_of.at_least)
    if context.transaction.time is not None:
        return None
    ends = [timestamp_of(context, e.through) for e in changes if e.through is not None]
    return AsOf(Literal(max(ends), MZ_TIMESTAMP), at_least=True) if ends else None


async def come(context: StatementContext, ids: Iterable[GlobalId], wanted: AsOf) -> bool:
    """Wait until the time that a read of `ids` asks for has come; return whether that was needed.

    What comes from no table never changes. All else is held at the time meanwhile, which keeps
    nothing of the present: it matters when the time comes.
    """
    coordinator = context.coordinator
    time = timestamp_of(context, wanted.time)
    ahead = time - coordinator.oracle.read_ts()
    _refuse_own_past(context, ids := list(ids))
    ids = [id for id in ids if id in coordinator.holds.collections]
    if ahead <= 0 or not tables_below(context, ids):
        return False
    choose(context, ids, wanted)  # as bounded staleness never waits
    hold = coordinator.holds.acquire(ids, time, "transaction", context.pid)
    context.transaction.holds.append(hold)
    if ahead > FAR_BEHIND_MS:
        context.notice(
            f"waiting for time {time}, which is {ahead / 1000:.0f} seconds ahead",
            hint="Times are milliseconds since 1970, or of type timestamptz.",
            now=True,
        )
    await coordinator.group.reached(time)
    return True


def tell_of_waiting(context: StatementContext, ids: Iterable[GlobalId], time: Timestamp) -> None:
    """Tell the client if it will have to wait for collections that are far behind `time`."""
    coordinator = context.coordinator
    for id in coordinator.holds.collections.keys() & set(ids):
        upper, since = coordinator.upper(id), coordinator.as_ofs.get(id, 0)
        if max(upper, since) > time - FAR_BEHIND_MS:
            continue
        item = context.planner.reader().state.item(id)
        bind_peek = upper > since
        how = f"is {(time - upper) / 1000:.0f} seconds behind" if bind_peek else "is being filled"
        hint = "mz_internal.mz_frontiers says how far each collection is."
        context.notice(f'waiting for {item.kind} "{item.name}", which {how}', hint=hint, now=True)


def _tell_of_time(context: StatementContext, ids: Sequence[GlobalId], time: Timestamp) -> None:
    """Tell the client at which time a query reads, and what that was chosen from."""
    coordinator = context.coordinator
    detail = [f"The newest time that has been read or written is {coordinator.oracle.read_ts()}."]
    for id in ids:
        interval = coordinator.interval(id)
        name = ".".join(filter(None, coordinator.state.full_name(coordinator.state.item(id))))
        detail.append(f"{name} is known from {interval.since} to before {interval.upper}.")
    context.notice(f"query timestamp: {time}", detail=" ".join(detail))


def move_forward(context: StatementContext) -> None:
    """Let the transaction read at the newest time, if all it has read is the same there.

    It is, if all of that are keys that it has locked and nobody has changed: what it has been told
    is true at both times. So is what follows, and the commit asks about the later one.
    """
    transaction = context.transaction
    coordinator = context.coordinator
    now = coordinator.oracle.read_ts()
    if transaction.time is None or transaction.time >= now or transaction.read:
        return
    if not coordinator.locks.holds(transaction.key_reads, transaction):
        return
    if coordinator.keys.changed(transaction.key_reads, transaction.time):
        return
    held = transaction.holds
    transaction.time = now
    transaction.holds = []
    _hold_all(context, transaction, now)
    for hold in held:
        hold.release()


def choose(
    context: StatementContext,
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
) -> Selection:
    """Return the time at which a new read of `ids` would be, and why."""
    coordinator = context.coordinator
    transaction = context.transaction
    exact = at_least = None
    if as_of is not None:
        _refuse_own_past(context, ids := list(ids))
        given = timestamp_of(context, as_of.time)
        exact, at_least = (None, given) if as_of.at_least else (given, None)
    return select_timestamp(
        _intervals(context, ids),
        transaction.isolation,
        coordinator.oracle.read_ts(),
        as_of=exact,
        at_least=at_least,
        name_of=partial(_name_of, context),
    )


def _name_of(context: StatementContext, id: GlobalId) -> str:
    item = context.planner.state.get(id) or context.coordinator.state.get(id)
    return id if item is None else item.name


def _hold_all(context: StatementContext, transaction: Transaction, time: Timestamp) -> None:
    """Hold all that can be read at `time`, since a block may come to read any of it."""
    holds = context.coordinator.holds
    readable = [id for id, each in holds.collections.items() if each.since <= time]
    transaction.holds.append(holds.acquire(readable, time, "transaction", context.pid))


def timestamp_of(
    context: StatementContext, scalar: Scalar, now: Timestamp | None = None
) -> Timestamp:
    """Return the time that a scalar without columns says, in milliseconds.

    `now` is what mz_now() is; None: the newest time.
    """
    if now is None:
        now = context.coordinator.oracle.read_ts()
    value = value_of(context, scalar, now)
    if value is None:
        raise InvalidParameterValue("a time is needed, not NULL")
    assert isinstance(value, int), value
    time = value // 1000 if type_of(scalar).name == "timestamptz" else value
    if time < 0:
        raise InvalidParameterValue(f"time {time} is before the beginning of time")
    return time


def value_of(context: StatementContext, scalar: Scalar, time: Timestamp) -> Datum:
    """Return the value of a scalar without columns."""
    replace = parameter_bindings(context.args, context.environment_values(time))
    found = constant(bind_scalar(scalar, replace))
    if isinstance(found, str):
        raise DataError.parse(found)
    value: Datum = found.value
    return value
