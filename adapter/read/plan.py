"""Plan: the first step of a read, an access path that knows the rows at the time of the read.

The prepared plan is used, except where the time or the transaction's own writes rule out its access
path.
"""

from foreshore.adapter.read.access_path import PeekPlan
from foreshore.adapter.read.as_of import fixed_time, requested_time, wait_for_time
from foreshore.adapter.read.cluster_choice import collections_read, index_of
from foreshore.adapter.read.key_lookup import can_look_up
from foreshore.adapter.read.timestamp import tables_below
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.errors import FeatureNotSupported
from foreshore.sql.plan import AsOf
from foreshore.update import Timestamp


def prepared_peek(context: StatementContext) -> PeekPlan:
    """Return the plan that was prepared for a statement's query."""
    peek = context.prepared.peek
    assert peek is not None
    return peek


async def wait_until_requested(context: StatementContext, as_of: AsOf | None) -> AsOf | None:
    """Return AS OF with its time as a literal; a time in the future is waited for.

    The statement is then prepared again, as the catalog may have changed meanwhile.
    """
    peek = prepared_peek(context)
    refuse_past_of_system(peek, as_of)
    requested = requested_time(context, as_of, peek.query.changes)
    if requested is not None and await wait_for_time(
        context, collections_read(context, peek), requested
    ):
        await context.planner.ready(context.prepared)
    return None if as_of is None else requested


def refuse_past_of_system(peek: PeekPlan, as_of: AsOf | None) -> None:
    """Raise FeatureNotSupported if a query AS OF a time reads a system relation."""
    system = sorted(BUILTINS.keys() & peek.sources)
    if as_of is not None and system:
        relation = BUILTINS[system[0]]
        raise FeatureNotSupported(
            f'system relation "{relation.schema}.{relation.name}" cannot be read AS OF a time',
            detail="System relations have no history.",
        )


async def plan_read(context: StatementContext, as_of: AsOf | None) -> PeekPlan:
    """Return the plan of the query by an access path that knows the rows at its time."""
    plan = prepared_peek(context)
    time = fixed_time(context, as_of)
    if plan.key is not None and await can_look_up(context, plan.key, time):
        return plan
    plan = plan_for_time(context, plan, time)
    transaction = context.transaction
    if as_of is None and transaction.reads_own_writes(tables_below(context, plan.sources)):
        if plan.query.changes:
            raise FeatureNotSupported(
                "CHANGES after writes in the same transaction is not supported"
            )
        return plan.in_process()
    return plan


def plan_for_time(context: StatementContext, plan: PeekPlan, time: Timestamp | None) -> PeekPlan:
    """Return `plan` without key lookup; without indexes if one does not know the rows at `time`.

    None is a time yet to be chosen. The choice considers the indexes.
    """
    if time is not None:
        used = {index_of(context, id) for id in plan.shards} - plan.shards
        if plan.index is not None:
            used.add(plan.index.index)
        since = context.coordinator.holds.since
        if any(since(index) > time for index in used):
            return context.planner.peek_without_indexes(context.prepared)
    return plan.without_key()
