"""Runs of sinks: what one has asked for is not written by the next."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.pq import DiagnosticField

from foreshore.ids import GlobalId
from foreshore.storage.export.messages import Changes, Resumes, StartSink, StopSink
from foreshore.storage.export.postgres.exporter import as_ours
from foreshore.storage.export.worker import Worker

ID = GlobalId("u1")
ROWS = pa.table({"k": [1]})


class Writing:
    """Keeps how many rows each interval has."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []
        self.has_written = asyncio.Event()

    async def resume(self) -> int | None:
        """Return a frontier."""
        return 1

    async def write(self, parts: AsyncIterator[pa.Table], lower: int, upper: int) -> None:
        """Count the rows of an interval."""
        self.written.append((lower, upper, sum([part.num_rows async for part in parts])))
        self.has_written.set()

    async def close(self) -> None:
        """Do nothing."""


def test_parts_for_an_earlier_start_are_left_out() -> None:
    async def main() -> None:
        writing, sent = Writing(), list[Any]()
        asked = asyncio.Event()

        def send(message: Any, tables: object = ()) -> None:
            sent.append(message)
            if isinstance(message, Resumes):
                asked.set()

        worker = Worker(lambda _: SimpleNamespace(exporter=lambda _: writing))
        export: Any = SimpleNamespace(spec=SimpleNamespace(target=None))
        runs = []
        for _ in range(2):
            asked.clear()
            worker.deliver(StopSink(ID), (), send)
            worker.deliver(StartSink(ID, export), (), send)
            await asked.wait()
            runs.append(sent[-1].run)
        first, second = runs
        worker.deliver(Changes(ID, first, 1, 5, complete=False), (ROWS,), send)
        worker.deliver(Changes(ID, second, 1, 9, complete=True), (ROWS,), send)
        await writing.has_written.wait()
        worker.stop()
        assert writing.written == [(1, 9, 1)]

    asyncio.run(main())


def test_an_error_of_the_target_is_told_without_rows() -> None:
    fields = {
        DiagnosticField.SQLSTATE: b"23505",
        DiagnosticField.MESSAGE_PRIMARY: b"duplicate key",
        DiagnosticField.MESSAGE_DETAIL: b"Key (id)=(5) already exists.",
    }
    found = as_ours(psycopg.errors.UniqueViolation(info={int(k): v for k, v in fields.items()}))
    assert (found.sqlstate, found.message) == ("23505", "the target says: duplicate key")
