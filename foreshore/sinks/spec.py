"""Where a sink writes, and how."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.places import DeltaTarget, FilesTarget, IcebergTarget
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.webhook import WebhookTarget, secrets_of_webhook
from foreshore.update import Timestamp

Envelope: TypeAlias = OneOf["upsert", "debezium", "append"]
FRONTIERS = "foreshore.frontiers"  # a table of PostgreSQL servers: how far each sink has come there


class PostgresTarget(msgspec.Struct, frozen=True, tag="postgres"):
    """A table of a PostgreSQL server."""

    connection: str  # its id
    table: str  # schema.table


Target: TypeAlias = (
    PostgresTarget
    | DeltaTarget
    | IcebergTarget
    | FilesTarget
    | KafkaTarget
    | WebhookTarget
    | PythonTarget
)


class SinkSpec(msgspec.Struct, frozen=True):
    """A sink of a relation with its own history: a table, a source or a materialized view."""

    target: Target
    envelope: Envelope
    key: tuple[str, ...] = ()  # columns; no two rows of the relation agree on them
    commit_ms: int = 1000  # the least time between two commits there
    with_snapshot: bool = True  # whether it begins with what the relation has
    key_known: bool = False  # whether the relation was known to have no two rows of a key at first
    # Of a sink that goes on in a restored database: the id of this, that of the database by which
    # the target knows the sink, and the time before which the target had everything by the backup.
    resumed_in: str = ""
    written_as: str = ""
    resumed_from: Timestamp = 0
    # Of a sink that ALTER SINK ... SET FROM has given another relation: the one before, which the
    # target has where its frontier is at most `cut`, the time of the change.
    previous: str = ""
    cut: Timestamp = 0


def connections_of(target: Target) -> tuple[str, ...]:
    """Return the ids of the connections that a target uses, that to its system first."""
    match target:
        case PostgresTarget(connection=connection):
            return (connection,)
        case DeltaTarget() | FilesTarget() | WebhookTarget() | PythonTarget():
            return ()
        case IcebergTarget(of=of):
            return of.connections
        case KafkaTarget(connection=connection):
            return (connection, *target.registries)


def secrets_of(target: Target) -> tuple[str, ...]:
    """Return the ids of the secrets that a target uses, beside those of its connections."""
    return secrets_of_webhook(target) if isinstance(target, WebhookTarget) else ()


def keeps_frontier(target: Target) -> bool:
    """Return whether the frontier is kept by the target, with the rows; else it is kept here.

    Of Python's targets some do; these say so when they are resumed.
    """
    return not isinstance(target, WebhookTarget | PythonTarget)


def left_by(target: Target, name: str) -> str | None:
    """Return what a sink of this name leaves beside its rows, for users; None if that is nothing.

    Its kind in `storage/export/` is the one to remove it (`Disposing`).
    """
    match target:
        case PostgresTarget():
            return f'row "{name}" of table {FRONTIERS}'
        case KafkaTarget():
            return f'record "{name}" of the progress topic'
        case FilesTarget():
            return f'claims of "{name}" in the directory _foreshore'
        case DeltaTarget() | IcebergTarget() | WebhookTarget() | PythonTarget():
            return None


def kind_of(target: Target) -> str:
    """Return the kind of a target as mz_sinks names it."""
    match target:
        case PostgresTarget():
            return "postgres"
        case DeltaTarget():
            return "delta"
        case IcebergTarget():
            return "iceberg"
        case FilesTarget():
            return "files"
        case KafkaTarget():
            return "kafka"
        case WebhookTarget():
            return "webhook"
        case PythonTarget():
            return "python"


def is_place(target: Target) -> bool:
    """Return whether a target is a place in a file system or a bucket, as COPY has them."""
    if isinstance(target, IcebergTarget):
        return target.of.local
    return isinstance(target, DeltaTarget | FilesTarget)
