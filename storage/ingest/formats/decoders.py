"""The decoder of a format."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

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
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.ingest.formats.changes import ChangeDecoder, PayloadDecoder
from foreshore.storage.ingest.formats.decoder import Decoder
from foreshore.storage.ingest.formats.frames import Frame, confluent, glue
from foreshore.storage.ingest.formats.json_documents import JsonbDecoder, MembersDecoder
from foreshore.storage.ingest.formats.plain import BytesDecoder, CsvDecoder, TextDecoder
from foreshore.storage.ingest.formats.regex import RegexDecoder
from foreshore.storage.ingest.formats.schemas import Resolved
from foreshore.types import SqlType


def decoder_of(
    format: Format,
    resolved: Resolved,
    types: Sequence[SqlType],
    accesses: Accesses,
    *,
    is_change: bool = False,
    is_key_of_change: bool = False,
) -> Decoder:
    """Return what decodes messages to the columns that were resolved, of these types."""
    match format:
        case JsonFormat():
            decoder: Decoder = (
                JsonbDecoder() if resolved.is_single else MembersDecoder(resolved.columns, types)
            )
            if is_change:
                return ChangeDecoder(decoder)
            return PayloadDecoder(decoder) if is_key_of_change else decoder
        case TextFormat():
            return TextDecoder()
        case BytesFormat():
            return BytesDecoder()
        case CsvFormat():
            return CsvDecoder(format, types)
        case RegexFormat(pattern=pattern):
            return RegexDecoder(pattern, types)
        case AvroFormat(registry=registry):
            from foreshore.storage.ingest.formats.avro import AvroDecoder

            return AvroDecoder(
                resolved.schema,
                [each.name for each in resolved.columns],
                types,
                is_single=resolved.is_single,
                frame=_frame(format),
                is_change=is_change,
                writer=None if registry is None else _writer(format, accesses[registry]),
            )
        case ProtobufFormat(registry=registry):
            from foreshore.storage.ingest.formats.protobuf import ProtobufDecoder

            return ProtobufDecoder(resolved.schema, types, framed=registry is not None)


def _frame(format: AvroFormat) -> Frame | None:
    """Return what is before each message."""
    if format.glue:
        return glue
    return confluent if format.framed else None


def _writer(format: AvroFormat, access: Access) -> Callable[[Any], Any]:
    """Return what asks a registry for the Avro schema of an id, in a thread without a loop."""
    if format.glue:
        from foreshore.storage.external.glue_registry import GlueRegistry

        async def version(id: str) -> Any:
            async with GlueRegistry(access) as registry:
                return await registry.version(id)

        return lambda id: asyncio.run(version(id))
    from foreshore.storage.external.schema_registry import Registry

    async def found(id: int) -> Any:
        async with Registry(access) as registry:
            return (await registry.schema(id, "AVRO")).document()

    return lambda id: asyncio.run(found(id))
