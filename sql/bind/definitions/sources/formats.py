"""Bind formats of messages."""

from foreshore.errors import InvalidParameterValue
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
from foreshore.sql.bind.definitions.sources.options import OptionValue, parsed_options
from foreshore.sql.planning import Planning, located

MOST_CSV_COLUMNS = 1600


def bind_format(planning: Planning, syntax: ast.FormatSyntax) -> Format:
    """Return a format; a registry must be a connection to one."""
    registry = None
    if syntax.registry is not None:
        registry = bind_connection(planning, syntax.registry, "confluent schema registry")
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
            known = {"confluent wire format": ("framed", _truth)}
            return AvroFormat(
                registry, syntax.schema, **parsed_options("AVRO", syntax.options, known)
            )
    parsed_options("PROTOBUF", syntax.options, {})
    return ProtobufFormat(registry, syntax.schema, syntax.message)


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
