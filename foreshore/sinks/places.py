"""Targets that are files: tables of a lake, and directories of files."""

import re
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.iceberg_tables import CatalogTable

SinkFormat: TypeAlias = OneOf["parquet", "csv", "json"]


RETENTION_MS = 86_400_000  # by default: a day
TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")


class PartitionField(msgspec.Struct, frozen=True):
    """A column by which a table has partitions, or a transform of it."""

    column: str
    transform: str = "identity"
    number: int = 0  # of buckets, or the width of truncated values

    @property
    def name(self) -> str:
        """Return the name of the column that has its values, or of the partition."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def text(self) -> str:
        """Return it as PARTITION BY has it."""
        column = '"' + self.column.replace('"', '""') + '"'
        if self.transform == "identity":
            return column
        return f"{self.transform}({f'{self.number}, ' if self.number else ''}{column})"


class DeltaTarget(msgspec.Struct, frozen=True, tag="delta"):
    """A Delta table."""

    url: str  # of its directory, which COPY may write
    partition_by: tuple[PartitionField, ...] = ()  # if the table is made
    retention_ms: int | None = None  # for how long old versions can be read, if the table is made


class IcebergTarget(msgspec.Struct, frozen=True, tag="iceberg"):
    """A table of an Iceberg catalog."""

    of: CatalogTable
    partition_by: tuple[PartitionField, ...] = ()  # if the table is made
    retention_ms: int | None = None  # for how long old snapshots can be read, if it is made


# The name of a file that may get more rows while it is the newest of its sink.
GROWING = re.compile(r"(foreshore_[0-9a-z]+_[a-z][0-9]+)-[0-9]+\.(?:parquet|csv|json)", re.ASCII)


class FilesTarget(msgspec.Struct, frozen=True, tag="files"):
    """A directory that gets files.

    With `merge` the newest one gets the rows of later intervals while it is small; else each
    interval has a file.
    """

    url: str
    format: SinkFormat
    header: bool = False  # of CSV files
    delimiter: str = ","
    merge: bool = False  # which sinks of older versions do not
