"""The names that EXPLAIN shows: of items of the catalog, and of their columns."""

from collections.abc import Sequence

from foreshore.expr.column_names import NamedColumns
from foreshore.ids import GlobalId
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.full_names import dotted


def full_name(catalog: CatalogReader, id: GlobalId) -> str:
    """Return the full name of an item, or the id of an intermediate collection, which has none."""
    return dotted(catalog.item(id).name.parts) if _is_item(id) else id


def columns_of(catalog: CatalogReader) -> NamedColumns:
    """Return what knows the columns of items by name."""

    def names_of(id: GlobalId) -> Sequence[str]:
        return [*map(quote_identifier, catalog.item(id).desc.names)] if _is_item(id) else ()

    return NamedColumns(names_of)


def _is_item(id: GlobalId) -> bool:
    return id.startswith(("u", "s"))
