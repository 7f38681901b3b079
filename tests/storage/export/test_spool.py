"""The rows of an interval are spooled by threads, which may outlive the sink that asked them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.storage.export.files import spool
from foreshore.types import INT4, ColumnType, RelationDesc
from foreshore.update import DIFF, TIME

EXPORT: Any = SimpleNamespace(desc=RelationDesc(("a",), (ColumnType(INT4),)))
PART = pa.table({"a": pa.array([1, 2], pa.int32()), TIME: pa.array([1, 1]), DIFF: pa.array([1, 1])})


async def parts(count: int) -> AsyncIterator[pa.Table]:
    for _ in range(count):
        yield PART


def test_all_rows_are_in_the_file(tmp_path: Path) -> None:
    assert asyncio.run(spool.spooled(EXPORT, parts(3), tmp_path / "rows")) == 6
    assert pq.read_table(tmp_path / "rows").column("a").to_pylist() == [1, 2] * 3


def test_file_stays_open_for_a_thread_that_writes_after_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, write, were_open = threading.Event(), spool._write, []

    async def main() -> None:
        begun, ended, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        def slowly(writer: pq.ParquetWriter, *args: Any) -> None:
            loop.call_soon_threadsafe(begun.set)
            may_write.wait(60)
            were_open.append(writer.is_open)
            write(writer, *args)
            loop.call_soon_threadsafe(ended.set)

        monkeypatch.setattr(spool, "_write", slowly)
        task = asyncio.create_task(spool.spooled(EXPORT, parts(1), tmp_path / "rows"))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        may_write.set()
        async with asyncio.timeout(60):
            await ended.wait()

    asyncio.run(main())
    assert were_open == [True]
