"""The format of what COPY FROM reads, where the statement does not say it."""

import os

from foreshore.errors import InvalidParameterValue, UndefinedFile
from foreshore.storage.lake.places import PATTERN, Location
from foreshore.storage.lake.reading import Format
from foreshore.storage.lake.tables import format_of
from foreshore.storage.lake.writing import SUFFIXES


def format_in(location: Location) -> Format:
    """Return the format of the table in a directory, or that of all of its files by their names.

    Raises UndefinedFile if there is nothing, InvalidParameterValue if it cannot be told.
    """
    if location.root is not None and not PATTERN & set(location.key):
        table = format_of(location.path)
        if table is not None:
            return table
    files = location.files()
    if not files:
        raise UndefinedFile(f'could not open file "{location.url}": No such file or directory')
    suffixes = {os.path.splitext(file)[1].lower() for file in files}
    for format in ("csv", "parquet", "json"):
        if suffixes <= set(SUFFIXES[format]):
            return format
    raise InvalidParameterValue(
        f'the format of "{location.url}" is not recognized',
        hint=f"Say FORMAT: {', '.join(SUFFIXES)}.",
    )
