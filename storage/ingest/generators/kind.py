"""Load generators as a kind of external system: there is none."""

from collections.abc import Mapping

from foreshore.sources.generators import OUTPUTS, LoadGenerator
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.generators.clock import ClockConnector
from foreshore.storage.ingest.generators.connector import GeneratorConnector
from foreshore.storage.ingest.messages import Discovered, OutputRelation


class GeneratorKind:
    """Load generators."""

    def connector(
        self, spec: LoadGenerator, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        if spec.generator == "clock":
            return ClockConnector(spec)
        return GeneratorConnector(spec, outputs)

    async def discover(self, spec: LoadGenerator, accesses: Accesses) -> Discovered:
        """Return its tables."""
        return Discovered(spec, dict(OUTPUTS[spec.generator]))


KIND = GeneratorKind()
