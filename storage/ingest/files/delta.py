"""The connector of Delta tables: a version after the other, by the files that come and go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pyarrow as pa

from foreshore.errors import FeatureNotSupported
from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.connector import REACHED, Batch, Durable, Position
from foreshore.storage.ingest.files.columns import as_relation, with_diffs
from foreshore.storage.lake import delta
from foreshore.storage.lake.places import Location
from foreshore.types import RelationDesc

VERSION = "version"  # the only part: the next version


class DeltaConnector:
    """Reads the newest version of a table, and then each one that follows."""

    def __init__(
        self, spec: FilesSource, desc: RelationDesc, location: Callable[[], Location]
    ) -> None:
        self._spec = spec
        self._desc = desc
        self._location = location

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the rows that each version adds and removes; a version is one batch."""
        following = durable.position.get(VERSION)
        while True:
            location = await asyncio.to_thread(self._location)
            if location.root is None:
                raise FeatureNotSupported("Delta tables in buckets")
            newest = await asyncio.to_thread(delta.newest_version, location.path)
            first = newest if following is None else following
            for version in range(first, newest + 1):
                is_first = following is None
                yield await asyncio.to_thread(self._version, location, version, is_first)
                following = version + 1
            yield REACHED
            if not self._spec.follow:
                return
            await asyncio.sleep(self._spec.poll_ms / 1000)

    async def furthest(self) -> Position:
        """Return the version after the newest one."""
        path = (await asyncio.to_thread(self._location)).path
        return {VERSION: await asyncio.to_thread(delta.newest_version, path) + 1}

    def committed(self, position: Position) -> None:
        """Do nothing: the table is its owner's."""

    def _version(self, location: Location, version: int, is_first: bool) -> Batch:
        """Return the difference of a version to the one before."""
        location.check_links()
        now = delta.files_of(location.path, version)
        before: Mapping[str, Any] = {}
        if not is_first and version > 0:
            before = delta.files_of(location.path, version - 1)
        changes = []
        for key in before.keys() - now.keys():
            changes.append(self._rows(before[key], -1))
        for key in now.keys() - before.keys():
            changes.append(self._rows(now[key], 1))
        rows = {OWN_ROWS: pa.concat_tables(changes)} if changes else {}
        return Batch(rows, {VERSION: version + 1})

    def _rows(self, file: delta.DataFile, diff: int) -> pa.Table:
        batches = file.rows(self._desc.names).to_batches()
        tables = [as_relation(each, self._desc, file.path, 1, []) for each in batches]
        empty = self._desc.stored_schema().empty_table()
        return with_diffs([empty, *tables], diff)
