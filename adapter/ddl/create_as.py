"""CREATE TABLE ... AS and SELECT ... INTO: a table and its rows, in one transaction.

The query runs as in INSERT ... SELECT, and the table is created when its rows are known. Others see
both at the same time.
"""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import add_table
from foreshore.adapter.ddl.objects import is_taken
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.source import queried_rows, with_row_outputs
from foreshore.adapter.write.stage import check, stage
from foreshore.adapter.write.target import target_of
from foreshore.sql.plan import CreateTableAs
from foreshore.table_rows import TableRows


async def create_table_as(context: StatementContext, plan: CreateTableAs) -> Completed:
    """Run CREATE TABLE ... AS."""
    as_of = None
    if plan.as_of is not None and plan.with_data:
        as_of = await wait_until_requested(context, plan.as_of)
        assert isinstance(context.prepared.plan, CreateTableAs), context.prepared.plan
        plan = context.prepared.plan
    if is_taken(context, plan.definition.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE TABLE AS")
    if not plan.with_data:
        add_table(context, plan.definition)
        return Completed("CREATE TABLE AS")
    rows = await queried_rows(context, (), as_of=as_of)
    rows = await with_row_outputs(context, rows, plan.row_outputs)
    id = add_table(context, plan.definition)
    target = target_of(context, id)
    made = TableRows.of_table(target.desc, rows)
    check(context, target, made)
    await stage(context, target, inserted=[made])
    return Completed(f"SELECT {made.count}")
