"""SHOW CREATE SINK."""

from collections.abc import Mapping

from foreshore.adapter.show.connections import full_name
from foreshore.adapter.show.kafka_sinks import shown_formats, shown_topic, with_names
from foreshore.adapter.show.other_sources import call_text, catalog_table_text
from foreshore.adapter.show.webhook_sinks import shown_webhook
from foreshore.catalog.item import Connection, Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.places import DeltaTarget, FilesTarget, IcebergTarget
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import PostgresTarget, SinkSpec, Target
from foreshore.sinks.webhook import WebhookTarget
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def sink_text(state: State, planned: Mapping[GlobalId, Planned], item: Item, spec: SinkSpec) -> str:
    """Return the statement that creates a sink, with the present names of all objects."""
    (relation,) = item.depends_on
    cluster = quote_identifier(state.objects[item.cluster or ""].name)
    # The sink has the names that columns had when it was created.
    before, present = planned[item.id].desc.names, planned[relation].desc.names
    now = dict(zip(before, present, strict=False))
    key = ""
    if spec.key:
        names = [now[each] for each in spec.key]
        key = f" KEY ({', '.join(map(quote_identifier, names))}) NOT ENFORCED"
    target = spec.target
    if isinstance(target, KafkaTarget):
        target = with_names(target, now)
    read = dotted(state.full_name(state.item(relation)))
    messages = _messages(state, target, read)
    snapshot = str(spec.with_snapshot).lower()
    timeout = ""
    if isinstance(spec.target, PythonTarget):
        timeout = f", TIMEOUT = '{spec.target.timeout_ms} ms'"
    return (
        f"CREATE SINK {dotted(state.full_name(item))} IN CLUSTER {cluster} "
        f"FROM {read} INTO {_written(state, target)}"
        f"{key}{messages} ENVELOPE {spec.envelope.upper()} WITH (SNAPSHOT = {snapshot}"
        f", COMMIT INTERVAL = '{spec.commit_ms} ms'{timeout})"
    )


def _written(state: State, target: Target) -> str:
    match target:
        case PostgresTarget(connection=connection, table=table):
            called = _connection(state, connection)
            return f"POSTGRES CONNECTION {called} (TABLE = {quote_string(table)})"
        case DeltaTarget(url=url):
            return f"DELTA ({', '.join((f'URL = {quote_string(url)}', *_partitions(target)))})"
        case IcebergTarget(of=of):
            return catalog_table_text(state, of, *_partitions(target))
        case FilesTarget():
            return _files(target)
        case WebhookTarget():
            return shown_webhook(state, target)
        case PythonTarget():
            return call_text(target.function, target.arguments)
        case KafkaTarget(connection=connection):
            called = _connection(state, connection)
            return f"KAFKA CONNECTION {called} ({shown_topic(target)})"


def _connection(state: State, id: str) -> str:
    """Return the name of a connection."""
    connection = state.objects[id]
    assert isinstance(connection, Connection), connection
    return dotted(full_name(state, connection))


def _files(target: FilesTarget) -> str:
    csv = ""
    if target.format == "csv":
        header, delimiter = str(target.header).lower(), quote_string(target.delimiter)
        csv = f", HEADER = {header}, DELIMITER = {delimiter}"
    form = f"FORMAT = {quote_string(target.format)}{csv}, MERGE = {str(target.merge).lower()}"
    return f"FILES (URL = {quote_string(target.url)}, {form})"


def _messages(state: State, target: Target, relation: str) -> str:
    """Return the clauses about messages, with a space before them; empty if there are none."""
    if not isinstance(target, KafkaTarget):
        return ""
    return f" {shown_formats(state, target, relation)}"


def _partitions(target: DeltaTarget | IcebergTarget) -> list[str]:
    """Return the options PARTITION BY and RETENTION, as far as they were given."""
    fields = ", ".join(field.text() for field in target.partition_by)
    found = [f"PARTITION BY = {quote_string(fields)}"] if fields else []
    if target.retention_ms is not None:
        found.append(f"RETENTION = '{target.retention_ms} ms'")
    return found
