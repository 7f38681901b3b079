"""Bind KAFKA CONNECTION as the target of a sink: the topic, and how rows become messages."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
)
from foreshore.sinks.kafka import WRITTEN_FORMATS, Compression, KafkaTarget
from foreshore.sinks.spec import Envelope
from foreshore.sources.formats import AvroFormat, BytesFormat, Format, TextFormat
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sinks.docs import with_docs
from foreshore.sql.bind.definitions.sinks.partition import bind_partition_by
from foreshore.sql.bind.definitions.sinks.written import Written
from foreshore.sql.bind.definitions.sources.formats import bind_format
from foreshore.sql.bind.definitions.sources.kafka import topic_name
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    count,
    parsed_options,
    text,
)
from foreshore.sql.bind.planning import Planning, located
from foreshore.types import RelationDesc, SqlType, item_of


def bind_kafka_target(
    planning: Planning,
    target: ast.KafkaTargetSyntax,
    messages: ast.SinkMessagesSyntax | None,
    rows: Written,
) -> KafkaTarget:
    """Return the topic that a sink writes."""
    connection = bind_connection(planning, target.connection, "kafka")
    options = parsed_options("KAFKA CONNECTION", target.options, _OPTIONS)
    with located(target.at):
        if "topic" not in options:
            raise InvalidParameterValue('KAFKA CONNECTION needs the option "topic"')
        if rows.envelope == "append":
            raise FeatureNotSupported(
                "ENVELOPE APPEND is not for topics", hint="Use UPSERT or DEBEZIUM."
            )
        if messages is None or messages.value is None:
            raise InvalidParameterValue(
                "KAFKA CONNECTION needs a format", hint="Add FORMAT JSON, for instance."
            )
    value = bind_format(planning, messages.value, written=True)
    value = with_docs(planning, value, messages.value.docs, "value", rows)
    of_key = messages.key or messages.value
    key = bind_format(planning, of_key, of="key", written=True)
    key = with_docs(planning, key, of_key.docs, "key", rows)
    with located(messages.at):
        for each in (key, value):
            _check_format(each, rows.envelope if each is value else None)
        if messages.key is not None and not rows.key:
            raise InvalidParameterValue("KEY FORMAT needs a key", hint="Add KEY (column, ...).")
        if messages.headers is not None:
            _check_headers(messages.headers, rows.desc)
        found = KafkaTarget(
            connection,
            value=value,
            key=key if rows.key else None,
            headers=messages.headers,
            partition_by=_partition_by(planning, target.partition_by, rows),
            **options,
        )
        if found.key is not None:
            _check_single(found.key, rows.key, rows.desc, "key")
        _check_single(value, found.value_columns(rows.key, rows.desc.names), rows.desc, "value")
    return found


def _partition_by(
    planning: Planning, written: ast.PartitionBySyntax | None, rows: Written
) -> str | None:
    if written is None:
        return None
    return bind_partition_by(planning, written, rows)


def _check_format(format: Format, envelope: Envelope | None) -> None:
    """Raise unless a sink can write a format; the envelope is that of values."""
    if not isinstance(format, WRITTEN_FORMATS):
        raise FeatureNotSupported("sinks write the formats JSON, AVRO, TEXT and BYTES only")
    if isinstance(format, AvroFormat) and (format.glue or format.pinned is not None):
        raise FeatureNotSupported(
            "sinks with registries of AWS Glue, or with strategies of schemas, are not supported",
            hint="Write AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
        )
    if isinstance(format, AvroFormat) and (format.registry is None or not format.framed):
        raise FeatureNotSupported(
            "FORMAT AVRO of a sink needs a schema registry",
            hint="Write AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION name.",
        )
    if envelope == "debezium" and isinstance(format, TextFormat | BytesFormat):
        raise InvalidParameterValue("ENVELOPE DEBEZIUM needs FORMAT JSON or AVRO")


def _check_single(format: Format, columns: tuple[str, ...], desc: RelationDesc, what: str) -> None:
    """Raise if a format has one column, and the key or value has others."""
    if not isinstance(format, TextFormat | BytesFormat):
        return
    is_text = isinstance(format, TextFormat)
    if len(columns) != 1:
        raise InvalidParameterValue(
            f"the {what} has {len(columns)} columns, and FORMAT {'TEXT' if is_text else 'BYTES'}"
            " is for one",
            hint="Use FORMAT JSON, or create a materialized view with fewer columns.",
        )
    type = _type_of(columns[0], desc)
    if not is_text and type.name != "bytea":
        raise DatatypeMismatch(f'FORMAT BYTES needs type bytea, and "{columns[0]}" is {type}')


def _check_headers(name: str, desc: RelationDesc) -> None:
    if name not in desc.names:
        raise UndefinedColumn(f'column "{name}" does not exist')
    type = _type_of(name, desc)
    if type.name != "map" or item_of(type).name not in ("text", "bytea"):
        raise DatatypeMismatch(
            f'HEADERS needs type map[text=>text] or map[text=>bytea], and "{name}" is {type}'
        )


def _type_of(name: str, desc: RelationDesc) -> SqlType:
    return desc.columns[desc.names.index(name)].type


# --- options -----------------------------------------------------------------------------------


def _number(most: int) -> Callable[[str, OptionValue], int]:
    def parse(name: str, value: OptionValue) -> int:
        found = count(name, value)
        if not 1 <= found <= most:
            raise InvalidParameterValue(f'option "{name}" must be from 1 to {most}')
        return found

    return parse


def _compression(name: str, value: OptionValue) -> Any:
    found = value.lower() if isinstance(value, str) else ""
    known = get_args(Compression)
    if found not in known:
        raise InvalidParameterValue(f'option "{name}" must be one of {", ".join(known)}')
    return found


def _settings(name: str, value: OptionValue) -> dict[str, str]:
    pairs = value if isinstance(value, tuple) else ()
    return dict(each.split("=", 1) for each in pairs)


_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "topic": ("topic", topic_name),
    "topic partition count": ("partitions", _number(10_000)),
    "topic replication factor": ("replicas", _number(32_767)),
    "topic config": ("settings", _settings),
    "compression type": ("compression", _compression),
    "progress group id prefix": ("group_prefix", text),
    "transactional id prefix": ("transaction_prefix", text),
}
