"""How the rows of a sink become messages of its topic."""

import json

from foreshore.sinks.kafka import KafkaTarget
from foreshore.sources.formats import AvroFormat, BytesFormat, Format, JsonFormat, TextFormat
from foreshore.storage.export.formats.columns import Columns
from foreshore.storage.export.formats.encoder import Encoder, JsonEncoder, SingleEncoder
from foreshore.storage.export.kafka.messages import HashColumn, HeadersColumn, Layout
from foreshore.storage.export.messages import Export


async def laid_out(export: Export) -> Layout:
    """Return how rows are encoded; registers schemas.

    Raises DatabaseError if a schema cannot be registered.
    """
    target, spec, desc = target_of(export), export.spec, export.desc
    values = Columns(desc, target.value_columns(spec.key, desc.names))
    key, headers = None, None
    if target.key is not None:
        key = await _encoder(export, target.key, Columns(desc, spec.key), "key")
    if target.headers is not None:
        place = desc.names.index(target.headers)
        headers = HeadersColumn(place, desc.columns[place].type)
    value = await _encoder(export, target.value, values, "value")
    hash = None if export.hash is None else HashColumn(export.hash)
    return Layout(spec.envelope, value, key, ", ".join(spec.key), headers, hash)


async def _encoder(export: Export, format: Format, columns: Columns, part: str) -> Encoder:
    match format:
        case JsonFormat():
            return JsonEncoder(columns)
        case TextFormat() | BytesFormat():
            return SingleEncoder(columns, is_text=isinstance(format, TextFormat))
        case AvroFormat(registry=registry) if registry is not None:
            return await _avro(export, format, registry, columns, part)
    raise AssertionError(f"binding refuses {format}")


async def _avro(
    export: Export, format: AvroFormat, registry: str, columns: Columns, part: str
) -> Encoder:
    """Register the schema of keys or values, and return what encodes them."""
    from foreshore.storage.export.formats.avro import AvroEncoder, schema_of
    from foreshore.storage.external.schema_registry import Registry

    is_change = part == "value" and export.spec.envelope == "debezium"
    found = schema_of(columns, part, format, is_change=is_change)
    schema = json.dumps(found)
    async with Registry(export.accesses[registry]) as client:
        subject = f"{target_of(export).topic}-{part}"
        if format.compatibility is not None:
            await client.make_compatible(subject, format.compatibility)
        return AvroEncoder(columns, await client.register(subject, schema))


def target_of(export: Export) -> KafkaTarget:
    """Return the topic."""
    assert isinstance(export.spec.target, KafkaTarget), export
    return export.spec.target
