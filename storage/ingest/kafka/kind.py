"""Kafka as a kind of external system."""

import time
from collections.abc import Mapping

from msgspec.structs import replace

from foreshore.sources.kafka import KafkaSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.kafka.connector import KafkaConnector
from foreshore.storage.ingest.kafka.discover import outputs_of
from foreshore.storage.ingest.messages import Discovered, OutputRelation


class KafkaKind:
    """Topics of Kafka."""

    def connector(
        self, spec: KafkaSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return KafkaConnector(spec, outputs, accesses)

    async def discover(self, spec: KafkaSource, accesses: Accesses) -> Discovered:
        """Return the columns of its rows, and the source with a time at which it begins."""
        begins = spec.start_timestamp
        if begins is not None and begins < 0:  # so many milliseconds ago
            spec = replace(spec, start_timestamp=max(0, time.time_ns() // 1_000_000 + begins))
        return Discovered(spec, await outputs_of(spec, accesses))


KIND = KafkaKind()
