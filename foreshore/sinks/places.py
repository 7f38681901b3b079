"""Targets that are files: tables of a lake, and directories of files."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.iceberg_tables import CatalogTable

SinkFormat: TypeAlias = OneOf["parquet", "csv", "json"]


class DeltaTarget(msgspec.Struct, frozen=True, tag="delta"):
    """A Delta table."""

    url: str  # of its directory, which COPY may write


class IcebergTarget(msgspec.Struct, frozen=True, tag="iceberg"):
    """A table of an Iceberg catalog."""

    of: CatalogTable


class FilesTarget(msgspec.Struct, frozen=True, tag="files"):
    """A directory that gets a file for each interval."""

    url: str
    format: SinkFormat
    header: bool = False  # of CSV files
    delimiter: str = ","
