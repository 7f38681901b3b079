"""A sink whose PostgreSQL server is silent ends when it is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from foreshore.storage.export.postgres import exporter as exporters
from foreshore.storage.external import libpq


class Silent:
    """A connection whose server answers nothing; whatever is left waits for an answer, too."""

    def __init__(self, exits: int) -> None:
        self.exits = exits
        self.began = asyncio.Event()
        self.is_ended = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            try:
                await self.leave(self.exits)
            finally:
                self.is_ended = True

    async def leave(self, exits: int) -> None:
        if exits:
            try:
                await asyncio.Event().wait()
            finally:
                await self.leave(exits - 1)

    async def execute(self, *_: object) -> None:
        self.began.set()
        await asyncio.Event().wait()


async def parts() -> AsyncIterator[pa.Table]:
    yield pa.table({})


@pytest.mark.parametrize("exits", [0, 1, 3])
def test_cancelled_write_ends(monkeypatch: pytest.MonkeyPatch, exits: int) -> None:
    monkeypatch.setattr(libpq, "END_SECONDS", 0.01)

    async def go() -> None:
        connection: Any = Silent(exits)
        exporter = object.__new__(exporters.PostgresExporter)
        exporter._export = SimpleNamespace(name="s")  # type: ignore[assignment]
        exporter._table, exporter._connection, exporter._epoch = "t", connection, 1
        write = asyncio.ensure_future(exporter.write(parts(), 1, 2))
        await connection.began.wait()
        write.cancel()
        await asyncio.wait([write], timeout=20)
        assert write.cancelled()
        assert connection.is_ended

    asyncio.run(go())
