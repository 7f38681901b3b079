"""Bind formats of messages."""

import re
from typing import Literal

from foreshore.connection_spec import ConnectionKind
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.sources.formats import (
    AvroFormat,
    BytesFormat,
    CsvFormat,
    Format,
    JsonFormat,
    ProtobufFormat,
    RegexFormat,
    TextFormat,
)
from foreshore.sources.regex import compiled
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    parsed_options,
    text,
)
from foreshore.sql.bind.planning import Planning, located

MOST_CSV_COLUMNS = 1600


def bind_format(
    planning: Planning,
    syntax: ast.FormatSyntax,
    *,
    of: Literal["key", "value"] = "value",
    written: bool = False,
) -> Format:
    """Return the format of keys or values; a registry must be a connection to one.

    `written` says that a sink writes them.
    """
    registry = None
    if syntax.docs and not written:
        raise FeatureNotSupported("DOC ON is for sinks", position=syntax.docs[0].at + 1)
    if syntax.registry is not None:
        kind: ConnectionKind = "confluent schema registry"
        if syntax.glue:
            kind = "aws glue schema registry"
        registry = bind_connection(planning, syntax.registry, kind)
    match syntax.name:
        case "json":
            return JsonFormat()
        case "text":
            return TextFormat()
        case "bytes":
            return BytesFormat()
        case "csv":
            return _csv(syntax)
        case "regex":
            with located(syntax.at):
                compiled(syntax.schema or "")
            return RegexFormat(syntax.schema or "")
        case "avro":
            return _avro(syntax, registry, of, written=written)
    parsed_options("PROTOBUF", syntax.options, {})
    return ProtobufFormat(registry, syntax.schema, syntax.message)


def _avro(syntax: ast.FormatSyntax, registry: str | None, of: str, *, written: bool) -> AvroFormat:
    strategies = {each.of: each for each in syntax.strategies}
    if syntax.glue:
        if syntax.strategies:
            raise FeatureNotSupported(
                "strategies of schemas are for CONFLUENT SCHEMA REGISTRY",
                hint="Write SCHEMA NAME, or USING SCHEMA.",
                position=syntax.strategies[0].at + 1,
            )
        options = parsed_options("AVRO", syntax.options, {"schema name": ("glue_name", text)})
        return AvroFormat(registry, glue=True, **options)
    pinned = strategies[of].pinned if of in strategies else None
    known: dict[str, tuple[str, Parse]] = {"confluent wire format": ("framed", _truth)}
    if written:
        known |= _WRITTEN
    options = parsed_options("AVRO", syntax.options, known)
    options.pop("null_defaults", None)
    for part in ("key", "value"):  # each has its own
        for field in ("fullname", "compatibility"):
            found = options.pop(f"{part} {field}", None)
            if found is not None and part == of:
                options[field] = found
    return AvroFormat(registry, syntax.schema, pinned=pinned, **options)


def _fullname(name: str, value: OptionValue) -> str:
    found = text(name, value)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*+", found, re.ASCII):
        raise InvalidParameterValue(f'"{found}" cannot be the name of an Avro record')
    return found


def _compatibility(name: str, value: OptionValue) -> str:
    found = text(name, value).upper()
    if found not in COMPATIBILITY:
        raise InvalidParameterValue(
            f'invalid value for option "{name}": "{value}"',
            hint=f"It is one of {', '.join(COMPATIBILITY)}.",
        )
    return found


def _null_defaults(name: str, value: OptionValue) -> None:
    """Take what is so anyway: columns that may be NULL have it as their default."""
    if not _truth(name, value):
        raise FeatureNotSupported(
            "NULL DEFAULTS = FALSE is not supported",
            hint="Columns that may be NULL have it as their default.",
        )


COMPATIBILITY = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
_WRITTEN: dict[str, tuple[str, Parse]] = {
    "avro key fullname": ("key fullname", _fullname),
    "avro value fullname": ("value fullname", _fullname),
    "key compatibility level": ("key compatibility", _compatibility),
    "value compatibility level": ("value compatibility", _compatibility),
    "null defaults": ("null_defaults", _null_defaults),
}


def _csv(syntax: ast.FormatSyntax) -> CsvFormat:
    names = syntax.columns
    with located(syntax.at):
        if isinstance(names, int):
            if not 0 < names <= MOST_CSV_COLUMNS:
                raise InvalidParameterValue(
                    f"the number of columns must be from 1 to {MOST_CSV_COLUMNS}"
                )
            names = tuple(f"column{number}" for number in range(1, names + 1))
        if len(set(names)) < len(names):
            raise InvalidParameterValue("a column of CSV is named twice")
        options = parsed_options("CSV", syntax.options, {"delimiter": ("delimiter", _character)})
    return CsvFormat(names, **options)


def _character(name: str, value: OptionValue) -> str:
    if not isinstance(value, str) or len(value.encode()) != 1 or value in '\r\n"':
        raise InvalidParameterValue(f"the {name} must be a single one-byte character")
    return value


def _truth(name: str, value: OptionValue) -> bool:
    if value is None or (isinstance(value, str) and value.lower() in ("true", "false")):
        return value is None or value == "true"
    raise InvalidParameterValue(f'option "{name}" must be true or false')
