"""Refresh schedules of materialized views, and REFRESH MATERIALIZED VIEW."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.refresh import Refresh, RefreshPolicy
from foreshore.sql.plan import RefreshOptions, RefreshView

# The interval from which on the policy auto computes views anew: their state would take memory for
# a long time to save little work.
LONG_MS = 3_600_000


def schedule_of(context: StatementContext, options: RefreshOptions | None) -> Refresh | None:
    """Return the schedule that a new view's options describe.

    An interval is aligned to the present unless it says otherwise; a lag to 1970, so that views
    with the same lag are refreshed together.
    """
    if options is None:
        return None
    aligned = 0
    if options.aligned_to is not None:
        aligned = timestamp_of(context, options.aligned_to)
    elif options.every_ms is not None and not options.is_lag:
        aligned = context.times.oracle.read_ts()
    policy: RefreshPolicy = "incremental"
    is_downstream = options.is_lag and options.every_ms is None
    is_rare = not is_downstream and (options.every_ms is None or options.every_ms >= LONG_MS)
    if options.policy == "full" or (options.policy == "auto" and is_rare):
        policy = "full"
    elif options.policy == "auto":
        policy = "auto"
    at = tuple(sorted({timestamp_of(context, each) for each in options.at}))
    return Refresh(options.every_ms, aligned, at, options.is_lag, policy)


async def refresh_view(context: StatementContext, plan: RefreshView) -> Completed:
    """Run REFRESH MATERIALIZED VIEW: return once the view has all that is committed now.

    A view with a schedule gets another refresh; others are only waited for.
    """
    found = find_if_exists(
        context.planner,
        context.notice,
        "materialized view",
        plan.name,
        if_exists=False,
        altered=True,
    )
    assert isinstance(found, Item), found
    context.require_writable("REFRESH MATERIALIZED VIEW")
    views = context.views
    if found.id not in views.as_ofs:  # of this transaction
        return Completed("REFRESH MATERIALIZED VIEW")
    assert found.cluster is not None, found
    if not views.has_replica(found.cluster):
        cluster = context.names.state.objects[found.cluster].name
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster}" has no replicas available to refresh "{found.name}"'
        )
    time = context.times.oracle.read_ts()
    if views.compute.schedule(found.id) is not None:
        time = views.compute.refresh_now(found.id, time)
    await context.tables.group.reached(time)
    await context.times.wait_readable(found.id, time)
    return Completed("REFRESH MATERIALIZED VIEW")
