"""Reading: the rows of a statement's query, in three steps.

    plan        an access path that knows the rows at the time of the read    plan.py
    timestamp   that time, chosen and held                                    timestamp.py
    execute     the rows at that time, by the access path                     bind.py, execute.py

A time in the future is waited for before (as_of.py), and so are row locks (row_locks.py).
"""

import pyarrow as pa

from foreshore.adapter.read.bind import (
    NOTHING_GIVEN,
    BoundPeek,
    Given,
    bind_peek,
    call_side_effects,
)
from foreshore.adapter.read.changes import changes
from foreshore.adapter.read.execute import execute, execute_unfinished
from foreshore.adapter.read.plan import plan_read, wait_until_requested
from foreshore.adapter.read.result import all_rows
from foreshore.adapter.read.timestamp import read_timestamp
from foreshore.adapter.session.context import StatementContext
from foreshore.compute.result import Result
from foreshore.sql.plan import AsOf


async def read_result(
    context: StatementContext, as_of: AsOf | None = None, given: Given = NOTHING_GIVEN
) -> Result:
    """Return the finished rows of a statement's query; `given` are collections only it knows."""
    return await execute(context, await _bound(context, as_of, given))


async def read_rows(
    context: StatementContext, as_of: AsOf | None = None, given: Given = NOTHING_GIVEN
) -> pa.Table:
    """Return the rows of a query without ORDER BY and LIMIT, in any order and with `__diff`."""
    return await execute_unfinished(context, await _bound(context, as_of, given))


async def read_batch(context: StatementContext) -> pa.RecordBatch:
    """Return the finished rows of a statement's query as one batch."""
    return await all_rows(await read_result(context))


async def _bound(context: StatementContext, as_of: AsOf | None, given: Given) -> BoundPeek:
    """Return the query planned, with its timestamp, and bound: all but executed."""
    as_of = await wait_until_requested(context, as_of)
    plan = await plan_read(context, as_of)
    time = read_timestamp(context, plan, as_of)
    found = {each.id: await changes(context, each, time) for each in plan.query.changes}
    bound = await bind_peek(context, plan, time, {**given, **found}, own=as_of is None)
    return await call_side_effects(context, bound)
