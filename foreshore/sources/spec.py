"""What a source reads, and which relation gets which of its outputs."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from foreshore.sources.formats import registries_of
from foreshore.sources.generators import OUTPUTS, LoadGenerator
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import Output
from foreshore.sources.postgres import PostgresSource

SourceSpec: TypeAlias = LoadGenerator | PostgresSource | KafkaSource


def connections_of(spec: SourceSpec) -> tuple[str, ...]:
    """Return the ids of the connections that a source uses."""
    match spec:
        case PostgresSource(connection=connection):
            return (connection,)
        case KafkaSource():
            return (spec.connection, *registries_of(spec.value, spec.key))
        case LoadGenerator():
            return ()


def known_outputs(spec: SourceSpec) -> Mapping[str, Output] | None:
    """Return the outputs of a source by their references; None: its external system knows them."""
    return OUTPUTS[spec.generator] if isinstance(spec, LoadGenerator) else None


def kind_of(spec: SourceSpec) -> str:
    """Return the kind of a source as mz_sources names it."""
    match spec:
        case PostgresSource():
            return "postgres"
        case KafkaSource():
            return "kafka"
        case LoadGenerator():
            return "load-generator"


class Feed(msgspec.Struct, frozen=True):
    """The source that writes the rows of a relation, and the output that they are."""

    source: str  # the id of the source, which may be the relation itself
    reference: str
    spec: SourceSpec | None = None  # of the source itself
    details: str = ""  # of the output, for the connector
