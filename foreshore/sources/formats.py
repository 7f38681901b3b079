"""Formats: how the keys and values of messages are to be read."""

from typing import TypeAlias

import msgspec


class JsonFormat(msgspec.Struct, frozen=True, tag="json"):
    """JSON documents: one jsonb column, or the declared columns by the names of members."""


class TextFormat(msgspec.Struct, frozen=True, tag="text"):
    """UTF-8, one text column."""


class BytesFormat(msgspec.Struct, frozen=True, tag="bytes"):
    """Anything, one bytea column."""


class CsvFormat(msgspec.Struct, frozen=True, tag="csv"):
    """A row of comma-separated values, one text column for each."""

    columns: tuple[str, ...]
    delimiter: str = ","


class RegexFormat(msgspec.Struct, frozen=True, tag="regex"):
    """A match of an RE2 expression, one text column for each of its groups."""

    pattern: str


class AvroFormat(msgspec.Struct, frozen=True, tag="avro"):
    """Avro, with a schema of a registry, or with this one; the columns are the record's fields."""

    registry: str | None = None  # the id of its connection
    schema: str | None = None
    framed: bool = True  # whether the id of a schema is before each message
    # Of a registry: the id or the text of the schema as which messages are read; None: the newest.
    pinned: int | str | None = None
    glue: bool = False  # whether the registry is one of AWS Glue
    glue_name: str | None = None  # of the schema there; None: that of the topic
    # Of sinks: the name of the record with its namespace, and the rule for later schemas that the
    # subject gets if it has none.
    fullname: str | None = None
    compatibility: str | None = None
    # Of sinks: what the schema says of the record, and of its columns by their names.
    doc: str | None = None
    column_docs: tuple[tuple[str, str], ...] = ()


class ProtobufFormat(msgspec.Struct, frozen=True, tag="protobuf"):
    """Protobuf, by the schema of a registry or by this text; the columns are the fields."""

    registry: str | None = None
    schema: str | None = None
    message: str | None = None  # the first of the schema by default


Format: TypeAlias = (
    JsonFormat | TextFormat | BytesFormat | CsvFormat | RegexFormat | AvroFormat | ProtobufFormat
)


def name_of(format: Format) -> str:
    """Return the name of a format, in lower case."""
    return str(format.__struct_config__.tag)


def registries_of(*formats: Format | None) -> tuple[str, ...]:
    """Return the ids of the connections to schema registries that formats need."""
    found = {
        each.registry: None
        for each in formats
        if isinstance(each, AvroFormat | ProtobufFormat) and each.registry is not None
    }
    return tuple(found)
