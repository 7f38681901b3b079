"""Tables of Iceberg catalogs as a kind of external system."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.iceberg import catalog_of, errors
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.files.kind import output_of
from foreshore.storage.ingest.files.tables import TableConnector
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.lake.iceberg_steps import IcebergTable, Opened

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class CatalogKind:
    """Tables of Iceberg catalogs."""

    def connector(
        self, spec: IcebergSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        own = outputs[OWN_ROWS]
        table = IcebergTable(_opened(spec, accesses), own.details, spec.filter)
        return TableConnector(table, own, spec)

    async def discover(self, spec: IcebergSource, accesses: Accesses) -> Discovered:
        """Return the columns of the table."""
        open = _opened(spec, accesses)

        def find() -> Output:
            _check_files(open())
            return output_of(IcebergTable(open, row_filter=spec.filter), spec.columns)

        return Discovered(spec, {OWN_ROWS: await asyncio.to_thread(find)})


def _check_files(opened: Opened) -> None:
    """Raise DatabaseError if the files of a table cannot be read."""
    with opened.errors():
        opened.table.io.new_input(opened.table.location())
        snapshot = opened.table.current_snapshot()
        for manifest in () if snapshot is None else snapshot.manifests(opened.table.io):
            opened.table.io.new_input(manifest.manifest_path)


def _opened(spec: IcebergSource, accesses: Accesses) -> Callable[[], Opened]:
    """Return what opens the newest version of the table, by one session of the catalog."""
    sessions: list[Catalog] = []

    def opened() -> Opened:
        if not sessions:
            sessions.append(catalog_of(spec.of, accesses))
        try:
            with errors():
                table = sessions[0].load_table(spec.of.identifier)
        except BaseException:
            sessions.clear()  # keys and tokens may have been changed or have ended
            raise
        return Opened(table, lambda snapshot: None, errors)

    return opened


KIND = CatalogKind()
