"""Bind DELTA and FILES as targets of sinks."""

from collections.abc import Mapping
from typing import get_args

from foreshore.errors import InvalidParameterValue
from foreshore.sinks.places import DeltaTarget, FilesTarget, SinkFormat
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sinks.lake_partitions import partition_fields
from foreshore.sql.bind.definitions.sources.files import character, with_format
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    milliseconds,
    parsed_options,
    text,
    truth,
)

_FORMATS: tuple[str, ...] = get_args(SinkFormat)


def _format(name: str, value: OptionValue) -> str:
    if value not in _FORMATS:
        raise InvalidParameterValue(
            f'unrecognized format "{value}"', hint=f"There are {', '.join(_FORMATS)}."
        )
    return str(value)


_OPTIONS: Mapping[str, Mapping[str, tuple[str, Parse]]] = {
    "delta": {
        "url": ("url", text),
        "partition by": ("partition_by", partition_fields),
        "retention": ("retention_ms", milliseconds),
    },
    "files": {
        "url": ("url", text),
        "format": ("format", _format),
        "header": ("header", truth),
        "delimiter": ("delimiter", character),
        "merge": ("merge", truth),
    },
}


def bind_place(target: ast.PlaceTargetSyntax) -> DeltaTarget | FilesTarget:
    """Return the table or the directory that a sink writes."""
    kind = target.kind.upper()
    known = _OPTIONS[target.kind]
    options = parsed_options(kind, tuple(map(with_format, target.options)), known)
    for needed in ("url", "format"):
        if needed in known and needed not in options:
            raise InvalidParameterValue(
                f'{kind} needs the option "{needed}"', position=target.at + 1
            )
    if target.kind == "delta":
        return DeltaTarget(**options)
    if options["format"] != "csv" and ("header" in options or "delimiter" in options):
        raise InvalidParameterValue(
            "HEADER and DELIMITER are options of FORMAT csv", position=target.at + 1
        )
    return FilesTarget(**{"merge": True, **options})
