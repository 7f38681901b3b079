"""PostgreSQL servers as a kind of external system."""

import asyncio
import secrets
from collections.abc import Mapping

import msgspec

from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Connector, Position
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.postgres.begin import dispose
from foreshore.storage.ingest.postgres.connector import PostgresConnector
from foreshore.storage.ingest.postgres.discover import discovered


class PostgresKind:
    """PostgreSQL servers."""

    def connector(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return PostgresConnector(spec, outputs, accesses)

    async def discover(self, spec: PostgresSource, accesses: Accesses) -> Discovered:
        """Return the tables of the publication, and name the replication slot."""
        outputs = await asyncio.to_thread(discovered, spec, accesses[spec.connection])
        slot = spec.slot or f"foreshore_{secrets.token_hex(8)}"
        return Discovered(msgspec.structs.replace(spec, slot=slot), outputs)

    async def dispose(self, spec: PostgresSource, position: Position, accesses: Accesses) -> None:
        """Drop the replication slot."""
        await asyncio.to_thread(dispose, spec, accesses[spec.connection])


KIND = PostgresKind()
