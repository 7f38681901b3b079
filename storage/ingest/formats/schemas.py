"""Schemas of Avro and Protobuf: where they come from, and the columns that they stand for.

A schema is looked up when the relation is made, and kept with it: messages of later versions are
read as that one.
"""

import asyncio
import json
from typing import Any, Literal

import msgspec

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
from foreshore.sources.outputs import Column
from foreshore.sources.regex import group_names
from foreshore.storage.external.access import Access, Accesses


class Resolved(msgspec.Struct, frozen=True):
    """The columns of a format, and its schema if it has one.

    `is_single` says that the whole message is the column.
    """

    columns: tuple[Column, ...]
    is_single: bool = True
    schema: str = ""


class Asked(msgspec.Struct, frozen=True):
    """What a format is for: its topic and its part of messages, and the name of a single column.

    `is_change` says that messages are changes of a row, as Debezium writes them.
    """

    topic: str
    part: Literal["key", "value"]
    name: str
    is_change: bool = False

    @property
    def subject(self) -> str:
        """Return the subject of the schema in a Confluent registry."""
        return f"{self.topic}-{self.part}"


async def resolved(
    format: Format, asked: Asked, accesses: Accesses, declared: tuple[Column, ...] = ()
) -> Resolved:
    """Return a format's columns.

    Raises DatabaseError if the schema cannot be had or used.
    """
    match format:
        case JsonFormat():
            single = (Column(asked.name, "jsonb"),)
            return Resolved(declared, is_single=False) if declared else Resolved(single)
        case CsvFormat():
            columns = declared or tuple(Column(each, "text") for each in format.columns)
            return Resolved(columns, is_single=False)
        case RegexFormat(pattern=pattern):
            columns = declared or tuple(Column(each, "text") for each in group_names(pattern))
            return Resolved(columns, is_single=False)
        case TextFormat():
            return Resolved((Column(asked.name, "text"),))
        case BytesFormat():
            return Resolved((Column(asked.name, "bytea"),))
        case AvroFormat():
            return await _avro(format, asked, accesses)
        case ProtobufFormat():
            return await _protobuf(format, asked, accesses)


async def _avro(format: AvroFormat, asked: Asked, accesses: Accesses) -> Resolved:
    from foreshore.storage.ingest.formats.avro import columns_of

    text = format.pinned if isinstance(format.pinned, str) else format.schema
    if text is not None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidParameterValue(f"the Avro schema is no JSON: {error}") from None
    else:
        assert format.registry is not None, format
        document = await _registered(format, accesses[format.registry], asked)
    columns, is_single = columns_of(document, asked.name, is_change=asked.is_change)
    return Resolved(columns, is_single, json.dumps(document))


async def _registered(format: AvroFormat, access: Access, asked: Asked) -> Any:
    """Return the Avro schema of a registry as which messages are read."""
    if format.glue:
        from foreshore.storage.external.glue_registry import GlueRegistry

        async with GlueRegistry(access) as glue:
            return await glue.latest(format.glue_name or asked.topic)
    from foreshore.storage.external.schema_registry import Registry

    async with Registry(access) as registry:
        if isinstance(format.pinned, int):
            return (await registry.schema(format.pinned, "AVRO")).document()
        return (await registry.latest(asked.subject, "AVRO")).document()


async def _protobuf(format: ProtobufFormat, asked: Asked, accesses: Accesses) -> Resolved:
    from foreshore.storage.ingest.formats.protobuf import PACKED, columns_of, compiled, unpacked

    files = {"schema.proto": format.schema or ""}
    if format.registry is not None:
        from foreshore.storage.external.schema_registry import Registry

        async with Registry(accesses[format.registry]) as registry:
            files = (await registry.latest(asked.subject, "PROTOBUF")).files()
    if format.schema is not None and format.schema.startswith(PACKED):
        schema = unpacked(format.schema, format.message)
    else:
        schema = await asyncio.to_thread(compiled, files, format.message)
    return Resolved(columns_of(schema), is_single=False, schema=schema)
