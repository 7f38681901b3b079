"""Portals and cursors: statements with their arguments, and the rows that are left of them.

DECLARE, FETCH, MOVE and CLOSE let the client take a result a few rows at a time.
"""

import asyncio

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.control.conversation import Conversation
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.cursor_rows import CursorRows
from foreshore.adapter.read.select import select
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.portals import BoundPortal, Cursor
from foreshore.adapter.statement.result import ALL, BatchSource, Outcome, Selected
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.compute.result import Result
from foreshore.errors import (
    DatabaseError,
    DuplicateCursor,
    FeatureNotSupported,
    InvalidCursorName,
    NoActiveSqlTransaction,
    ObjectNotInPrerequisiteState,
)
from foreshore.sql.plan import (
    CloseCursor,
    Declare,
    Fetch,
    Select,
)
from foreshore.types import RelationDesc, arrow_type

# --- cursors -------------------------------------------------------------------------------


def text_size(statement: Prepared) -> int:
    """Return how long the text is of a statement that a portal keeps; 0 if it has a name."""
    return 0 if statement.name or statement.syntax is None else len(statement.syntax.text)


async def declare(session: Conversation, context: StatementContext, plan: Declare) -> Completed:
    """Run DECLARE: the rows are those of its own time, also when they are fetched later."""
    if context.alone and not plan.hold:
        raise NoActiveSqlTransaction("DECLARE CURSOR can only be used in transaction blocks")
    if plan.name in session.portals:
        raise DuplicateCursor(f'cursor "{plan.name}" already exists')
    size = text_size(context.prepared)
    session.portals.check_room(size)
    if isinstance(plan.query, Select):
        result = await select(context, plan.query, "FETCH")
    elif plan.hold:
        raise FeatureNotSupported(
            "DECLARE ... CURSOR WITH HOLD over SUBSCRIBE is not supported",
            hint="Declare it without HOLD in a transaction block: a subscription ends with it.",
        )
    else:
        result = await subscribe(context, plan.query)
    scroll = not plan.locks if plan.scroll is None else plan.scroll
    if not result.source.streaming:
        source = CursorRows(result.source, scroll=scroll)
        result = replace(result, source=source)
    session.portals[plan.name] = BoundPortal(
        plan.name,
        context.prepared,
        result=result,
        cursor=Cursor(plan, scroll, context.times.clock.now() * 1000),
        desc=_shown(result.desc, plan.hidden),
        size=size,
    )
    return Completed("DECLARE CURSOR")


async def fetch(session: Conversation, context: StatementContext, plan: Fetch) -> Outcome:
    """Run FETCH or MOVE, of a cursor or of a portal of the extended protocol."""
    portal = session.portals.get(plan.name)
    if portal is None or (portal.result is None and not _may_begin(portal)):
        raise InvalidCursorName(f'cursor "{plan.name}" does not exist')
    if portal.failed:
        raise ObjectNotInPrerequisiteState(f'portal "{plan.name}" cannot be run')
    try:
        result = portal.result or await _begin(context, portal)
        context.interrupts.follows = result.source.streaming
        rows, count = await _fetched(plan, portal, result)
    except BaseException:
        portal.failed = True
        raise
    if plan.move:
        return Completed(f"MOVE {count}")
    desc, cursor = portal.desc or result.desc, portal.cursor
    binary = cursor is not None and cursor.plan.binary
    return Selected(desc, BatchSource(rows), "FETCH", binary)


def _shown(desc: RelationDesc, hidden: int) -> RelationDesc:
    """Return the columns of a cursor without its last ones, which are hidden."""
    width = len(desc.names) - hidden
    return RelationDesc(desc.names[:width], desc.columns[:width], origins=desc.origins[:width])


async def _fetched(plan: Fetch, portal: BoundPortal, result: Selected) -> tuple[Result, int]:
    """Return the rows that FETCH or MOVE goes through, and their number."""
    source = result.source
    if source.streaming:
        if plan.direction != "forward":
            raise ObjectNotInPrerequisiteState("cursor can only scan forward")
        return await _next_rows(plan, result)
    if not isinstance(source, CursorRows):
        source = CursorRows(source, scroll=True)
        portal.result = replace(result, source=source)
    found = await _rows_at(plan, source, portal.desc or result.desc)
    if portal.cursor is not None and portal.cursor.plan.tables:
        portal.cursor.row = await source.current()
    return found


def _may_begin(portal: BoundPortal) -> bool:
    return not portal.done and isinstance(portal.statement.made.plan, Select)


async def _begin(context: StatementContext, portal: BoundPortal) -> Selected:
    """Run the query of a portal that has not been executed."""
    of_portal = replace(context.of(portal.args, portal.statement), alone=False)
    await context.planner.ready(portal.statement)
    assert isinstance(portal.statement.made.plan, Select)
    portal.done = True
    portal.result = await select(of_portal, portal.statement.made.plan)
    return portal.result


async def _rows_at(plan: Fetch, source: CursorRows, desc: RelationDesc) -> tuple[Result, int]:
    """Return the rows where a cursor goes, and their number; none of them for MOVE."""
    first, last = await source.moved(plan.direction, plan.count)
    rows = _no_rows(desc)
    if not plan.move:
        width = len(desc.names)
        async for batch in source.between(first, last):
            await _add(rows, batch.select(range(width)) if batch.num_columns > width else batch)
    return rows, abs(last - first) + 1 if first else 0


async def _next_rows(plan: Fetch, result: Selected) -> tuple[Result, int]:
    """Return the next rows of a stream, as far as they are there, and their number."""
    rows, taken, source = _no_rows(result.desc), 0, result.source
    count = ALL if plan.count is None else plan.count
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
            if not taken:
                raise
            break  # send the rows that have come; the next FETCH raises the error
        if batch is None:
            break
        taken += batch.num_rows
        if not plan.move:
            await _add(rows, batch)
    return rows, taken


def _no_rows(desc: RelationDesc) -> Result:
    fields = [pa.field(f"c{i}", arrow_type(each.type)) for i, each in enumerate(desc.columns)]
    return Result(pa.schema(fields))


async def _add(rows: Result, batch: pa.RecordBatch) -> None:
    batch = batch.rename_columns(rows.schema.names)
    if not rows.add_in_memory(batch):
        await blocking.run(None, rows.add, batch)


def close(session: Conversation, context: StatementContext, plan: CloseCursor) -> Completed:
    """Run CLOSE."""
    if plan.name is None:
        session.portals.close_but([each for each in session.portals.values() if not each.cursor])
        return Completed("CLOSE CURSOR ALL")
    if plan.name not in session.portals:
        raise InvalidCursorName(f'cursor "{plan.name}" does not exist')
    session.portals.close(plan.name)
    return Completed("CLOSE CURSOR")
