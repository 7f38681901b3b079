"""PostgreSQL servers as a kind of external system."""

from collections.abc import Mapping

from foreshore.errors import FeatureNotSupported
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.ingest.connector import Connector, Position
from foreshore.storage.ingest.messages import Accesses, Discovered, OutputRelation
from foreshore.storage.ingest.postgres.access import connected
from foreshore.storage.ingest.postgres.discover import outputs_of


class PostgresKind:
    """PostgreSQL servers."""

    def connector(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        raise FeatureNotSupported("sources of POSTGRES CONNECTION cannot be read yet")

    async def discover(self, spec: PostgresSource, accesses: Accesses) -> Discovered:
        """Return the tables of the publication."""
        async with connected(accesses[spec.connection]) as connection:
            return Discovered(spec, await outputs_of(connection, spec))

    async def dispose(self, spec: PostgresSource, position: Position, accesses: Accesses) -> None:
        """Do nothing: nothing is left there."""


KIND = PostgresKind()
