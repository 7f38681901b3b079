"""What writes to which kind of target; imported late, as client libraries are large."""

from importlib import import_module
from typing import Any

from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.places import DeltaTarget, FilesTarget, IcebergTarget
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import PostgresTarget, Target
from foreshore.sinks.webhook import WebhookTarget
from foreshore.storage.export.exporter import SinkKind

_KINDS: dict[type, str] = {
    PostgresTarget: "foreshore.storage.export.postgres.kind",
    DeltaTarget: "foreshore.storage.export.files.delta_kind",
    IcebergTarget: "foreshore.storage.export.files.iceberg_kind",
    FilesTarget: "foreshore.storage.export.files.kind",
    WebhookTarget: "foreshore.storage.export.webhook.kind",
    PythonTarget: "foreshore.storage.export.python.kind",
    KafkaTarget: "foreshore.storage.export.kafka.kind",
}


def kind_of(target: Target) -> SinkKind:
    """Return what knows the external system of a target."""
    found: Any = import_module(_KINDS[type(target)])
    kind: SinkKind = found.KIND
    return kind
