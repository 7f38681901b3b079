"""Errors of views are stored once, before the view goes on, and removed with it."""

import asyncio
from pathlib import Path

import pytest

from foreshore import failpoint
from foreshore.adapter.introspection import view_errors
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.state import VIEW_ERRORS
from foreshore.compute.controller import outputs
from foreshore.errors import DataCorrupted, OutOfDisk
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability, StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, until
from tests.adapter.introspection.failing import (
    DIVISION,
    ERRORS,
    SETUP,
    agrees,
    id_of,
    passed,
    ran,
    rows,
    says,
    seen,
    toggled,
)

pytestmark = pytest.mark.full  # replicas are killed, environments opened anew


@pytest.fixture
def env(tmp_path: Path) -> TestEnvironment:
    return TestEnvironment(tmp_path, lag_ms=3_600_000)  # all that happens here can be read


def test_unchanged_error_is_written_once(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP, "INSERT INTO t VALUES (0)")
        await seen(env)
        before = await rows(env)
        written: list[Write] = []
        write = GroupCommit.write

        async def noted(self: GroupCommit, each: Write) -> Timestamp:
            if VIEW_ERRORS.id in each.rows:
                written.append(each)
            return await write(self, each)

        monkeypatch.setattr(GroupCommit, "write", noted)
        for a in (3, 4, 0):
            await ran(env, f"INSERT INTO t VALUES ({a})")
            assert await says(env, "SELECT * FROM m") == [DIVISION]
        await env.reopen()
        assert await says(env, "SELECT * FROM m") == [DIVISION]
        await ran(env, "INSERT INTO t VALUES (5)")
        assert await says(env, "SELECT * FROM above") == [DIVISION]
        assert not written
        assert await rows(env) == before
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize("comes", [True, False])
def test_crash_between_errors_and_view_is_repaired(env: TestEnvironment, comes: bool) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        times = await toggled(env, 1)
        if not comes:
            await ran(env, "INSERT INTO t VALUES (0)")
            times.append(await seen(env))
        ended = asyncio.Event()

        def end(point: str) -> None:
            if point == "view.errors":
                ended.set()
                raise RuntimeError("the process ends here")

        before = await rows(env)
        failpoint.arm(end)
        await ran(env, "INSERT INTO t VALUES (0)" if comes else "DELETE FROM t WHERE a = 0")
        written = env.environment.coordinator.oracle.read_ts()
        async with asyncio.timeout(20):
            await ended.wait()
        failpoint.arm(None)
        assert len(await rows(env)) == len(before) + 1
        await env.reopen()
        await seen(env)
        assert len(await rows(env)) == len(before) + 1
        times += [written, *(await toggled(env, 1))[comes:]]
        await agrees(env, times)
        await env.close()

    asyncio.run(main())


def test_errors_beyond_view_that_do_not_recur_are_removed(
    env: TestEnvironment,
) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        times = await toggled(env, 1)
        before = await rows(env)
        coordinator = env.environment.coordinator
        m = id_of(env, "m")
        ahead = coordinator.oracle.read_ts() + 1_000  # which it has not come to when it ends
        await coordinator.errors.store(m, {ahead}, {ahead: "22003 never happens"})
        assert len(await rows(env)) == len(before) + 1
        await env.reopen()
        await until(lambda: env.environment.coordinator.upper(m) > ahead)
        async with asyncio.timeout(10):
            while await rows(env) != before:  # noqa: ASYNC110 - it is written in its own time
                await asyncio.sleep(0.05)
        await agrees(env, [*times, ahead, ahead + 1])
        await env.close()

    asyncio.run(main())


def test_drop_view_removes_its_errors(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await toggled(env, 1)
        assert await rows(env)
        await ran(env, "DROP MATERIALIZED VIEW m CASCADE")
        async with asyncio.timeout(10):
            while await rows(env):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        await ran(env, *SETUP[2:])
        await toggled(env, 1)
        with monkeypatch.context() as patched:  # the process ends right behind the drop
            patched.setattr(view_errors.ViewErrors, "forget", lambda _self, _id: None)
            await ran(env, "DROP MATERIALIZED VIEW m CASCADE")
            await env.close()
        await env.open()
        async with asyncio.timeout(10):
            while await rows(env):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        assert not [*env.environment.coordinator.errors._stored]
        await env.close()

    asyncio.run(main())


def test_error_reported_after_drop_is_not_written(
    env: TestEnvironment,
) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await toggled(env, 1)
        coordinator = env.environment.coordinator
        view = GlobalId((await ran(env, f"SELECT object_id FROM {ERRORS}"))[0])
        await ran(env, "DROP MATERIALIZED VIEW m CASCADE")
        await coordinator.errors.store(view, [5], {5: "22012 division by zero"})
        async with asyncio.timeout(10):
            while await rows(env):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        assert not [*coordinator.errors._stored]
        assert view not in coordinator.errors._locks
        await env.close()

    asyncio.run(main())


def test_new_dataflow_knows_pending_errors(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write = GroupCommit.write, asyncio.Event()

    async def slowly(self: GroupCommit, each: Write) -> Timestamp:
        if VIEW_ERRORS.id in each.rows:
            await may_write.wait()
        return await write(self, each)

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await seen(env)
        coordinator = env.environment.coordinator
        view = coordinator.state.item(id_of(env, "m"))
        monkeypatch.setattr(GroupCommit, "write", slowly)
        storing = asyncio.create_task(
            coordinator.errors.store(view.id, [5], {5: "22012 division by zero"})
        )
        await asyncio.sleep(0)
        storing.cancel()  # its dataflow ends
        taking_over = asyncio.create_task(coordinator.view_handoff.hand_over(view))
        await asyncio.sleep(0.2)
        may_write.set()
        await taking_over
        errors = coordinator.compute._dataflows[view.id].writers[view.id].errors
        assert errors.first(5, 6) == (5, "22012 division by zero")
        await env.close()

    asyncio.run(main())


def test_full_disk_delays_view_with_error(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "RETRY_SECONDS", 0.05)
    full = True
    refused = 0
    write = GroupCommit.write

    async def no_room(self: GroupCommit, each: Write) -> Timestamp:
        nonlocal refused
        if VIEW_ERRORS.id in each.rows and full:
            refused += 1
            raise OutOfDisk("No space left on device")
        return await write(self, each)

    async def main() -> None:
        nonlocal full
        await env.open()
        await ran(env, *SETUP)
        await seen(env)
        monkeypatch.setattr(GroupCommit, "write", no_room)
        await ran(env, "INSERT INTO t VALUES (0)")
        written = env.environment.coordinator.oracle.read_ts()
        await until(lambda: refused > 2)
        assert env.storage.upper(id_of(env, "m")) <= written
        progress = env.environment.coordinator.compute.progress(id_of(env, "m"))
        assert progress.state == "not written"
        full = False
        assert await says(env, "SELECT * FROM m") == [DIVISION]
        assert len(await rows(env)) == 1
        await env.close()

    asyncio.run(main())


def test_lock_on_error_table_does_not_delay_view(env: TestEnvironment) -> None:
    """Else whoever waits for the view, having the table, would wait for ever."""

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await seen(env)
        group = env.environment.coordinator.group
        group.block([VIEW_ERRORS.id], env)
        await ran(env, "INSERT INTO t VALUES (0)")
        assert await says(env, "SELECT * FROM m") == [DIVISION]
        group.unblock([VIEW_ERRORS.id])
        assert len(await rows(env)) == 1
        await env.close()

    asyncio.run(main())


def test_corrupted_error_table_affects_only_reads_that_need_it(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = StorageController.snapshot

    def damaged(self: StorageController, read: ReadCapability, time: Timestamp) -> Snapshot:
        if read.id == VIEW_ERRORS.id:
            self.corruptions.found(read.id, DataCorrupted("a batch is missing"))
            self.corruptions.check(read.id)
        return snapshot(self, read, time)

    async def main() -> None:
        await env.open()
        sure = "CREATE MATERIALIZED VIEW sure AS SELECT a, count(*) AS n FROM t GROUP BY a"
        await ran(env, *SETUP, sure)
        times = await toggled(env, 1)
        wanted = {time: await says(env, f"SELECT * FROM sure AS OF {time}") for time in times}
        await passed(env, times[-1])
        await env.close()
        with monkeypatch.context() as patched:
            patched.setattr(StorageController, "snapshot", damaged)
            await env.open()
            refused = f"ERROR XX001: table {ERRORS} is damaged: a batch is missing"
            for sql in (
                *(f"SELECT * FROM m AS OF {time}" for time in times),
                f"SELECT * FROM above AS OF {times[0]}",
                f"SELECT * FROM CHANGES(m, {times[0]}, {times[2]})",
                f"SUBSCRIBE m AS OF {times[0]} UP TO {times[2]}",
            ):
                told = await says(env, sql)
                assert told[0] == refused, (sql, told)
            for time, rows_then in wanted.items():
                assert await says(env, f"SELECT * FROM sure AS OF {time}") == rows_then
            assert await says(env, "SELECT * FROM m") == ["1", "10", "5", "SELECT 3"]
            later = await toggled(env, 1)
            await agrees(env, later)
            await ran(env, "DROP MATERIALIZED VIEW above")
            await env.close()

    asyncio.run(main())
