"""TRUNCATE: all rows of some tables are deleted at one time.

It is a DELETE of all rows that locks the tables first: no other transaction writes to them until
this one has ended, so it cannot lose a race. Rows that the transaction itself has written to them
are forgotten. The committed rows are retracted in bulk, so views over the tables are maintained as
for any DELETE.

RESTART IDENTITY alters the tables: a transaction that has drawn a number from the old sequence and
not yet written the row draws another one.
"""

from dataclasses import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.sequences import restart_identity
from foreshore.adapter.read.bound.timestamp import read_time
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.stage import stage_rows
from foreshore.adapter.write.target import committed_rows, lock_to_alter, target_of
from foreshore.errors import FeatureNotSupported
from foreshore.ids import GlobalId
from foreshore.sql.plan import Truncate
from foreshore.table_rows import TableRows


async def truncate(context: StatementContext, plan: Truncate) -> Completed:
    """Run TRUNCATE."""
    transaction = context.transaction
    time = context.times.oracle.read_ts()
    tables = _with_referring(context, plan)
    known = [id for id in tables if id in context.names.state.objects]
    if known:
        await context.tables.locks.acquire(known, transaction, context.lock_timeout_ms)
        time = read_time(context, known, None)
    state = context.planner.reader().state
    restarted = [id for id in tables if plan.restart_identity and state.sequences_of(id)]
    if restarted:
        await lock_to_alter(context, restarted)
    for id in tables:
        target = target_of(context, id)
        transaction.unwrite(id)
        if id in known or transaction.altered(id).contents is not None:
            rows = await committed_rows(context, id, target.desc, time)
            await stage_rows(context, target, deleted=TableRows.of_table(target.desc, rows))
            if rows.num_rows:
                context.tables.activity.truncated(id)
                context.transaction.counted.pop()
        if id in restarted:
            context.catalog_change().planned[id] = replace(target.planned)
            restart_identity(context, id)
    return Completed("TRUNCATE TABLE")


def _with_referring(context: StatementContext, plan: Truncate) -> list[GlobalId]:
    """Return the tables to truncate: with CASCADE also those that refer to them.

    Raises FeatureNotSupported if there is one without CASCADE.
    """
    state, found = context.planner.state, list(plan.tables)
    for id in found:  # which grows
        for child, _ in state.references_to(id):
            if child in found:
                continue
            name, other = state.item(id).name, state.item(child).name
            if not plan.cascade:
                raise FeatureNotSupported(
                    "cannot truncate a table referenced in a foreign key constraint",
                    detail=f'Table "{other}" references "{name}".',
                    hint=f'Truncate table "{other}" at the same time, or use TRUNCATE ... CASCADE.',
                )
            context.notice(f'truncate cascades to table "{other}"')
            found.append(child)
    return found
