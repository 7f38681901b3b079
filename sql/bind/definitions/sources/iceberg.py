"""Bind ICEBERG CATALOG CONNECTION, as a source and as the target of a sink."""

from collections.abc import Mapping, Sequence
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.iceberg_tables import CatalogTable
from foreshore.sources.iceberg import IcebergSource
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.declared import declared_columns
from foreshore.sql.bind.definitions.sources.files import check_applies
from foreshore.sql.bind.definitions.sources.options import (
    Parse,
    is_apply,
    milliseconds,
    parsed_options,
    text,
    truth,
)
from foreshore.sql.bind.planning import Planning

WHAT = "ICEBERG CATALOG CONNECTION"
TABLE_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "namespace": ("namespace", text),
    "table": ("table", text),
    "local files": ("local", truth),
}
_OPTIONS = {
    **TABLE_OPTIONS,
    "follow": ("follow", truth),
    "poll interval": ("poll_ms", milliseconds),
    "filter": ("filter", text),
    "schema changes": ("applies_changes", is_apply),
}


def bind_iceberg(
    planning: Planning, reads: ast.IcebergSyntax, declared: Sequence[ast.ColumnDefinition]
) -> IcebergSource:
    """Return which table is followed."""
    options = parsed_options(WHAT, reads.options, _OPTIONS)
    table = bind_catalog_table(planning, reads, options)
    columns = declared_columns(planning, declared)
    check_applies(options, columns, reads.at)
    return IcebergSource(table, columns, **options)


def bind_catalog_table(
    planning: Planning, syntax: ast.IcebergSyntax, options: dict[str, Any]
) -> CatalogTable:
    """Return a table of a catalog, and take what names it out of the options."""
    namespace, table = options.pop("namespace", ""), options.pop("table", "")
    if not namespace:
        namespace, _, table = table.rpartition(".")
    if not all((*namespace.split("."), table)):
        raise InvalidParameterValue(
            f'{WHAT} needs the options "namespace" and "table"', position=syntax.at + 1
        )
    connection = bind_connection(planning, syntax.connection, "iceberg catalog")
    aws = None
    if syntax.aws is not None:
        aws = bind_connection(planning, syntax.aws, "aws")
    return CatalogTable(connection, namespace, table, aws, options.pop("local", False))
