"""What a source reads, and which relation gets which of its outputs."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from foreshore.sources.files import FilesSource
from foreshore.sources.formats import registries_of
from foreshore.sources.generators import OUTPUTS, LoadGenerator
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.sources.postgres import PostgresSource
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.webhook import WebhookSource, webhook_output

SourceSpec: TypeAlias = (
    LoadGenerator
    | PostgresSource
    | KafkaSource
    | WebhookSource
    | FilesSource
    | PythonSource
    | MemoSource
    | IcebergSource
)


def connections_of(spec: SourceSpec) -> tuple[str, ...]:
    """Return the ids of the connections that a source uses."""
    match spec:
        case PostgresSource(connection=connection):
            return (connection,)
        case KafkaSource(connection=connection, messages=messages):
            return (connection, *connections_of_messages(messages))
        case FilesSource(connection=str(connection)):
            return (connection,)
        case IcebergSource(of=of):
            return of.connections
        case LoadGenerator() | WebhookSource() | FilesSource() | PythonSource() | MemoSource():
            return ()


def connections_of_messages(messages: Messages | None) -> tuple[str, ...]:
    """Return the ids of the connections that are needed to decode messages."""
    return () if messages is None else registries_of(messages.value, messages.key)


def secrets_of(spec: SourceSpec) -> tuple[str, ...]:
    """Return the ids of the secrets that a source uses, beside those of its connections."""
    if isinstance(spec, WebhookSource):
        return tuple(each.secret for each in spec.inputs if each.secret)
    return ()


def is_place(spec: SourceSpec) -> bool:
    """Return whether a source may read local files, or buckets by the server's rights."""
    if isinstance(spec, IcebergSource):
        return spec.of.local
    return isinstance(spec, FilesSource) and spec.connection is None


def is_pushed(spec: SourceSpec) -> bool:
    """Return whether others send the rows, so that there is nothing to read and no progress."""
    return isinstance(spec, WebhookSource)


def known_outputs(spec: SourceSpec) -> Mapping[str, Output] | None:
    """Return the outputs of a source by their references; None: its external system knows them."""
    match spec:
        case LoadGenerator():
            return OUTPUTS[spec.generator]
        case WebhookSource():
            return {OWN_ROWS: webhook_output(spec)}
        case PostgresSource() | KafkaSource() | FilesSource() | IcebergSource():
            return None
        case PythonSource() | MemoSource():
            return None


def kind_of(spec: SourceSpec) -> str:
    """Return the kind of a source as mz_sources names it."""
    match spec:
        case PostgresSource():
            return "postgres"
        case KafkaSource():
            return "kafka"
        case LoadGenerator():
            return "load-generator"
        case WebhookSource():
            return "webhook"
        case FilesSource():
            return "files"
        case IcebergSource():
            return "iceberg"
        case PythonSource() | MemoSource():
            return "python"


def left_by(spec: SourceSpec) -> str | None:
    """Return what a source leaves in its external system, for users; None if that is nothing.

    Its kind in `storage/ingest/` is the one to remove it (`Disposing`).
    """
    return f'replication slot "{spec.slot}"' if isinstance(spec, PostgresSource) else None


class Feed(msgspec.Struct, frozen=True):
    """The source that writes the rows of a relation, and the output that they are."""

    source: str  # the id of the source, which may be the relation itself
    reference: str
    spec: SourceSpec | None = None  # of the source itself
    details: str = ""  # of the output, for the connector
    messages: Messages | None = None  # of a table that has a format of its own
