"""Which kind of external system a source reads, and what reaches it.

Each is imported when the first source of its kind comes, as client libraries are large.
"""

from importlib import import_module
from typing import Any

from foreshore import blocking
from foreshore.connection_spec import TUNNEL, ConnectionKind
from foreshore.errors import FeatureNotSupported
from foreshore.sources.files import FilesSource
from foreshore.sources.generators import LoadGenerator
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.postgres import PostgresSource
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.spec import SourceSpec
from foreshore.storage.external import tunnels
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.connector import Kind

_KINDS = {
    LoadGenerator: "foreshore.storage.ingest.generators.kind",
    PostgresSource: "foreshore.storage.ingest.postgres.kind",
    FilesSource: "foreshore.storage.ingest.files.kind",
    PythonSource: "foreshore.storage.ingest.python.kind",
    MemoSource: "foreshore.storage.ingest.python.memo_kind",
    IcebergSource: "foreshore.storage.ingest.files.catalog_kind",
    KafkaSource: "foreshore.storage.ingest.kafka.kind",
}
_VALIDATIONS: dict[ConnectionKind, str] = {
    "postgres": "foreshore.storage.ingest.postgres.ready",
    "kafka": "foreshore.storage.external.kafka",
    "confluent schema registry": "foreshore.storage.external.schema_registry",
    "aws": "foreshore.storage.external.aws_keys",
    "aws glue schema registry": "foreshore.storage.external.glue_registry",
    "iceberg catalog": "foreshore.storage.external.iceberg",
}


def kind_of(spec: SourceSpec) -> Kind:
    """Return what knows the external system of a source."""
    kind: Kind = _imported(_KINDS[type(spec)]).KIND
    return kind


async def validate(access: Access) -> tuple[tuple[str, str | None], ...]:
    """Reach an external system; raises OSError or DatabaseError if that fails.

    Returns what it lacks for sources, as messages with hints.
    """
    if access.tunnel is not None and access.kind == TUNNEL:
        await tunnels.validate(access.tunnel)
        return ()
    if access.kind == "files" or access.kind not in _VALIDATIONS:
        raise FeatureNotSupported(f"connections to {access.kind.upper()} cannot be validated")
    module = await blocking.run(None, _imported, _VALIDATIONS[access.kind])
    lacks = await module.validate(access) or ()
    return tuple((each.message, each.hint) for each in lacks)


def _imported(module: str) -> Any:
    """Return a module; raises FeatureNotSupported if the packages that it needs are missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("foreshore"):
            raise
        raise FeatureNotSupported(
            f'the Python package "{error.name}" is not installed',
            hint="PostgreSQL needs pip install 'foreshore[postgres]'; Kafka and schema registries"
            " need 'foreshore[kafka]'.",
        ) from None
