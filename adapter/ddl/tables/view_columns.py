"""ALTER ... RENAME COLUMN of views and materialized views.

The view's statement gets a list of column names. Views over it keep the names that they know, as
for a table (`catalog/known_columns.py`), and so does the shard of a materialized view.
"""

import msgspec

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import refuse_reserved
from foreshore.adapter.ddl.dependents import plan_dependents
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.ddl.policy_names import follow_names
from foreshore.adapter.ddl.tables.alter import rename_dependents_columns
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import (
    DuplicateColumn,
    FeatureNotSupported,
    UndefinedColumn,
    WrongObjectType,
)
from foreshore.sql import ast
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import RenameViewColumn
from foreshore.sql.rewrite.definition_parts import with_columns_named


async def rename_column(context: StatementContext, plan: RenameViewColumn) -> Completed:
    """Run ALTER ... RENAME COLUMN for a view."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is None:
        return Completed(f"ALTER {plan.kind.upper()}")
    assert isinstance(found, Item), found
    if found.type not in ("view", "materialized view"):
        raise WrongObjectType(f'"{found.name}" is not a view')
    _refuse_checked(found)
    old = context.planner.reader().planned[found.id].desc
    if plan.column not in old.names:
        raise UndefinedColumn(f'column "{plan.column}" does not exist')
    if plan.to in old.names:
        taken = f'column "{plan.to}" of relation "{found.name}" already exists'
        raise DuplicateColumn(taken)
    refuse_reserved([plan.to])
    names = [plan.to if name == plan.column else name for name in old.names]
    change = context.catalog_change()
    stored = (old.stored or old.names) if found.type == "materialized view" else ()
    item = change.put(
        msgspec.structs.replace(
            found,
            create_sql=with_columns_named(found.create_sql, names),
            stored_names=stored or msgspec.UNSET,
        )
    )
    change.planned[item.id] = plan_item(change.state, context.planner.reader().planned, item)
    renamed = rename_dependents_columns(change, item.id, old.names, names)
    await blocking.run(None, follow_names, context, change.state.item(item.id), renamed)
    await plan_dependents(context, item.id)
    return Completed(f"ALTER {plan.kind.upper()}")


def _refuse_checked(view: Item) -> None:
    """Raise if the view has expectations, whose conditions name its columns."""
    (statement,) = parse(view.create_sql)
    assert isinstance(statement.ast, ast.CreateViewStatement), view
    checks = statement.ast.checks
    if checks.expectations or checks.not_null or checks.assertion:
        raise FeatureNotSupported(
            f'columns of {view.type} "{view.name}" cannot be renamed, because it has expectations'
        )
