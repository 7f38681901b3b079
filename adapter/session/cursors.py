"""DECLARE, FETCH, MOVE, CLOSE: results that the client takes a few rows at a time."""

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.read.result import ALL, BatchSource, Outcome, Selected
from foreshore.adapter.read.select import selected
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.prepared import BoundPortal
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.compute.result import Result
from foreshore.errors import (
    DatabaseError,
    DuplicateCursor,
    FeatureNotSupported,
    InvalidCursorName,
    NoActiveSqlTransaction,
)
from foreshore.sql.plan import CloseCursor, Declare, Fetch, Select
from foreshore.types import arrow_type

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


async def declare(session: "Session", context: StatementContext, plan: Declare) -> Completed:
    """Run DECLARE: the rows are those of its own time, also when they are fetched later."""
    if context.alone and not plan.hold and not context.transaction.block:
        raise NoActiveSqlTransaction("DECLARE CURSOR can only be used in transaction blocks")
    if plan.name in session.portals:
        raise DuplicateCursor(f'cursor "{plan.name}" already exists')
    if isinstance(plan.query, Select):
        result = await selected(context, plan.query, "FETCH")
    elif plan.hold:
        raise FeatureNotSupported(
            "DECLARE ... CURSOR WITH HOLD over SUBSCRIBE is not supported",
            hint="Declare it without HOLD in a transaction block: a subscription ends with it.",
        )
    else:
        result = await subscribe(context, plan.query)
    session.portals[plan.name] = BoundPortal(
        plan.name, context.prepared, result=result, hold=plan.hold, cursor=True, desc=result.desc
    )
    return Completed("DECLARE CURSOR")


async def fetch(session: "Session", plan: Fetch) -> Outcome:
    """Run FETCH or MOVE."""
    portal = session.portals.get(plan.name)
    if portal is None or portal.result is None:
        raise InvalidCursorName(f'cursor "{plan.name}" does not exist')
    result = portal.result
    count = ALL if plan.count is None else plan.count
    source = result.source
    schema = pa.schema(
        [pa.field(f"c{i}", arrow_type(column.type)) for i, column in enumerate(result.desc.columns)]
    )
    rows = Result(schema)
    taken = 0
    deadline = None
    if plan.timeout_ms is not None:
        deadline = asyncio.get_running_loop().time() + plan.timeout_ms / 1000
    while taken < count:
        if taken and deadline is None and not source.has_ready:
            break
        try:
            async with asyncio.timeout_at(deadline):
                batch = await source.next(count - taken)
        except TimeoutError:
            break
        except DatabaseError:
            if not taken or not source.streaming:
                raise
            break  # what has come is told first, and the next FETCH hears of this
        if batch is None:
            break
        taken += batch.num_rows
        if not plan.move:
            batch = batch.rename_columns(schema.names)
            if rows.has_room(batch):
                rows.add(batch)
            else:
                await blocking.run(None, rows.add, batch)
    if plan.move:
        return Completed(f"MOVE {taken}")
    return Selected(result.desc, BatchSource(rows), "FETCH")


def close(session: "Session", plan: CloseCursor) -> Completed:
    """Run CLOSE."""
    if plan.name is None:
        session.close_portals([each for each in session.portals.values() if not each.cursor])
        return Completed("CLOSE CURSOR ALL")
    if plan.name not in session.portals:
        raise InvalidCursorName(f'cursor "{plan.name}" does not exist')
    session.portals.pop(plan.name).close()
    return Completed("CLOSE CURSOR")
