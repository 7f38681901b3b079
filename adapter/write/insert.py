"""INSERT, UPDATE, DELETE: rows from a source are checked and staged in the transaction.

An INSERT of values reads nothing. The others read at the newest time, and are valid only if what
they read is the same when the transaction commits.
"""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.read.result import Outcome
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.check import check
from foreshore.adapter.write.conflict import stage_on_conflict
from foreshore.adapter.write.inserted import inserted_rows
from foreshore.adapter.write.returning import returned
from foreshore.adapter.write.source import deleted_rows, updated_rows
from foreshore.adapter.write.stage import stage
from foreshore.adapter.write.target import lock_shared_against_ddl, target_of
from foreshore.sql.plan import Delete, Insert, Update
from foreshore.table_rows import TableRows


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
    return _outcome(context, "INSERT 0", plan, rows)


async def update(context: StatementContext, plan: Update) -> Outcome:
    """Run an UPDATE."""
    target = target_of(context, plan.table, "UPDATE")
    old, new, beside = await updated_rows(context, plan, target)
    check(context, target, new)
    await stage(context, target, deleted=[old], inserted=[new])
    return _outcome(context, "UPDATE", plan, new, beside)


async def delete(context: StatementContext, plan: Delete) -> Outcome:
    """Run a DELETE."""
    target = target_of(context, plan.table, "DELETE")
    old, beside = await deleted_rows(context, plan, target)
    await stage(context, target, deleted=[old])
    return _outcome(context, "DELETE", plan, old, beside)


def _outcome(
    context: StatementContext,
    verb: str,
    plan: Insert | Update | Delete,
    rows: TableRows,
    beside: Sequence[pa.Array] = (),
) -> Outcome:
    """Return the number of written rows, or the RETURNING list over them."""
    if plan.returning is None:
        return Completed(f"{verb} {rows.count}")
    return returned(context, verb, plan.returning, rows, beside)
