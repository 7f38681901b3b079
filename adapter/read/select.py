"""SELECT: of the one row under a key, after locking, or as any query is answered."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.read.result import BatchSource, ResultSource, Selected
from foreshore.adapter.read.row_locks import selected_result
from foreshore.adapter.write.point import row_by_key
from foreshore.adapter.write.values import batch_of_rows
from foreshore.sql.plan import Select
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session


async def select(
    session: "Session", prepared: "Prepared", plan: Select, args: Sequence[Datum]
) -> Selected:
    """Run a SELECT."""
    desc = plan.desc
    if prepared.point is not None and plan.as_of is None and plan.locking is None:
        found = await row_by_key(session, prepared.point, args)
        if found is not None:
            return Selected(desc, BatchSource(batch_of_rows(found, desc.columns)), "SELECT")
    return await selected(session, prepared, plan, args, "SELECT")


async def selected(
    session: "Session", prepared: "Prepared", plan: Select, args: Sequence[Datum], verb: str
) -> Selected:
    """Return the finished rows of a SELECT as a result, after what it locks has been locked."""
    result = await selected_result(session, prepared, plan, args)
    assert prepared.peek is not None
    # What has waited for a time to come may have other columns than `plan` by now.
    desc = prepared.peek.query.desc if plan.locking is None else plan.desc
    return Selected(desc, ResultSource(result), verb)
