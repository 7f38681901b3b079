"""SELECT: of the one row under a key, after locking, or as any query is answered."""

from typing import TYPE_CHECKING

from foreshore.adapter.read.result import BatchSource, ResultSource, Selected
from foreshore.adapter.read.row_locks import selected_result
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.point import row_by_key
from foreshore.adapter.write.values import batch_of_rows
from foreshore.sql.plan import Select

if TYPE_CHECKING:
    pass


async def select(context: StatementContext, plan: Select) -> Selected:
    """Run a SELECT."""
    desc = plan.desc
    if context.prepared.point is not None and plan.as_of is None and plan.locking is None:
        found = await row_by_key(context, context.prepared.point)
        if found is not None:
            return Selected(desc, BatchSource(batch_of_rows(found, desc.columns)), "SELECT")
    return await selected(context, plan, "SELECT")


async def selected(context: StatementContext, plan: Select, verb: str) -> Selected:
    """Return the finished rows of a SELECT as a result, after what it locks has been locked."""
    result = await selected_result(context, plan)
    assert context.prepared.peek is not None
    # What has waited for a time to come may have other columns than `plan` by now.
    desc = context.prepared.peek.query.desc if plan.locking is None else plan.desc
    return Selected(desc, ResultSource(result), verb)
