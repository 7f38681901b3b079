"""SELECT: locks rows if it says so, then reads."""

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.read.bind import Given
from foreshore.adapter.read.pipeline import prepared_peek, read_result
from foreshore.adapter.read.point import row_by_key
from foreshore.adapter.read.result import BatchSource, Selected, all_rows
from foreshore.adapter.read.row_locks import lock_and_read
from foreshore.adapter.session.context import StatementContext
from foreshore.compute.engine import rows_schema
from foreshore.compute.finish import batch_of_rows
from foreshore.compute.result import Result
from foreshore.sql.plan import Select


async def select(context: StatementContext, plan: Select) -> Selected:
    """Run a SELECT."""
    point = context.prepared.point
    if point is not None and plan.as_of is None and plan.locking is None:
        rows = await row_by_key(context, point)
        if rows is not None:
            batch = batch_of_rows(rows, plan.desc.columns)
            return Selected(plan.desc, BatchSource(batch), "SELECT")
    return await selected(context, plan, "SELECT")


async def selected(context: StatementContext, plan: Select, verb: str) -> Selected:
    """Return the finished rows of a SELECT, with `verb` in its tag."""
    result = await _result(context, plan)
    # After waiting for a time in the future the columns may be others than those of `plan`.
    desc = plan.desc if plan.locking is not None else prepared_peek(context).query.desc
    return Selected(desc, BatchSource(result), verb)


async def _result(context: StatementContext, plan: Select) -> Result:
    if plan.locking is not None:
        return Result.of(await lock_and_read(context, plan.locking))
    return await read_result(context, plan.as_of, await rows_of_init_plans(context))


async def rows_of_init_plans(context: StatementContext) -> Given:
    """Return the rows of a statement's locking subqueries, which are locked now."""
    found = {}
    for id, each in context.prepared.init_plans:
        assert isinstance(each.plan, Select), each.plan
        rows = await all_rows(await _result(replace(context, prepared=each), each.plan))
        schema = rows_schema(each.plan.desc.columns)
        found[id] = pa.Table.from_arrays(rows.columns, schema=schema)
    return found
