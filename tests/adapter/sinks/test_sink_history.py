"""A sink keeps the history that it needs: while it is idle, away, or one of several."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from foreshore.storage.export.controller import ExportController
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.storage.external import retries
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment


def controller_of(env: TestEnvironment) -> ExportController:
    return env.environment.coordinator.exports.controller


def errors(env: TestEnvironment) -> list[str]:
    """Return why sinks have stalled since the start of the server."""
    return [each.error or "" for each in controller_of(env).states.history if each.error]


def sink(tmp_path: Path, name: str, relation: str = "t") -> str:
    return (
        f"CREATE SINK {name} FROM {relation} INTO DELTA (URL '{tmp_path}/{name}') ENVELOPE APPEND"
        " WITH (COMMIT INTERVAL '1 ms')"
    )


def values(tmp_path: Path, name: str) -> list[int]:
    """Return what a target has."""
    rows = deltalake.DeltaTable(str(tmp_path / name)).to_pyarrow_table()
    return sorted(rows.column("k").to_pylist())


async def forget_past(env: TestEnvironment) -> None:
    """Let all history go that nothing holds."""
    coordinator = env.environment.coordinator
    coordinator.holds.lag_ms = 0
    for number in range(3):
        await env.ran("a", f"INSERT INTO clock VALUES ({number})")
        await coordinator.allow_compaction()


@pytest.mark.parametrize("relation", ["t", "v"])
async def test_idle_sink_goes_on_after_the_history_before_it_was_forgotten(
    own_env: TestEnvironment, tmp_path: Path, relation: str
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran("a", "CREATE TABLE clock (n int)", "CREATE TABLE t (k int)")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    await env.ran("a", "INSERT INTO t VALUES (1)", sink(tmp_path, "s", relation))
    await env.ran("a", "WAIT FOR SINKS s")
    for number in range(2, 5):
        await forget_past(env)
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR SINKS s")
        assert values(tmp_path, "s") == list(range(1, number + 1))
    assert errors(env) == []
    env.environment.coordinator.check_consistency()


async def test_sink_that_is_away_holds_its_history_beside_another(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, is_away = own_env, False
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    write = DeltaExporter.write

    async def failing(
        self: DeltaExporter, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        if is_away and self._export.spec.target.url.endswith("/away"):  # type: ignore[union-attr]
            raise OSError("the target is away")
        await write(self, parts, lower, upper)

    monkeypatch.setattr(DeltaExporter, "write", failing)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.1)
    await env.ran("a", "CREATE TABLE clock (n int)", "CREATE TABLE t (k int)")
    await env.ran("a", "INSERT INTO t VALUES (1)", sink(tmp_path, "s"), sink(tmp_path, "away"))
    await env.ran("a", "WAIT FOR SINKS s, away")
    is_away = True
    for number in range(2, 5):
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR SINKS s")
        await forget_past(env)
    await env.reopen()
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.environment.equip_sources()
    for number in range(5, 8):
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR SINKS s")
        await forget_past(env)
    is_away = False
    await env.ran("a", "WAIT FOR SINKS s, away")
    assert values(tmp_path, "s") == values(tmp_path, "away") == list(range(1, 8))
    assert set(errors(env)) <= {"the target is away", f'the place "{tmp_path}/s" is not allowed',
                                f'the place "{tmp_path}/away" is not allowed'}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN d int DEFAULT 5",
        "ALTER TABLE t ALTER COLUMN o TYPE bigint",
        "ALTER TABLE t ADD CONSTRAINT positive CHECK (k > 0)",
        "ALTER TABLE t SET (RETAIN HISTORY = FOR '0 s')",
        "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t",
        "TRUNCATE clock",
    ],
)
@pytest.mark.parametrize("relation", ["t", "v"])
async def test_sink_goes_on_after_its_relation_was_altered(
    own_env: TestEnvironment, tmp_path: Path, relation: str, change: str
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran("a", "CREATE TABLE clock (n int)", "CREATE TABLE t (k int, o int)")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    await env.ran("a", "INSERT INTO t VALUES (1)", sink(tmp_path, "s", relation))
    await env.ran("a", "WAIT FOR SINKS s")
    await env.query("a", change)  # or it is refused
    await forget_past(env)
    await env.ran("a", "INSERT INTO t (k) VALUES (2)", "WAIT FOR SINKS s")
    assert values(tmp_path, "s") == [1, 2]
    assert errors(env) == []
    await env.environment.coordinator.check_settled()


async def test_sink_whose_history_is_lost_says_so(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran("a", "CREATE TABLE clock (n int)", "CREATE TABLE t (k int)")
    await env.ran("a", "INSERT INTO t VALUES (1)", sink(tmp_path, "s"), "WAIT FOR SINKS s")
    controller, coordinator = controller_of(env), env.environment.coordinator
    (id,) = controller.statuses()
    stopped = await controller.stop(id)
    assert stopped is not None
    await env.ran("a", "INSERT INTO t VALUES (2)")
    coordinator.holds.forget_before(coordinator.exports.relation(id), coordinator.oracle.read_ts())
    await forget_past(env)
    controller.start(stopped)
    async with asyncio.timeout(60):
        while not errors(env):  # noqa: ASYNC110 - what changes it tells nobody
            await asyncio.sleep(0.01)
    assert errors(env) == ["the history that the sink needs is lost"]
    assert values(tmp_path, "s") == [1]
