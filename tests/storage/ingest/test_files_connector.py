"""A store of files that is away for a while: no file counts as read meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.blob import MemoryBlob
from foreshore.storage.fault import Determinate
from foreshore.storage.ingest.connector import Batch, Interval, Position
from foreshore.storage.ingest.files.connector import FilesConnector
from foreshore.storage.lake.places import Location
from foreshore.types import TEXT, ColumnType, RelationDesc


class Store(MemoryBlob):
    """A store that may be away after it was listed."""

    away = True

    def fetch(self, key: str, file: Path) -> bool:
        if self.away:
            raise Determinate("cannot read blob")
        return super().fetch(key, file)


class NothingRead:
    """A source that has read nothing yet."""

    @property
    def position(self) -> Position:
        return {}

    def contents(self, reference: str, columns: int | None = None) -> AsyncIterator[pa.Table]:
        raise AssertionError("files need no contents")

    async def changes(self, frontier: int | None, *, contents: bool = False) -> Interval:
        raise AssertionError("files read no relation")


def test_a_file_that_could_not_be_fetched_is_read_later() -> None:
    store = Store()
    store.put("in/a.csv", b"x\ny\n")
    spec = FilesSource("s3://bucket/in/*.csv", "csv", follow=False)
    location = Location(spec.url, store, None, "in/*.csv")
    connector = FilesConnector(spec, RelationDesc(("t",), (ColumnType(TEXT),)), lambda: location)

    async def read() -> list[Batch]:
        return [each async for each in connector.run(NothingRead()) if each.moved]

    with pytest.raises(Determinate):
        asyncio.run(read())
    store.away = False
    (batch,) = asyncio.run(read())
    assert batch.rows[OWN_ROWS].column("t").to_pylist() == ["x", "y"]
