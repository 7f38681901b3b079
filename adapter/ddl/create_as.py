"""CREATE TABLE ... AS and SELECT ... INTO: a table and its rows, in one transaction.

The query is run like that of an INSERT ... SELECT, and the table is made when its rows are there:
others see both at one time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import add_table, is_there
from foreshore.adapter.read.peek import awaited
from foreshore.adapter.write.insert import with_numbers, written_rows
from foreshore.adapter.write.tables import checked, plan_of_table, write_rows
from foreshore.rows import count
from foreshore.sql.plan import CreateTableAs
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session


async def create_table_as(
    session: "Session", prepared: "Prepared", plan: CreateTableAs, args: Sequence[Datum]
) -> Completed:
    """Run CREATE TABLE ... AS."""
    as_of = None
    if plan.as_of is not None and plan.with_data:
        as_of = await awaited(session, prepared, args, plan.as_of)
        assert isinstance(prepared.plan, CreateTableAs), prepared.plan
        plan = prepared.plan
    if is_there(session, plan.definition.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE TABLE AS")
    if not plan.with_data:
        add_table(session, plan.definition)
        return Completed("CREATE TABLE AS")
    rows = await written_rows(session, prepared, args, (), as_of=as_of)
    rows = await with_numbers(session, rows, plan.row_outputs, args)
    id = add_table(session, plan.definition)
    await write_rows(session, id, plan_of_table(session, id), checked(session, id, rows))
    return Completed(f"SELECT {count(rows)}")
