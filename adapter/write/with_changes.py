"""A statement after a WITH some parts of which change rows.

All parts and the statement itself read the same contents. So what they change is collected while
they run, and staged at the end in their order; then keys are checked against each other's rows.
"""

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.read.bound.timestamp import tables_below
from foreshore.adapter.read.select import selected
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import ALL, Outcome, Selected
from foreshore.adapter.statement.staging import Staging
from foreshore.adapter.write.change import delete, merge, update
from foreshore.adapter.write.insert import insert
from foreshore.adapter.write.stage_changes import stage_all
from foreshore.compute.engine import rows_schema
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.plan import Delete, Insert, Merge, Select, Update, WithChanges


async def with_changes(context: StatementContext, plan: WithChanges) -> Outcome:
    """Run the parts of a WITH in order, then the statement after it."""
    await _lock(context, plan)
    staging: list[Staging] = []
    given: dict[GlobalId, pa.Table] = {}
    for id, each in context.prepared.made.parts:
        part = replace(context, prepared=each, given=dict(given), staging=staging)
        assert isinstance(each.made.plan, Insert | Update | Delete | Merge), each.made.plan
        outcome = await _run(part, each.made.plan)
        if isinstance(outcome, Selected):
            given[id] = await _rows_of(outcome)
    outcome = await _run(replace(context, given=given, staging=staging), plan.main)
    await stage_all(context, staging)
    return outcome


async def _rows_of(returned: Selected) -> pa.Table:
    """Return all rows of a RETURNING list."""
    schema, batches = rows_schema(returned.desc.columns), []
    while (batch := await returned.source.next(ALL)) is not None:
        batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return pa.Table.from_batches(batches, schema)


async def _run(
    context: StatementContext, plan: Select | Insert | Update | Delete | Merge
) -> Outcome:
    match plan:
        case Select():
            return await selected(context, plan, "SELECT")
        case Insert():
            return await insert(context, plan)
        case Update():
            return await update(context, plan)
        case Delete():
            return await delete(context, plan)
        case Merge():
            return await merge(context, plan)


async def _lock(context: StatementContext, plan: WithChanges) -> None:
    """Lock all tables that the statement reads or changes at once, which avoids deadlocks.

    In a transaction block the commit checks what was read instead.
    """
    transaction = context.transaction
    if transaction.block or transaction.time is not None:
        return
    prepared = [context.prepared, *(each for _, each in context.prepared.made.parts)]
    read = frozenset[GlobalId]().union(
        *(each.made.peek.sources for each in prepared if each.made.peek)
    )
    tables = {id for id in tables_below(context, read) if not is_builtin(id)}
    changed = [each.plan for each in plan.parts] + [plan.main]
    tables |= {each.table for each in changed if not isinstance(each, Select)}
    committed = tables & context.names.state.objects.keys()
    await context.tables.locks.acquire(committed, transaction, context.lock_timeout_ms)
