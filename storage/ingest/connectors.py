"""Which connector reads a source."""

from foreshore.source_spec import SourceSpec
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.generators.connector import GeneratorConnector


def connector_of(spec: SourceSpec) -> Connector:
    """Return a new connector for a source."""
    return GeneratorConnector(spec)
