"""Files and tables of a lake as sources."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.sources.outputs import Column

FileFormat: TypeAlias = OneOf["parquet", "csv", "json", "delta", "iceberg"]
TABLES = ("delta", "iceberg")  # formats of tables; the others are of files
PLACES = "places"  # the name under which a source gets the allowed places, beside connections


class FilesSource(msgspec.Struct, frozen=True, tag="files"):
    """The files of a directory or pattern, or the versions of a table."""

    url: str
    format: FileFormat
    columns: tuple[Column, ...] = ()  # that were declared; without any they are those found
    header: bool = False  # of CSV files
    delimiter: str = ","
    follow: bool = True  # whether it looks for new files
    poll_ms: int = 1000
    connection: str | None = None  # the id of one to AWS, by whose rights a bucket is read
    filter: str | None = None  # of an Iceberg table: a condition of pyiceberg
