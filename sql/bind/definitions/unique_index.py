"""Bind statements about unique indexes: CREATE UNIQUE INDEX, DROP INDEX, RENAME.

A unique index is a key of its table, like a constraint, whose name is that of an index only. So
these statements are plans of ALTER TABLE.
"""

from dataclasses import replace

from foreshore.errors import (
    DependentObjectsStillExist,
    DuplicateTable,
    FeatureNotSupported,
    UndefinedColumn,
)
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.definitions.table import altered
from foreshore.sql.bind.definitions.table_options import require_table
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import AlterTable


def bind_create_unique_index(
    planning: Planning, statement: ast.CreateUniqueIndexStatement
) -> AlterTable:
    """Return the plan of CREATE UNIQUE INDEX."""
    tag = "CREATE INDEX"
    with located(statement.on.at):
        item = planning.catalog.resolve_item(statement.on.name)
    if item.kind == "materialized view":
        raise FeatureNotSupported(
            "unique indexes on materialized views are not supported",
            hint="CREATE INDEX without UNIQUE makes the same reads fast.",
            position=statement.on.at + 1,
        )
    require_table(item)
    index = statement.index
    for column, at in index.columns:
        if column not in item.desc.names:
            raise UndefinedColumn(f'column "{column}" does not exist', position=at + 1)
    if index.name is not None and _is_taken(planning, item, index.name):
        taken = _taken(index.name)
        if not statement.if_not_exists:
            raise taken
        return AlterTable(None, None, (f"{taken.message}, skipping",), tag=tag)
    return altered(planning, item, (ast.AddConstraint(index),), tag)


def bind_drop(planning: Planning, statement: ast.DropStatement) -> AlterTable | None:
    """Return the plan of DROP if it drops a unique index, otherwise None."""
    if statement.kind != "index":
        return None
    keys = [planning.catalog.find_key(ref.name) for ref in statement.names]
    found = next((key for key in keys if key is not None), None)
    if found is None:
        return None
    item, key = found
    if not key.is_index:
        name, table = key.name, item.name.item
        raise DependentObjectsStillExist(
            f"cannot drop index {name} because constraint {name} on table {table} requires it",
            hint=f"You can drop constraint {name} on table {table} instead.",
        )
    if len(keys) > 1:
        raise FeatureNotSupported(
            "a unique index cannot be dropped together with others",
            position=statement.names[0].at + 1,
        )
    return altered(planning, item, (ast.DropConstraint(key.name, False, True),), "DROP INDEX")


def bind_rename(planning: Planning, statement: ast.RenameStatement) -> AlterTable | None:
    """Return the plan of ALTER INDEX ... RENAME TO for the index of a key, otherwise None."""
    found = planning.catalog.find_key(statement.name.name) if statement.kind == "index" else None
    if found is None:
        return None
    item, key = found
    if _is_taken(planning, item, statement.to):
        raise _taken(statement.to)
    action = ast.RenameConstraint(key.name, statement.to, True)
    return altered(planning, item, (action,), "ALTER INDEX")


def _is_taken(planning: Planning, item: ItemView, name: str) -> bool:
    return planning.catalog.is_taken(replace(item.name, item=name))


def _taken(name: str) -> DuplicateTable:
    return DuplicateTable(f'relation "{name}" already exists')
