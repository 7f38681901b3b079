"""ALTER TABLE of a relation that a source writes."""

from collections.abc import Sequence

from foreshore.adapter.ddl.tables.alter import alter_table
from foreshore.adapter.ddl.tables.rewrite import Contents
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import AlterTable
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.full_names import dotted


async def alter_part(
    context: StatementContext,
    table: Item,
    actions: Sequence[str],
    contents: Contents | None = None,
) -> None:
    """Alter a relation of a source as ALTER TABLE with these actions, and perhaps other rows."""
    name = dotted(context.planner.state.full_name(table))
    (syntax,) = parse(f"ALTER TABLE {name} {', '.join(actions)}")
    reader = context.planner.reader()
    reader.altered_parts.add(table.id)
    try:
        plan = plan_statement(syntax, reader)
    finally:
        reader.altered_parts.discard(table.id)
    assert isinstance(plan, AlterTable), plan
    await alter_table(context, plan, contents)
