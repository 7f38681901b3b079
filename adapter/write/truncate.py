"""TRUNCATE: all rows of some tables go at one time.

It is a DELETE of everything that takes the tables first: nobody writes to them until the
transaction has ended, so it need not lose a race. What the transaction itself has written to them
is forgotten. The rows are retracted in bulk, so whatever follows the tables follows this, too.

RESTART IDENTITY alters the tables that it concerns: who has drawn a number from a sequence of
before, and not yet written the row, draws another.
"""

from dataclasses import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.sequences import restart_identity
from foreshore.adapter.read.timestamp import read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.tables import (
    committed_rows,
    plan_of_table,
    table_desc,
    take_to_alter,
    write_rows,
)
from foreshore.rows import negated
from foreshore.sql.plan import Truncate


async def truncate(context: StatementContext, plan: Truncate) -> Completed:
    """Run TRUNCATE."""
    transaction = context.transaction
    coordinator = context.coordinator
    time = coordinator.oracle.read_ts()
    known = [id for id in plan.tables if id in coordinator.state.objects]
    if known:
        await coordinator.locks.acquire(known, transaction)
        time = read_time(context, known, None)
    state = context.planner.reader().state
    restarted = [id for id in plan.tables if plan.restart_identity and state.sequences_of(id)]
    if restarted:
        await take_to_alter(context, restarted)
    for id in plan.tables:
        transaction.unwrite(id)
        if id in known or id in transaction.contents:
            rows = await committed_rows(context, id, table_desc(context, id), time)
            await write_rows(context, id, plan_of_table(context, id), negated(rows))
        if id in restarted:
            transaction.planned[id] = replace(plan_of_table(context, id))
            restart_identity(context, id)
    return Completed("TRUNCATE TABLE")
