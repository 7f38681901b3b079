"""What is sent to a sink is bounded: an interval ends early, and is sent in parts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from foreshore.adapter.subscribe import reading
from foreshore.storage.export.controller import TABLES_AHEAD, ExportController, SinkStatus
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment


@pytest.fixture
def into(own_env: TestEnvironment, tmp_path: Path) -> str:
    """Return the target of a sink that appends to a Delta table."""
    own_env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    return f"INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND WITH (COMMIT INTERVAL '1 ms')"


def status_of(env: TestEnvironment) -> SinkStatus:
    controller: ExportController = env.environment.coordinator.exports.controller
    (status,) = controller.statuses().values()
    return status


async def test_a_long_interval_is_split_at_times(
    own_env: TestEnvironment, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 100)
    env, resumes = own_env, asyncio.Event()
    resume = DeltaExporter.resume

    async def held(self: DeltaExporter) -> Timestamp | None:
        await resumes.wait()
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", held)
    await env.ran("a", "CREATE TABLE t (k int)", f"CREATE SINK s FROM t {into}")
    for number in range(10):
        await env.ran(
            "a", f"INSERT INTO t SELECT {number} * 1000 + i FROM generate_series(1, 45) i"
        )
    await env.ran("a", "INSERT INTO t SELECT 10000 + i FROM generate_series(1, 250) i")
    resumes.set()
    while True:
        table = deltalake.DeltaTable(str(tmp_path / "t"))
        if table.to_pyarrow_table().num_rows == 700:
            break
        await asyncio.sleep(0.05)
    assert sorted(get_rows(table)) == [90, 90, 90, 90, 90, 250]


def get_rows(table: deltalake.DeltaTable) -> list[int]:
    """Return how many rows each version has added."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return [count for count in actions.column("num_records").to_pylist() if count]


async def test_a_slow_exporter_has_few_parts_ahead(
    own_env: TestEnvironment, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 10)
    env, goes_on, begun = own_env, asyncio.Event(), asyncio.Event()
    write = DeltaExporter.write

    async def slow(
        self: DeltaExporter, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        async def each() -> AsyncIterator[pa.Table]:
            async for part in parts:
                begun.set()
                await goes_on.wait()
                yield part

        await write(self, each(), lower, upper)

    monkeypatch.setattr(DeltaExporter, "write", slow)
    await env.ran("a", "CREATE TABLE t (k int)")
    await env.ran("a", "INSERT INTO t SELECT * FROM generate_series(1, 1000)")
    await env.ran("a", f"CREATE SINK s FROM t {into}")
    await begun.wait()
    for _ in range(20):
        await asyncio.sleep(0)
        await env.ran("a", "SELECT 1")
    assert status_of(env).updates <= 10 * TABLES_AHEAD
    goes_on.set()
    while True:
        if status_of(env).commits:
            break
        await asyncio.sleep(0.02)
    assert status_of(env).updates == 1000


async def test_removed_rows_are_not_in_the_contents(
    own_env: TestEnvironment, into: str, tmp_path: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int)")
    await env.ran("a", "INSERT INTO t SELECT * FROM generate_series(1, 100)")
    await env.ran("a", "DELETE FROM t WHERE k > 3", f"CREATE SINK s FROM t {into}")
    while True:
        if status_of(env).commits:
            break
        await asyncio.sleep(0.02)
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    assert sorted(found.column("k").to_pylist()) == [1, 2, 3]
    assert found.column("mz_diff").to_pylist() == [1, 1, 1]
