"""Bind statements about the contents of tables as a whole: TRUNCATE, VACUUM and their kin."""

from foreshore.errors import WrongObjectType
from foreshore.sql import ast
from foreshore.sql.bind.definitions.table_options import require_table
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.writes.target import require_deletable
from foreshore.sql.plan import Maintain, Truncate


def bind_truncate(planning: Planning, statement: ast.TruncateStatement) -> Truncate:
    """Return the plan of TRUNCATE."""
    items = []
    for ref in statement.tables:
        with located(ref.at):
            item = planning.catalog.resolve_item(ref.name)
        require_table(item)
        with located(ref.at):
            require_deletable(item)
        items.append(item)
        planning.needs.add(item.id, "TRUNCATE")
    tables = tuple(dict.fromkeys(item.id for item in items))
    return Truncate(tables, statement.restart_identity, statement.cascade)


def bind_maintenance(planning: Planning, statement: ast.MaintenanceStatement) -> Maintain:
    """Return the plan of VACUUM, ANALYZE, CHECKPOINT or REINDEX."""
    skipped, rebuilt, tables = [], [], []
    for ref in statement.tables:
        with located(ref.at):
            if statement.verb == "reindex" and (key := planning.catalog.find_key(ref.name)):
                rebuilt.append(key[0].id)
                continue
            item = planning.catalog.resolve_item(ref.name)
        if statement.verb == "reindex":
            if item.kind not in ("table", "materialized view", "index"):
                raise WrongObjectType(f'"{item.name.item}" is not a table or materialized view')
            rebuilt.append(item.id)
            continue
        if item.kind not in ("table", "materialized view"):
            skipped.append(item.name.item)
        else:
            tables.append(item.id)
    return Maintain(statement.verb, tuple(skipped), tuple(rebuilt), tuple(tables))
