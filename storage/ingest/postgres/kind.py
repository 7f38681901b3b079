"""PostgreSQL servers as a kind of external system."""

import secrets
from collections.abc import AsyncIterator, Mapping

import msgspec

from foreshore.errors import FeatureNotSupported
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.ingest.connector import REACHED, Batch, Connector, Durable, Position
from foreshore.storage.ingest.messages import Accesses, Discovered, OutputRelation
from foreshore.storage.ingest.postgres.access import connected
from foreshore.storage.ingest.postgres.discover import outputs_of


class _Refusing:
    """Stalls its own source; an error of `connector` would end those beside it as well."""

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Raise FeatureNotSupported."""
        raise FeatureNotSupported("sources of POSTGRES CONNECTION cannot be read yet")
        yield REACHED  # makes this an iterator

    def committed(self, position: Position) -> None:
        """Do nothing, as nothing is read."""


class PostgresKind:
    """PostgreSQL servers."""

    def connector(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return _Refusing()

    async def discover(self, spec: PostgresSource, accesses: Accesses) -> Discovered:
        """Return the tables of the publication, and name the replication slot."""
        async with connected(accesses[spec.connection]) as connection:
            outputs = await outputs_of(connection, spec)
        slot = spec.slot or f"foreshore_{secrets.token_hex(8)}"
        return Discovered(msgspec.structs.replace(spec, slot=slot), outputs)

    async def dispose(self, spec: PostgresSource, position: Position, accesses: Accesses) -> None:
        """Do nothing: nothing is left there."""


KIND = PostgresKind()
