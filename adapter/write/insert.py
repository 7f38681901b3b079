"""INSERT, UPDATE, DELETE: rows from a source are checked and staged in the transaction.

An INSERT of values reads nothing. The others read at the newest time, and are valid only if what
they read is the same when the transaction commits.
"""

from foreshore.adapter.read.plan import wait_until_requested
from foreshore.adapter.read.result import Outcome
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.check import check
from foreshore.adapter.write.conflict import stage_on_conflict
from foreshore.adapter.write.returning import returned
from foreshore.adapter.write.source import deleted_rows, inserted_rows, updated_rows
from foreshore.adapter.write.stage import stage
from foreshore.adapter.write.target import lock_shared_against_ddl, target_of
from foreshore.sql.plan import Delete, Insert, Update


async def insert(context: StatementContext, plan: Insert) -> Outcome:
    """Run an INSERT."""
    as_of = None
    if plan.as_of is not None:
        as_of = await wait_until_requested(context, plan.as_of)
        assert isinstance(context.prepared.plan, Insert), context.prepared.plan
        plan = context.prepared.plan
    target = target_of(context, plan.table, "INSERT")
    await lock_shared_against_ddl(context, target)
    rows = await inserted_rows(context, plan, target, as_of)
    check(context, target, rows)
    if plan.on_conflict is None:
        await stage(context, target, inserted=[rows])
    else:
        rows = await stage_on_conflict(context, target, plan.on_conflict, rows)
    return returned(context, "INSERT 0", plan.returning, rows)


async def update(context: StatementContext, plan: Update) -> Outcome:
    """Run an UPDATE."""
    target = target_of(context, plan.table, "UPDATE")
    old, new, beside = await updated_rows(context, plan, target)
    check(context, target, new)
    await stage(context, target, deleted=[old], inserted=[new])
    return returned(context, "UPDATE", plan.returning, new, beside)


async def delete(context: StatementContext, plan: Delete) -> Outcome:
    """Run a DELETE."""
    target = target_of(context, plan.table, "DELETE")
    old, beside = await deleted_rows(context, plan, target)
    await stage(context, target, deleted=[old])
    return returned(context, "DELETE", plan.returning, old, beside)
