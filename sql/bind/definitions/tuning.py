"""Names in the settings of ALTER TABLE that have no effect."""

from contextlib import suppress

from foreshore.errors import UndefinedObject, UndefinedTable
from foreshore.item_view import Name
from foreshore.sql.bind.planning import Planning


def require_index(planning: Planning, table: Name, index: str) -> None:
    """Raise UndefinedObject if the schema of a table has no index of this name."""
    parts = tuple(part for part in (table.database, table.schema, index) if part)
    with suppress(UndefinedTable):
        if planning.catalog.resolve_item(parts).kind == "index":
            return
    raise UndefinedObject(f'index "{index}" for table "{table.item}" does not exist')
