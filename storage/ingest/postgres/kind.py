"""PostgreSQL servers as a kind of external system."""

import asyncio
import secrets
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.postgres.begin import dispose
from foreshore.storage.ingest.postgres.connector import PostgresConnector
from foreshore.storage.ingest.postgres.discover import discovered
from foreshore.storage.ingest.postgres.layout import Misfit, layouts
from foreshore.storage.ingest.postgres.snapshot import present_rows


class PostgresKind:
    """PostgreSQL servers."""

    def connector(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return PostgresConnector(spec, outputs, accesses)

    async def discover(self, spec: PostgresSource, accesses: Accesses) -> Discovered:
        """Return the tables of the publication, and name the replication slot."""
        spec, outputs = await asyncio.to_thread(discovered, spec, accesses[spec.connection])
        slot = spec.slot or f"foreshore_{secrets.token_hex(8)}"
        return Discovered(msgspec.structs.replace(spec, slot=slot), outputs)

    async def rows(
        self, spec: PostgresSource, output: OutputRelation, accesses: Accesses, most: int
    ) -> pa.Table | None:
        """Return all rows of a table as they are now; None if there are more than `most`."""
        (table,) = layouts({"": output}).values()
        access = accesses[spec.connection]
        try:
            return await asyncio.to_thread(present_rows, access, spec.publication, table, most)
        except Misfit as error:
            raise ObjectNotInPrerequisiteState(str(error)) from error

    async def dispose(self, spec: PostgresSource, accesses: Accesses) -> None:
        """Drop the replication slot."""
        await asyncio.to_thread(dispose, spec, accesses[spec.connection])


KIND = PostgresKind()
