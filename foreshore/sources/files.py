"""Files and tables of a lake as sources."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.sources.outputs import Column

FileFormat: TypeAlias = OneOf["parquet", "csv", "json", "delta", "iceberg"]
FileOrder: TypeAlias = OneOf["name", "time"]
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
    quote: str = '"'  # of CSV files, as are the next two
    escape: str | None = None  # by default the quote
    null: str = ""
    order: FileOrder = "name"  # in which files are read that are new
    age_ms: int = 0  # since the last change of a file, before it is read
    applies_changes: bool = False  # of the columns of a lake table
    hive: bool = False  # whether directories called column=value are columns
