"""Files as a kind of external system: the columns that they have."""

import asyncio
from collections.abc import Mapping

from foreshore.errors import UndefinedFile
from foreshore.sources.files import PLACES, TABLES, FilesSource
from foreshore.sources.outputs import OWN_ROWS, Column, Output
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.aws import bucket_of
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.files.columns import columns_of, columns_of_schema
from foreshore.storage.ingest.files.connector import FilesConnector
from foreshore.storage.ingest.files.tables import TableConnector
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.lake.delta_steps import DeltaTable
from foreshore.storage.lake.followed import Followed
from foreshore.storage.lake.iceberg_steps import IcebergTable, local_table
from foreshore.storage.lake.places import CopyPlaces, Location


def location_of(spec: FilesSource, accesses: Accesses) -> Location:
    """Return the place of a source; raises InsufficientPrivilege unless it is allowed."""
    if spec.connection is not None:
        return bucket_of(spec.url, accesses[spec.connection])
    places = CopyPlaces.from_options(accesses[PLACES].options)
    return places.find(spec.url, is_pattern=spec.format not in TABLES)


def _table(spec: FilesSource, accesses: Accesses, details: str = "") -> Followed:
    """Return the table that a source follows, by what `columns` of it has said."""

    def location() -> Location:
        return location_of(spec, accesses)

    if spec.format == "delta":
        return DeltaTable(location)
    return IcebergTable(local_table(location), details, spec.filter)


def output_of(table: Followed, declared: tuple[Column, ...]) -> Output:
    """Return the columns of a table, or those that were declared. Blocks."""
    schema, details = table.columns()
    return Output(declared or columns_of_schema(schema), details=details)


class FilesKind:
    """Files."""

    def connector(
        self, spec: FilesSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        own = outputs[OWN_ROWS]
        if spec.format in TABLES:
            table = _table(spec, accesses, own.details)
            return TableConnector(table, own, spec)
        return FilesConnector(spec, own.desc, lambda: location_of(spec, accesses))

    async def discover(self, spec: FilesSource, accesses: Accesses) -> Discovered:
        """Return the columns of the first file, or of the table."""

        def find() -> Output:
            if spec.format in TABLES:
                return output_of(_table(spec, accesses), spec.columns)
            columns = columns_of(spec, location_of(spec, accesses))
            if not columns:
                raise UndefinedFile(
                    f'there are no files in "{spec.url}" to take the columns from',
                    hint="Declare them: CREATE SOURCE s (a int8, ...).",
                )
            return Output(columns)

        return Discovered(spec, {OWN_ROWS: await asyncio.to_thread(find)})


KIND = FilesKind()
