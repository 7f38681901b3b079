"""Rows of the relations about connections, and about what sources and sinks read and write."""

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

import msgspec

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Connection, Database, Item, Schema
from foreshore.connection_spec import PROGRESS_TOPIC, SecretRef
from foreshore.ids import GlobalId
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.places import IcebergTarget
from foreshore.sources.formats import Format, name_of
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.postgres import PostgresSource
from foreshore.sources.webhook import WebhookSource
from foreshore.storage.ingest.postgres.details import Details

_AWS_TEXTS = ("endpoint", "region", "access key id")
_AWS_SECRETS = ("access key id", "secret access key", "session token")


def _connections(snapshot: IntrospectionSnapshot, kind: str) -> Iterator[Connection]:
    return (each for each in snapshot.state.all(Connection) if each.spec.kind == kind)


def _fed(snapshot: IntrospectionSnapshot) -> Iterator[Item]:
    """Yield the sources, and the relations that they write."""
    return (item for item in snapshot.state.all(Item) if item.feed)


def _kafka_connections(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for each in _connections(snapshot, "kafka"):
        brokers = str(each.spec.options["broker"]).split(",")
        yield {
            "id": each.id,
            "brokers": [broker.strip() for broker in brokers if broker.strip()],
            "sink_progress_topic": each.spec.options.get("progress topic", PROGRESS_TOPIC),
        }


def _ssh_tunnels(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield public keys, for files authorized_keys."""
    for each in snapshot.state.all(Connection):
        if each.keys:
            first, second = each.keys
            yield {"id": each.id, "public_key_1": first.public, "public_key_2": second.public}


def _aws_connections(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the options that are texts, and the ids of the secrets that others are."""
    for each in _connections(snapshot, "aws"):
        options = each.spec.options
        row = {"id": each.id}
        for name in _AWS_TEXTS:
            if isinstance(found := options.get(name), str):
                row[name.replace(" ", "_")] = found
        for name in _AWS_SECRETS:
            if isinstance(found := options.get(name), SecretRef):
                row[f"{name.replace(' ', '_')}_secret_id"] = found.secret
        yield row


def _kafka_sources(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _fed(snapshot):
        if item.feed and isinstance(spec := item.feed.spec, KafkaSource):
            yield {"id": item.id, "group_id_prefix": spec.group_prefix, "topic": spec.topic}


def _kafka_source_tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the tables of a topic that have a format of their own."""
    for item in _fed(snapshot):
        if not item.feed or (messages := item.feed.messages) is None:
            continue
        source = snapshot.state.item(GlobalId(item.feed.source)).feed
        assert source, item
        assert isinstance(source.spec, KafkaSource), item
        yield {
            "id": item.id,
            "topic": source.spec.topic,
            "envelope_type": messages.envelope,
            "key_format": _format_name(messages.key),
            "value_format": _format_name(messages.value),
        }


def _format_name(format: Format | None) -> str | None:
    return None if format is None else name_of(format)


def _postgres_source_tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _fed(snapshot):
        assert item.feed, item
        source = snapshot.state.item(GlobalId(item.feed.source)).feed
        if not source or not isinstance(source.spec, PostgresSource) or not item.feed.details:
            continue
        details = msgspec.json.decode(item.feed.details, type=Details)
        schema, _, table = (details.table or item.feed.reference).partition(".")
        yield {"id": item.id, "schema_name": schema, "table_name": table}


def _webhook_sources(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield webhooks with the path of their URL: the server does not know its own host."""
    state = snapshot.state
    for item in _fed(snapshot):
        if item.feed and isinstance(item.feed.spec, WebhookSource):
            schema = state.objects[item.schema]
            assert isinstance(schema, Schema), item
            database = state.objects[schema.database or ""]
            assert isinstance(database, Database), schema
            names = (database.name, schema.name, item.name)
            path = "/".join(quote(each, safe="") for each in names)
            yield {"id": item.id, "name": item.name, "url": f"/api/webhook/{path}"}


def _kafka_sinks(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.state.all(Item):
        if item.sink and isinstance(item.sink.target, KafkaTarget):
            yield {"id": item.id, "topic": item.sink.target.topic}


def _iceberg_sinks(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.state.all(Item):
        if item.sink and isinstance(item.sink.target, IcebergTarget):
            of = item.sink.target.of
            yield {"id": item.id, "namespace": of.namespace, "table": of.table}


ROWS: Mapping[str, Callable[[IntrospectionSnapshot], Iterator[Row]]] = {
    "mz_aws_connections": _aws_connections,
    "mz_iceberg_sinks": _iceberg_sinks,
    "mz_kafka_connections": _kafka_connections,
    "mz_kafka_sinks": _kafka_sinks,
    "mz_kafka_source_tables": _kafka_source_tables,
    "mz_kafka_sources": _kafka_sources,
    "mz_postgres_source_tables": _postgres_source_tables,
    "mz_ssh_tunnel_connections": _ssh_tunnels,
    "mz_webhook_sources": _webhook_sources,
}
