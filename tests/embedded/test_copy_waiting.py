"""A copy whose contents do not come tells so, once, and not when they have come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from foreshore.embedded import copy_async
from foreshore.embedded.copy_async import AsyncCopy, Connected, CopyEvent, Waiting
from foreshore.embedded.copy_store import CopyStore

SCHEMA = pa.schema(
    {
        "mz_timestamp": pa.int64(),
        "mz_progressed": pa.bool_(),
        "mz_diff": pa.int64(),
        "a": pa.int64(),
    }
)
CONTENTS = [(5, True, None, None), (5, False, 1, 7), (6, True, None, None)]


class SlowDatabase:
    """A server whose contents come when they are let."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def stream(self, _text: str) -> AsyncIterator[pa.RecordBatch]:
        await self.ready.wait()
        columns = zip(*CONTENTS, strict=True)
        yield pa.record_batch(
            [pa.array(c, type) for c, type in zip(columns, SCHEMA.types, strict=True)],
            schema=SCHEMA,
        )
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("is_late", [True, False])
def test_a_copy_that_waits_for_contents_tells_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_late: bool
) -> None:
    monkeypatch.setattr(copy_async, "WAITING_SECONDS", 0.02 if is_late else 60.0)
    events: list[CopyEvent] = []

    async def play() -> None:
        database: Any = SlowDatabase()
        told = asyncio.Event()

        def note(event: CopyEvent) -> None:
            events.append(event)
            told.set()

        copy = AsyncCopy(database, "t", CopyStore(None, "copy", "t"), None, note)
        if is_late:
            await told.wait()
            assert events == [Waiting(0.02)]
            assert "waits for contents" in caplog.text
        database.ready.set()
        assert await copy.wait(5, timeout=30) == 5
        assert (await copy.sql("SELECT a FROM copy")).fetchall() == [(7,)]
        await copy.close()

    asyncio.run(play())
    assert events[-1] == Connected(None)
    assert len(events) == 1 + is_late
