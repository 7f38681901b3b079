"""SELECT: locks rows if it says so, then reads."""

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.introspection.relations import load_names
from foreshore.adapter.read.bound.bind import Given
from foreshore.adapter.read.keys.read_rows import rows_by_keys
from foreshore.adapter.read.pipeline import prepared_peek, read_result, read_source
from foreshore.adapter.read.row_locks import lock_and_read, lock_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import (
    BatchSource,
    RowSource,
    Selected,
    all_rows,
    source_of_rows,
)
from foreshore.compute.engine import rows_schema
from foreshore.compute.result import Result
from foreshore.sql.plan import Select


async def select(context: StatementContext, plan: Select, verb: str = "SELECT") -> Selected:
    """Run a SELECT; return its rows, with `verb` in its tag."""
    programs = context.prepared.made.programs
    rows, read = None, programs.row_read
    if plan.locking is not None:
        if programs.locked_read is not None:
            read = programs.locked_read.read
            rows = await lock_rows(context, plan.locking, programs.locked_read)
    elif plan.as_of is None and read is not None:
        rows = await rows_by_keys(context, read)
    if read is not None and rows is not None:
        desc = plan.desc
        if read.shows_names:
            await load_names(context, desc.columns)
        return Selected(desc, source_of_rows(rows, desc.columns, exact=read.is_exact), verb)
    return await selected(context, plan, verb)


async def selected(context: StatementContext, plan: Select, verb: str) -> Selected:
    """Return the finished rows of a SELECT, with `verb` in its tag."""
    source: RowSource
    if plan.locking is not None:
        source = BatchSource(await _result(context, plan))
    else:
        given = await rows_of_init_plans(context)
        source = await read_source(context, plan.as_of, given)
    # After waiting for a time in the future the columns may be others than those of `plan`.
    desc = plan.desc if plan.locking is not None else prepared_peek(context.prepared).query.desc
    try:
        await load_names(context, desc.columns)
    except BaseException:
        source.close()
        raise
    return Selected(desc, source, verb)


async def _result(context: StatementContext, plan: Select) -> Result:
    if plan.locking is not None:
        return Result.of(await lock_and_read(context, plan.locking))
    return await read_result(context, plan.as_of, await rows_of_init_plans(context))


async def rows_of_init_plans(context: StatementContext) -> Given:
    """Return the rows of a statement's locking subqueries, which are locked now.

    With them are those that the changing parts of its WITH have returned.
    """
    found = dict(context.given)
    for id, each in context.prepared.made.init_plans:
        assert isinstance(each.made.plan, Select), each.made.plan
        rows = await all_rows(await _result(replace(context, prepared=each), each.made.plan))
        schema = rows_schema(each.made.plan.desc.columns)
        found[id] = pa.Table.from_arrays(rows.columns, schema=schema)
    return found
