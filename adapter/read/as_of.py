"""AS OF: the time that a statement requests, and waiting for one in the future."""

from collections.abc import Iterable, Sequence

from foreshore.adapter.read.scalar_values import timestamp_of
from foreshore.adapter.read.timestamp import (
    FAR_BEHIND_MS,
    choose,
    refuse_own_past,
    tables_below,
)
from foreshore.adapter.session.context import StatementContext
from foreshore.expr.ir import Literal
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Changes
from foreshore.types import MZ_TIMESTAMP
from foreshore.update import Timestamp


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
    coordinator = context.coordinator
    time = timestamp_of(context, requested.time)
    ahead_ms = time - coordinator.oracle.read_ts()
    refuse_own_past(context, ids := list(ids))
    ids = [id for id in ids if id in coordinator.holds.collections]
    if ahead_ms <= 0 or not tables_below(context, ids):
        return False
    choose(context, ids, requested)  # raises with bounded staleness, which never waits
    coordinator.holds.hold_for(context.transaction, ids, time, context.pid)
    if ahead_ms > FAR_BEHIND_MS:
        context.notice(
            f"waiting for time {time}, which is {ahead_ms / 1000:.0f} seconds ahead",
            hint="Times are milliseconds since 1970, or of type timestamptz.",
            now=True,
        )
    await coordinator.group.reached(time)
    return True


def fixed_time(context: StatementContext, as_of: AsOf | None) -> Timestamp | None:
    """Return the time at which a query has to read; None if its read is still free to choose."""
    if as_of is None:
        return context.transaction.time
    return None if as_of.at_least else timestamp_of(context, as_of.time)
