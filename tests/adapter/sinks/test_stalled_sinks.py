"""A sink that fails for long is tried after growing pauses, and its history tells it once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.errors import DatabaseError, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.export.controller import ExportController
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.storage.external import retries
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment

TRIES = 4  # that fail for each reason


class Failing:
    """Fails in one place after another, some times in each; then all is well."""

    def __init__(self) -> None:
        self.left = {"resume": TRIES, "begin": TRIES, "read": TRIES, "write": TRIES}

    def fail(self, place: str, error: Callable[[str], Exception]) -> None:
        """Raise an error, if it is time for this place."""
        if self.left.get(place):
            self.left[place] -= 1
            raise error(f"no {place}")


async def test_history_has_a_row_for_each_reason(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, failing = own_env, Failing()
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.02)
    resume, write = DeltaExporter.resume, DeltaExporter.write
    exports = env.environment.coordinator.exports
    begin, known_through = exports.begin, exports.known_through

    async def failing_resume(self: DeltaExporter) -> Timestamp | None:
        failing.fail("resume", OSError)
        return await resume(self)

    async def failing_write(
        self: DeltaExporter, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        failing.fail("write", OSError)
        await write(self, parts, lower, upper)

    def failing_begin(sink: GlobalId, frontier: Timestamp | None) -> Timestamp:
        failing.fail("begin", DatabaseError)
        return begin(sink, frontier)

    async def failing_read(sink: GlobalId, frontier: Timestamp) -> Timestamp:
        failing.fail("read", DatabaseError)
        return await known_through(sink, frontier)

    monkeypatch.setattr(DeltaExporter, "resume", failing_resume)
    monkeypatch.setattr(DeltaExporter, "write", failing_write)
    monkeypatch.setattr(exports, "begin", failing_begin)
    monkeypatch.setattr(exports, "known_through", failing_read)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    await env.ran("a", "WAIT FOR SINKS s")
    assert not any(failing.left.values())
    controller: ExportController = exports.controller
    stalled = [each.error for each in controller.states.history if each.state == "stalled"]
    assert stalled == ["no resume", "no begin", "no read", "no write"]
    assert controller.states.history[-1].state == "running"
    assert len(controller.states.history) <= 2 * len(stalled) + 2


async def test_idle_sink_runs_again_once_its_target_is_back(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, failing = own_env, Failing()
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    await env.ran("a", "WAIT FOR SINKS s")
    resume = DeltaExporter.resume

    async def failing_resume(self: DeltaExporter) -> Timestamp | None:
        failing.fail("resume", OSError)
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", failing_resume)
    controller: ExportController = env.environment.coordinator.exports.controller
    (id,) = controller.statuses()
    stopped = await controller.stop(id)
    assert stopped is not None
    controller.states.history.clear()
    controller.start(stopped)
    async with asyncio.timeout(60):
        while not has_recovered(controller):  # noqa: ASYNC110 - what changes it tells nobody
            await asyncio.sleep(0.01)
    assert not failing.left["resume"]
    assert [each.state for each in controller.states.history] == ["stalled", "running"]


def has_recovered(controller: ExportController) -> bool:
    """Whether the sink is running after it was stalled."""
    states = [each.state for each in controller.states.history]
    return "stalled" in states and states[-1] == "running"


async def test_status_of_a_stalled_sink_says_when_it_is_tried_again(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.2)
    resume, is_away = DeltaExporter.resume, True

    async def failing_resume(self: DeltaExporter) -> Timestamp | None:
        if is_away:
            raise OSError("it is away")
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", failing_resume)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    shown = (
        "SELECT status, next_try_at IS NOT NULL, next_try_at > last_status_change_at"
        " FROM mz_internal.mz_sink_statuses"
    )
    async with asyncio.timeout(60):
        while await env.query("a", shown) != "stalled|t|t\nSELECT 1":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    is_away = False
    await env.ran("a", "WAIT FOR SINKS s")
    assert await env.query("a", shown) == "running|f|NULL\nSELECT 1"


async def test_wait_ends_at_once_if_somebody_has_to_act(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 3600.0)  # so WAIT has it tried
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 3600.0)
    resume, is_lost = DeltaExporter.resume, True

    async def lost(self: DeltaExporter) -> Timestamp | None:
        if is_lost:
            raise ObjectNotInPrerequisiteState("the table is lost", hint="Find it.")
        return await resume(self)

    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK r FROM t INTO DELTA (URL '{tmp_path}/r') ENVELOPE APPEND")
    await env.ran("a", "WAIT FOR SINKS r")
    monkeypatch.setattr(DeltaExporter, "resume", lost)
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/s') ENVELOPE APPEND")
    said = await env.query("a", "WAIT FOR ALL SINKS")
    assert 'ERROR 55000: sink "s" is stalled: the table is lost (Find it.)' in said, said
    assert "HINT: The sink goes on once the cause is removed" in said
    assert "NOTICE" not in said
    assert "ERROR 55000" in await env.query("a", "WAIT FOR SINKS r, s")  # it is tried anew
    is_lost = False
    async with asyncio.timeout(60):  # another try may just have failed
        while "ERROR 55000" in await env.query("a", "WAIT FOR ALL SINKS"):
            pass


async def test_wait_for_a_sink_that_is_dropped_meanwhile(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")

    async def away(self: DeltaExporter) -> Timestamp | None:
        raise OSError("it is away")

    monkeypatch.setattr(DeltaExporter, "resume", away)
    await env.ran("a", "CREATE TABLE t (k int)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    statements = {"b": "WAIT FOR SINKS s", "c": "WAIT FOR ALL SINKS"}
    waiting = [asyncio.create_task(env.query(*each)) for each in statements.items()]
    for name in statements:
        session = await env.session(name)
        async with asyncio.timeout(60):
            while not session.news.notice.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    await env.ran("a", "DROP SINK s")
    named, of_all = await asyncio.gather(*waiting)
    assert 'ERROR 42704: sink "s" was dropped' in named
    assert of_all.startswith("WAIT\n")


async def test_wait_fails_if_the_view_fails_though_its_rows_have_not_changed(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT 6 / k AS k FROM t")
    await env.ran("a", f"CREATE SINK s FROM v INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    await env.ran("a", "WAIT FOR SINKS s", "INSERT INTO t VALUES (0)")
    said = await env.query("a", "WAIT FOR ALL SINKS")
    assert 'ERROR 55000: sink "s" cannot write its relation' in said
    await env.ran("a", "DELETE FROM t WHERE k = 0", "WAIT FOR ALL SINKS")
