"""A table of an Iceberg catalog as a source."""

import msgspec

from foreshore.iceberg_tables import CatalogTable
from foreshore.sources.outputs import Column


class IcebergSource(msgspec.Struct, frozen=True, tag="iceberg"):
    """The snapshots of a table."""

    of: CatalogTable
    columns: tuple[Column, ...] = ()  # that were declared; without any they are those of the table
    follow: bool = True  # whether it looks for new snapshots
    poll_ms: int = 1000
    applies_changes: bool = False  # of the columns of the table
    filter: str | None = None  # a condition of pyiceberg; other rows are not read
