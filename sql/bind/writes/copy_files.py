"""Bind COPY with files: the format, by its option or the end of the URL, and the options."""

import os
from collections.abc import Mapping

from msgspec.structs import replace as with_fields

from foreshore.client_encodings import CODECS
from foreshore.digits import is_digits
from foreshore.errors import FeatureNotSupported, InvalidParameterValue, SyntaxError_
from foreshore.sizes import bytes_of
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.writes.copy_options import copy_options
from foreshore.sql.plan import CopyFrom, CopyFromFiles, CopyOptions, FileOptions

_BY_SUFFIX = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_TABLES = ("delta", "iceberg")
_FORMATS = ("csv", "parquet", "json", *_TABLES)
_OWN = ("max_file_size", "version", "aws_connection")
LEAST_BYTES = 1 << 20


def file_options(planning: Planning, tree: ast.CopyStatement) -> FileOptions:
    """Return the options of a COPY with files; raises those errors that COPY's options have."""
    assert tree.url is not None
    given = {option.name: option for option in tree.options}
    format = _format(tree, given)
    size, version = given.get("max_file_size"), given.get("version")
    rest = [option for option in tree.options if option.name not in _OWN]
    if format in ("csv", "found"):
        csv = [option for option in rest if option.name != "format"]
        csv.append(ast.CopyOption("format", "csv", tree.at))
        options = copy_options(with_fields(tree, options=tuple(csv)))
        if options.force_quote or options.force_null or options.force_not_null:
            raise FeatureNotSupported("FORCE_QUOTE, FORCE_NULL and FORCE_NOT_NULL with files")
        if options.encoding in CODECS:
            raise FeatureNotSupported(f'encoding "{options.encoding}" with files')
    else:
        options = CopyOptions()
        for option in rest:
            if option.name != "format":
                raise SyntaxError_(
                    f'option "{option.name}" not recognized for format {format}',
                    position=option.at + 1,
                )
    if size is not None and tree.is_from:
        raise SyntaxError_("MAX FILE SIZE is only for COPY TO", position=size.at + 1)
    if version is not None and not (tree.is_from and format in (*_TABLES, "found")):
        raise SyntaxError_(
            "VERSION is only for COPY FROM Delta and Iceberg tables", position=version.at + 1
        )
    return FileOptions(
        tree.url,
        format,  # type: ignore[arg-type]
        options,
        256 << 20 if size is None else _size(size),
        None if version is None else _version(version),
        _connection(planning, given.get("aws_connection")),
    )


def _connection(planning: Planning, option: ast.CopyOption | None) -> str | None:
    """Return the id of the connection by whose keys a bucket is reached."""
    if option is None:
        return None
    if option.connection is None:
        raise SyntaxError_(
            f'option "{option.name}" not recognized',
            hint="Write AWS CONNECTION name.",
            position=option.at + 1,
        )
    return bind_connection(planning, option.connection, "aws")


def with_files(planning: Planning, plan: CopyFrom, tree: ast.CopyStatement) -> CopyFromFiles:
    """Return a COPY FROM as one from files."""
    files = file_options(planning, tree)
    return CopyFromFiles(plan.table, plan.columns, plan.defaults, files, plan.where)


def _format(tree: ast.CopyStatement, given: Mapping[str, ast.CopyOption]) -> str:
    option = given.get("format")
    if option is None:
        assert tree.url is not None
        found = _BY_SUFFIX.get(os.path.splitext(tree.url.rstrip("/"))[1].lower())
        if found is None and tree.is_from and given.keys() <= {"version", "aws_connection"}:
            return "found"
        if found is None:
            raise SyntaxError_(
                "COPY with files needs a FORMAT",
                sqlstate="42601",
                hint=f"Formats are: {', '.join(_FORMATS)}",
            )
        return found
    name = str(option.value).lower()
    if name in ("text", "binary", "arrow"):
        raise FeatureNotSupported(f"COPY with files in format {name}", position=option.at + 1)
    if name not in _FORMATS:
        raise InvalidParameterValue(
            f'COPY format "{option.value}" not recognized', position=option.at + 1
        )
    return name


def _size(option: ast.CopyOption) -> int:
    try:
        size = bytes_of(str(option.value))
    except ValueError:
        raise InvalidParameterValue(
            f'invalid value for MAX FILE SIZE: "{option.value}"',
            hint="A size is a number with a unit, such as 256MB.",
            position=option.at + 1,
        ) from None
    return max(size, LEAST_BYTES)


def _version(option: ast.CopyOption) -> int:
    if not is_digits(str(option.value)):
        raise InvalidParameterValue(
            f'invalid value for VERSION: "{option.value}"', position=option.at + 1
        )
    return int(str(option.value))
