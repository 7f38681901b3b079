"""What a Kafka source reads, as CREATE SOURCE says it."""

from collections.abc import Callable

from foreshore.sources.formats import (
    AvroFormat,
    CsvFormat,
    Format,
    ProtobufFormat,
    RegexFormat,
)
from foreshore.sources.kafka import Include, KafkaSource, Messages
from foreshore.sources.outputs import Column
from foreshore.sql.parse.keywords import quote_identifier, quote_string

Called = Callable[[str], str]  # the name of a connection by its id


def kafka_text(spec: KafkaSource, called: Called) -> str:
    """Return what follows FROM."""
    topic = f"KAFKA CONNECTION {called(spec.connection)} ({', '.join(_options(spec))})"
    return topic if spec.messages is None else f"{topic} {messages_text(spec.messages, called)}"


def messages_text(spec: Messages, called: Called) -> str:
    """Return how messages become rows: FORMAT and what follows."""
    value = _format(spec.value, called)
    if spec.key is not None:
        parts = [f"KEY FORMAT {_format(spec.key, called, 'KEY')} VALUE FORMAT {value}"]
    else:
        parts = [f"FORMAT {value}"]
    included = [_included(each) for each in spec.includes]
    if spec.shows_key and (spec.key_name is not None or spec.envelope == "none"):
        name = "" if spec.key_name is None else f" AS {quote_identifier(spec.key_name)}"
        included.insert(0, f"KEY{name}")
    if included:
        parts.append(f"INCLUDE {', '.join(included)}")
    inline = ""
    if spec.errors_column is not None:
        inline = f" (VALUE DECODING ERRORS = INLINE AS {quote_identifier(spec.errors_column)})"
    return " ".join([*parts, f"ENVELOPE {spec.envelope.upper()}{inline}"])


def declared_text(columns: tuple[Column, ...], watermark: str | None = None) -> str:
    """Return the declared columns and the watermark in parentheses, nothing if there are none."""
    written = [
        f"{quote_identifier(each.name)} {each.type}{'' if each.nullable else ' NOT NULL'}"
        for each in columns
    ]
    written += [] if watermark is None else [watermark]
    return f" ({', '.join(written)})" if written else ""


def _options(spec: KafkaSource) -> list[str]:
    options = [f"TOPIC = {quote_string(spec.topic)}"]
    if spec.start_offsets:
        options.append(f"START OFFSET = ({', '.join(map(str, spec.start_offsets))})")
    if spec.start_timestamp is not None:
        options.append(f"START TIMESTAMP = {spec.start_timestamp}")
    if spec.group_prefix:
        options.append(f"GROUP ID PREFIX = {quote_string(spec.group_prefix)}")
    options.append(f"TIMESTAMP INTERVAL = '{spec.batch_ms} ms'")
    return options


def _format(format: Format, called: Called, of: str = "VALUE") -> str:
    match format:
        case CsvFormat():
            names = ", ".join(map(quote_identifier, format.columns))
            return f"CSV WITH HEADER ({names}) DELIMITED BY {quote_string(format.delimiter)}"
        case RegexFormat(pattern=pattern):
            return f"REGEX {quote_string(pattern)}"
        case AvroFormat(registry=registry, schema=schema):
            if registry is not None and format.glue:
                name = format.glue_name
                named = "" if name is None else f" (SCHEMA NAME = {quote_string(name)})"
                return f"AVRO USING AWS GLUE SCHEMA REGISTRY CONNECTION {called(registry)}{named}"
            framed = "" if format.framed else " (CONFLUENT WIRE FORMAT = false)"
            return f"AVRO {_schema(registry, schema, called)}{_strategy(format, of)}{framed}"
        case ProtobufFormat(registry=registry, schema=schema, message=message):
            named = "" if message is None else f"MESSAGE {quote_string(message)} "
            return f"PROTOBUF {named}{_schema(registry, schema, called)}"
    return type(format).__name__.removesuffix("Format").upper()


def _strategy(format: AvroFormat, of: str) -> str:
    """Return which schema of a registry the messages are read as, if not the newest."""
    match format.pinned:
        case None:
            return ""
        case int(id):
            return f" {of} STRATEGY ID {id}"
        case text:
            return f" {of} STRATEGY INLINE {quote_string(text)}"


def _schema(registry: str | None, schema: str | None, called: Called) -> str:
    if registry is not None:
        return f"USING CONFLUENT SCHEMA REGISTRY CONNECTION {called(registry)}"
    return f"USING SCHEMA {quote_string(schema or '')}"


def _included(include: Include) -> str:
    header = f" {quote_string(include.header)}" if include.what == "header" else ""
    last = " BYTES" if include.is_bytes else ""
    return f"{include.what.upper()}{header} AS {quote_identifier(include.name)}{last}"
