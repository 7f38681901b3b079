"""Bind formats of messages."""

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
from foreshore.sql.bind.definitions.sources.connection import bind_connection
from foreshore.sql.bind.definitions.sources.options import OptionValue, parsed_options, text
from foreshore.sql.planning import Planning, located

MOST_CSV_COLUMNS = 1600


def bind_format(
    planning: Planning, syntax: ast.FormatSyntax, *, of: Literal["key", "value"] = "value"
) -> Format:
    """Return the format of keys or values; a registry must be a connection to one."""
    registry = None
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
            return _avro(syntax, registry, of)
    parsed_options("PROTOBUF", syntax.options, {})
    return ProtobufFormat(registry, syntax.schema, syntax.message)


def _avro(syntax: ast.FormatSyntax, registry: str | None, of: str) -> AvroFormat:
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
    options = parsed_options("AVRO", syntax.options, {"confluent wire format": ("framed", _truth)})
    return AvroFormat(registry, syntax.schema, pinned=pinned, **options)


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
