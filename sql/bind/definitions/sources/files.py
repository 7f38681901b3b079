"""Bind FILES."""

from collections.abc import Mapping, Sequence
from typing import cast

from foreshore.errors import InvalidParameterValue
from foreshore.sources.files import TABLES, FileFormat, FilesSource
from foreshore.sources.outputs import Column
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.declared import declared_columns
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    is_apply,
    milliseconds,
    parsed_options,
    text,
    truth,
)
from foreshore.sql.bind.planning import Planning, located

FORMATS = ("parquet", "csv", "json", "delta", "iceberg")


def _format(name: str, value: OptionValue) -> str:
    if value not in FORMATS:
        raise InvalidParameterValue(
            f'unrecognized format "{value}"', hint=f"There are {', '.join(FORMATS)}."
        )
    return str(value)


def character(name: str, value: OptionValue) -> str:
    """Return a character of one byte."""
    if not isinstance(value, str) or len(value.encode()) != 1:
        raise InvalidParameterValue(f'option "{name}" must be a single one-byte character')
    return value


def null_text(name: str, value: OptionValue) -> str:
    """Return how NULL is written, which may be empty."""
    if not isinstance(value, str) or "\n" in value or "\r" in value:
        raise InvalidParameterValue(f'option "{name}" must be a text of one line')
    return value


def _order(name: str, value: OptionValue) -> str:
    if value not in ("name", "time"):
        raise InvalidParameterValue(f'option "{name}" must be name or time')
    return str(value)


_CSV = ("header", "delimiter", "quote", "escape", "null")
_LOCAL = ("order", "minimum age")  # files have times of change
_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "format": ("format", _format),
    "header": ("header", truth),
    "delimiter": ("delimiter", character),
    "quote": ("quote", character),
    "escape": ("escape", character),
    "null": ("null", null_text),
    "order": ("order", _order),
    "minimum age": ("age_ms", milliseconds),
    "hive partitioning": ("hive", truth),
    "schema changes": ("applies_changes", is_apply),
    "follow": ("follow", truth),
    "poll interval": ("poll_ms", milliseconds),
    "filter": ("filter", text),
}


def bind_files(
    planning: Planning, reads: ast.FilesSyntax, declared: Sequence[ast.ColumnDefinition]
) -> FilesSource:
    """Return which files are read."""
    options = parsed_options("FILES", tuple(map(with_format, reads.options)), _OPTIONS)
    if "format" not in options:
        raise InvalidParameterValue(
            'FILES needs the option "format"',
            hint=f"There are {', '.join(FORMATS)}.",
            position=reads.at + 1,
        )
    _check_options(reads, str(options["format"]))
    columns = declared_columns(planning, declared)
    if options["format"] == "json" and not columns:
        raise InvalidParameterValue(
            "the columns of JSON files must be declared",
            hint="Write them after the name of the source: CREATE SOURCE s (a int8, ...).",
            position=reads.at + 1,
        )
    if "filter" in options and options["format"] != "iceberg":
        raise InvalidParameterValue(
            'the option "filter" is for Iceberg tables',
            hint="Filter the rows in a view.",
            position=reads.at + 1,
        )
    check_applies(options, columns, reads.at)
    format = cast(FileFormat, options.pop("format"))
    connection = None
    if reads.connection is not None:
        connection = bind_connection(planning, reads.connection, "aws")
    return FilesSource(reads.url, format, columns, connection=connection, **options)


def _check_options(reads: ast.FilesSyntax, format: str) -> None:
    """Raise InvalidParameterValue for an option that the format or the place does not have."""
    for option in reads.options:
        with located(option.at):
            if option.name in _CSV and format != "csv":
                raise InvalidParameterValue(f'the option "{option.name}" is for CSV files')
            if option.name in (*_LOCAL, "hive partitioning") and format in TABLES:
                raise InvalidParameterValue(f'the option "{option.name}" is for files')
            if option.name == "schema changes" and format not in TABLES:
                raise InvalidParameterValue(f'the option "{option.name}" is for lake tables')
            if option.name in _LOCAL and reads.url.startswith("s3:"):
                raise InvalidParameterValue(f'the option "{option.name}" is for local files')


def check_applies(options: Mapping[str, object], columns: Sequence[Column], at: int) -> None:
    """Raise InvalidParameterValue if columns are declared that are to follow those of a table."""
    if options.get("applies_changes") and columns:
        raise InvalidParameterValue(
            "SCHEMA CHANGES = APPLY is for sources without declared columns",
            hint="Leave out the columns: the source has those of the table.",
            position=at + 1,
        )


def with_format(option: ast.SourceOption) -> ast.SourceOption:
    """Return FORMAT word as the option `format` with that value."""
    first, _, rest = option.name.partition(" ")
    if first == "format" and rest and option.value is None:
        return ast.SourceOption("format", rest, option.at)
    return option
