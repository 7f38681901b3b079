"""TRUNCATE: all rows of some tables go at one time.

It is a DELETE of everything that takes the tables first: nobody writes to them until the
transaction has ended, so it need not lose a race. What the transaction itself has written to them
is forgotten. The rows are retracted in bulk, so whatever follows the tables follows this, too.

RESTART IDENTITY alters the tables that it concerns: who has drawn a number from a sequence of
before, and not yet written the row, draws another.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.sequences import restart_identity
from foreshore.adapter.read.times import read_time
from foreshore.adapter.write.tables import (
    committed_rows,
    plan_of_table,
    table_desc,
    take_to_alter,
    write_rows,
)
from foreshore.rows import negated
from foreshore.sql.plan import Truncate

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


async def truncate(session: "Session", plan: Truncate) -> Completed:
    """Run TRUNCATE."""
    transaction = session.begin()
    coordinator = session.coordinator
    time = coordinator.oracle.read_ts()
    known = [id for id in plan.tables if id in coordinator.state.objects]
    if known:
        await coordinator.locks.acquire(known, transaction)
        time = read_time(session, known, None, ())
    state = session.planner.reader().state
    restarted = [id for id in plan.tables if plan.restart_identity and state.sequences_of(id)]
    if restarted:
        await take_to_alter(session, restarted)
    for id in plan.tables:
        transaction.unwrite(id)
        if id in known or id in transaction.contents:
            rows = await committed_rows(session, id, table_desc(session, id), time)
            await write_rows(session, id, plan_of_table(session, id), negated(rows))
        if id in restarted:
            transaction.planned[id] = replace(plan_of_table(session, id))
            restart_identity(session, id)
    return Completed("TRUNCATE TABLE")
