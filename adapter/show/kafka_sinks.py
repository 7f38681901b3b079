"""SHOW CREATE SINK of a topic of Kafka."""

from collections.abc import Mapping

from msgspec.structs import replace

from foreshore.adapter.show.connections import full_name
from foreshore.catalog.item import Connection
from foreshore.catalog.state import State
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sources.formats import AvroFormat, BytesFormat, Format, JsonFormat, TextFormat
from foreshore.sql.bind.definitions.sinks.partition import with_columns_renamed
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def with_names(target: KafkaTarget, now: Mapping[str, str]) -> KafkaTarget:
    """Return a target with the present names of columns, by those that it has."""
    headers = None if target.headers is None else now[target.headers]
    text = None if target.partition_by is None else with_columns_renamed(target.partition_by, now)
    key = None if target.key is None else _with_columns_renamed(target.key, now)
    value = _with_columns_renamed(target.value, now)
    return replace(target, headers=headers, partition_by=text, key=key, value=value)


def _with_columns_renamed(format: Format, now: Mapping[str, str]) -> Format:
    if not isinstance(format, AvroFormat):
        return format
    docs = [(now[name], text) for name, text in format.column_docs if name in now]
    return replace(format, column_docs=tuple(docs))


def shown_topic(target: KafkaTarget) -> str:
    """Return the options of KAFKA CONNECTION."""
    parts = [f"TOPIC = {quote_string(target.topic)}"]
    if target.partitions is not None:
        parts.append(f"TOPIC PARTITION COUNT = {target.partitions}")
    if target.replicas is not None:
        parts.append(f"TOPIC REPLICATION FACTOR = {target.replicas}")
    if target.settings:
        pairs = (f"{quote_string(k)} => {quote_string(v)}" for k, v in target.settings.items())
        parts.append(f"TOPIC CONFIG = MAP[{', '.join(pairs)}]")
    parts.append(f"COMPRESSION TYPE = {quote_string(target.compression)}")
    if target.partition_by is not None:
        parts.append(f"PARTITION BY = {target.partition_by}")
    if target.group_prefix:
        parts.append(f"PROGRESS GROUP ID PREFIX = {quote_string(target.group_prefix)}")
    if target.transaction_prefix:
        parts.append(f"TRANSACTIONAL ID PREFIX = {quote_string(target.transaction_prefix)}")
    return ", ".join(parts)


def shown_formats(state: State, target: KafkaTarget, relation: str) -> str:
    """Return HEADERS and the formats; `relation` is the name of what the sink reads."""
    headers = "" if target.headers is None else f"HEADERS {quote_identifier(target.headers)} "
    value = _format(state, target.value, "VALUE", relation)
    if target.key is None or target.key == target.value == _without_options(target.value):
        return f"{headers}FORMAT {value}"
    return f"{headers}KEY FORMAT {_format(state, target.key, 'KEY', relation)} VALUE FORMAT {value}"


def _without_options(format: Format) -> Format:
    """Return a format without what keys and values are given in options of their own names."""
    if not isinstance(format, AvroFormat):
        return format
    return replace(format, fullname=None, compatibility=None, doc=None, column_docs=())


def _format(state: State, format: Format, of: str, relation: str) -> str:
    match format:
        case JsonFormat():
            return "JSON"
        case TextFormat():
            return "TEXT"
        case BytesFormat():
            return "BYTES"
        case AvroFormat(registry=registry) if registry is not None:
            connection = state.objects[registry]
            assert isinstance(connection, Connection), connection
            called = dotted(full_name(state, connection))
            options = []
            if format.fullname is not None:
                options.append(f"AVRO {of} FULLNAME = {quote_string(format.fullname)}")
            if format.compatibility is not None:
                options.append(f"{of} COMPATIBILITY LEVEL = {quote_string(format.compatibility)}")
            if format.doc is not None:
                options.append(f"{of} DOC ON TYPE {relation} = {quote_string(format.doc)}")
            for name, text in format.column_docs:
                column = f"{relation}.{quote_identifier(name)}"
                options.append(f"{of} DOC ON COLUMN {column} = {quote_string(text)}")
            more = f" ({', '.join(options)})" if options else ""
            return f"AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION {called}{more}"
    raise AssertionError(f"binding refuses {format}")
