"""The connector of tables of a lake: a version after the other, by the files that come and go."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pyarrow as pa

from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.connector import REACHED, Batch, Durable, Position
from foreshore.storage.ingest.files.columns import as_relation, with_diffs
from foreshore.storage.lake.followed import Followed
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import DataFile, Step
from foreshore.types import RelationDesc

VERSION = "version"  # the only part: the next version


class TableConnector:
    """Reads the newest version of a table, and then each one that follows."""

    def __init__(
        self,
        spec: FilesSource,
        table: Followed,
        desc: RelationDesc,
        location: Callable[[], Location],
    ) -> None:
        self._spec = spec
        self._table = table
        self._desc = desc
        self._location = location

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the rows that each version adds and removes; a version is one batch."""
        following = durable.position.get(VERSION)
        while True:
            location = await asyncio.to_thread(self._location)
            steps = self._table.steps(location, following)
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                yield await asyncio.to_thread(self._batch, location, step)
                following = step.following
            yield REACHED
            if not self._spec.follow:
                return
            await asyncio.sleep(self._spec.poll_ms / 1000)

    async def furthest(self) -> Position:
        """Return the position after the newest version."""
        return {VERSION: await asyncio.to_thread(lambda: self._table.newest(self._location()))}

    def committed(self, position: Position) -> None:
        """Do nothing: the table is its owner's."""

    def _batch(self, location: Location, step: Step) -> Batch:
        """Return the rows of a step; raises if a link leads out of the place."""
        if location.root is not None:
            location.check_links()
        changes = [self._rows(each, -1) for each in step.gone]
        changes += [self._rows(each, 1) for each in step.come]
        rows = {OWN_ROWS: pa.concat_tables(changes)} if changes else {}
        return Batch(rows, {VERSION: step.following})

    def _rows(self, file: DataFile, diff: int) -> pa.Table:
        batches = file.rows(self._desc.names).to_batches()
        tables = [as_relation(each, self._desc, file.path, 1, []) for each in batches]
        empty = self._desc.stored_schema().empty_table()
        return with_diffs([empty, *tables], diff)
