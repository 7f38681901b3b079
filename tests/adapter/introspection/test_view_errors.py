"""Errors of materialized views are known after the dataflow that had them has ended."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from foreshore import failpoint
from foreshore.adapter import environment
from foreshore.adapter.environment import Environment
from foreshore.adapter.introspection import view_errors
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.write import Write
from foreshore.catalog import state
from foreshore.catalog.item import Item
from foreshore.catalog.state import AUDIT_EVENTS, LAG_HISTORY, SYSTEM_TABLES, VIEW_ERRORS
from foreshore.compute.controller import error_log, outputs
from foreshore.compute.controller.outputs import SinkWriter
from foreshore.errors import DataCorrupted, OutOfDisk
from foreshore.ids import GlobalId
from foreshore.storage import backup
from foreshore.storage.controller import ReadCapability, StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, until

pytestmark = pytest.mark.full  # replicas are killed, environments opened anew

ERRORS = "mz_internal.mz_materialized_view_errors"
DIVISION = "ERROR 22012: division by zero"
SETUP = (
    "CREATE TABLE t (a int)",
    "INSERT INTO t VALUES (1), (2)",
    "CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS x FROM t",
    "CREATE MATERIALIZED VIEW above AS SELECT sum(x) AS s FROM m",
)
QUERIES = {  # what a view over time has to be, from tables that know all times
    "m": "SELECT 10 / a AS x FROM t",
    "above": "SELECT sum(x) AS s FROM (SELECT 10 / a AS x FROM t) d",
}


@pytest.fixture
def env(tmp_path: Path) -> TestEnvironment:
    return TestEnvironment(tmp_path, lag_ms=3_600_000)  # all that happens here can be read


async def ran(env: TestEnvironment, *statements: str) -> list[str]:
    """Run statements, of which none fails; return the rows of the last."""
    for sql in statements:
        answer = await env.query("w", sql)
        assert "ERROR" not in answer, (sql, answer)
    return answer.splitlines()[:-1]


async def says(env: TestEnvironment, sql: str) -> list[str]:
    """Return a query's rows in an order of their own, or its error."""
    async with asyncio.timeout(20):
        return sorted((await env.query("r", sql)).splitlines())


async def seen(env: TestEnvironment) -> Timestamp:
    """Return a time up to which the views are."""
    await says(env, "SELECT * FROM above")
    return env.environment.coordinator.oracle.read_ts()


async def toggled(env: TestEnvironment, times: int = 2) -> list[Timestamp]:
    """Let an error come and go; return the times before, between and after."""
    found = [await seen(env)]
    for _ in range(times):
        await ran(env, "INSERT INTO t VALUES (0)")
        found.append(await seen(env))
        await ran(env, "DELETE FROM t WHERE a = 0")
        found.append(await seen(env))
    return found


async def passed(env: TestEnvironment, time: Timestamp) -> None:
    """Reopen the environment, in which the dataflow of `m` begins later than at `time`."""
    await ran(env, "INSERT INTO t VALUES (10)")  # what it appends is durable
    await seen(env)
    await env.reopen()
    assert env.environment.coordinator.as_ofs[id_of(env, "m")] > time


def id_of(env: TestEnvironment, name: str) -> GlobalId:
    """Return a collection's id."""
    items = env.environment.coordinator.state.items()
    (found,) = [item.id for item in items if item.name == name]
    return found


async def agrees(env: TestEnvironment, times: Iterable[Timestamp]) -> None:
    """Assert that at each time the views are what their queries are."""
    for time in times:
        for view, query in QUERIES.items():
            wanted = await says(env, f"{query} AS OF {time}")
            assert await says(env, f"SELECT * FROM {view} AS OF {time}") == wanted, (view, time)


async def rows(env: TestEnvironment) -> list[str]:
    """Return the table's."""
    return await ran(env, f"SELECT sqlstate, error, at FROM {ERRORS} ORDER BY at")


def test_view_errors_are_known_at_all_times_after_restart(env: TestEnvironment) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        times = await toggled(env)
        failing = times[1::2]
        await agrees(env, times)
        for _ in range(2):
            await passed(env, times[-1])
            await agrees(env, times)
            for time in failing:
                assert await says(env, f"SELECT * FROM m AS OF {time}") == [DIVISION]
            times += (await toggled(env))[1:]
        await agrees(env, times)
        shown = await rows(env)
        assert [row.rpartition("|")[0] for row in shown] == [
            "22012|division by zero",
            "NULL|NULL",
        ] * (len(shown) // 2)
        assert len(shown) == 12
        await env.close()

    asyncio.run(main())


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


def test_changes_over_time_with_error_fails(env: TestEnvironment) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        first, failing, last = await toggled(env, 1)
        for restarted in (False, True):
            if restarted:
                await passed(env, last)
            for after, through, fails in (
                (first, last, True),
                (first, failing, True),
                (failing, last, True),
                (last, last, False),
                (first, first, False),
            ):
                sql = f"SELECT count(*) FROM CHANGES(m, {after}, {through})"
                assert await says(env, sql) == ([DIVISION] if fails else ["0", "SELECT 1"])
            assert await says(env, "SELECT * FROM CHANGES(m)") == [DIVISION]
            for source in ("m", "above", "(SELECT count(*) FROM m)"):
                for begin, fails in ((first, True), (failing, True), (last, False)):
                    sql = f"SUBSCRIBE {source} AS OF {begin} UP TO {last + 1}"
                    told = await says(env, sql)
                    assert (told == [DIVISION]) == fails, (sql, told)
            own = "(SELECT sum(10 / a) FROM t)"  # whose error is that of no view
            for source in ("m", "above", "(SELECT count(*) FROM m)", own):
                told = await says(env, f"SUBSCRIBE {source} AS OF {first} UP TO {first + 1}")
                assert "ERROR" not in "".join(told), (source, told)
        await env.close()

    asyncio.run(main())


def held_back(env: TestEnvironment, view: str) -> tuple[SinkWriter, asyncio.Event]:
    """Keep a view's shard where it is until an event, whatever its replica has said; its writer."""
    id, gate = id_of(env, view), asyncio.Event()
    writer = env.environment.coordinator.compute._dataflows[id].writers[id]
    inner = writer.errors._store

    class Slow:
        load = inner.load
        settled = inner.settled

        async def store(self, *args: Any) -> None:
            await gate.wait()
            await inner.store(*args)

    writer.errors._store = Slow()
    return writer, gate


@pytest.mark.parametrize("source", ["m", "above", "(SELECT a, x FROM m, t WHERE x <> a)"])
def test_subscription_fails_at_past_error(env: TestEnvironment, source: str) -> None:
    """Both are in one window, as the view's replica was not heard in between."""

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await says(env, "SELECT * FROM above")
        await env.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
        await env.ran("f", "FETCH 1 c")
        coordinator = env.environment.coordinator
        writer, gate = held_back(env, "m")
        await ran(env, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(env, "INSERT INTO t VALUES (4)")
        gone = coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > gone)
        gate.set()
        told = await env.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        if not told.startswith("ERROR"):  # the rest of the contents
            begun = {int(row.split("|")[0]) for row in told.splitlines() if "|" in row}
            assert len(begun) == 1, told
            assert max(begun) < gone, told
            told = await env.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        assert told.startswith(DIVISION), told
        await env.query("f", "ROLLBACK")
        await env.close()

    asyncio.run(main())


QUERY = "(SELECT a FROM m, t WHERE x <> a)"
NEWS = " WITH (SNAPSHOT = false)"


@pytest.mark.parametrize(
    ("source", "options", "followed"),
    [
        ("m", "", False),
        ("m", NEWS, False),
        ("above", "", False),
        ("m", "", True),
        ("indexed", "", True),
        (QUERY, "", True),
        (QUERY, NEWS, True),
    ],
)
def test_subscription_after_error_does_not_fail(
    env: TestEnvironment, source: str, options: str, followed: bool
) -> None:
    """The view has yet to come as far as the error, of which who begins earlier has to hear."""

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP, "CREATE VIEW indexed AS SELECT x + 1 AS y FROM m")
        await ran(env, "CREATE DEFAULT INDEX ON indexed")
        await says(env, "SELECT * FROM above, indexed")
        if followed:
            await env.query("e", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
            await env.ran("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
        writer, gate = held_back(env, "m")
        await ran(env, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(env, "INSERT INTO t VALUES (4)")
        begun = env.environment.coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > begun)
        await env.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}{options}")
        gate.set()
        if not options:
            first = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert int(first.split("|")[0]) >= begun
        later = await seen(env)
        await ran(env, "INSERT INTO t VALUES (3)")
        time = 0
        while time <= later:
            time = int((await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")).split("|")[0])
        if followed:
            told = ""
            while not told.startswith("ERROR"):
                told = await env.query("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert told.startswith(DIVISION), told
        for session in "ef":
            await env.query(session, "ROLLBACK")
        await env.close()

    asyncio.run(main())


def test_durable_subscription_does_not_skip_error(env: TestEnvironment) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP, "CREATE SUBSCRIPTION s FOR m")
        first, _, last = await toggled(env, 1)
        await ran(env, f"ALTER SUBSCRIPTION s ADVANCE TO {first + 1}")
        await passed(env, last)
        assert await says(env, "SUBSCRIBE TO SUBSCRIPTION s") == [DIVISION]
        await ran(env, f"ALTER SUBSCRIPTION s ADVANCE TO {last + 1}")
        await env.query("f", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION s")
        told = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
        assert told.splitlines()[0].endswith("|1|1"), told
        await env.query("f", "ROLLBACK")
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


def test_errors_are_kept_as_long_as_view_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 6)

    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=500)
        await env.open()
        await ran(env, *SETUP)
        written = len(await toggled(env, 20)) - 1
        async with asyncio.timeout(30):
            while len(await rows(env)) > written // 2:
                await asyncio.sleep(0.5)
                written += len(await toggled(env, 1)) - 1
        await ran(env, "INSERT INTO t VALUES (0)")
        await seen(env)
        await env.reopen()
        assert await says(env, "SELECT * FROM m") == [DIVISION]
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize("start", ["swift", "slow"])
def test_retained_view_keeps_errors_of_views_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 6)
    resume = Environment._resume

    async def slowly(self: Environment, item: Item, read_ts: Timestamp) -> None:
        if item.name == "above" and start == "slow":
            await asyncio.sleep(3)  # in which what is below it could go on
        await resume(self, item, read_ts)

    monkeypatch.setattr(Environment, "_resume", slowly)

    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=300)
        await env.open()
        await ran(env, *SETUP)
        await ran(env, "ALTER MATERIALIZED VIEW above SET (RETAIN HISTORY FOR '1 h')")
        _, during, *_ = await toggled(env, 10)
        m, storage = id_of(env, "m"), env.environment.coordinator.storage
        await until(lambda: storage.since(m) > during)
        await toggled(env, 20)
        for _ in range(2):
            assert await says(env, f"SELECT * FROM above AS OF {during}") == [DIVISION]
            await env.reopen()
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


def test_older_data_directory_gets_error_table(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        """Do as a server that has no such table."""

    async def main() -> None:
        with monkeypatch.context() as patched:
            for module in (state, environment):
                patched.setattr(module, "SYSTEM_TABLES", (LAG_HISTORY, AUDIT_EVENTS))
            patched.setattr(view_errors.ViewErrors, "open", nothing)
            patched.setattr(view_errors.ViewErrors, "store", nothing)
            await env.open()
            await ran(env, *SETUP, "INSERT INTO t VALUES (0)")
            await seen(env)
            await env.close()
            assert not env.storage.exists(VIEW_ERRORS.id)
        await env.open()
        assert await says(env, "SELECT * FROM m") == [DIVISION]
        now = await seen(env)
        assert len(await rows(env)) == 1
        await ran(env, "DELETE FROM t WHERE a = 0")
        later = await seen(env)
        await passed(env, later)
        await agrees(env, [now, later])
        await env.close()

    asyncio.run(main())


def test_restored_backup_has_view_errors(env: TestEnvironment, tmp_path: Path) -> None:
    async def main() -> None:
        place, restored = tmp_path / "backup", tmp_path / "restored"
        env.data_dir = tmp_path / "data"
        await env.open()
        await ran(env, *SETUP)
        times = await toggled(env)
        await passed(env, times[-1])
        await asyncio.to_thread(backup.back_up, env.data_dir, place)
        await toggled(env, 1)  # of which it knows nothing
        await env.close()
        await asyncio.to_thread(backup.restore, place, restored)
        copy = TestEnvironment(restored, lag_ms=env.lag_ms)
        await copy.open()
        await agrees(copy, times)
        assert len(await rows(copy)) == 4
        await copy.close()

    asyncio.run(main())


def test_error_table_id_is_the_same_in_every_database() -> None:
    assert VIEW_ERRORS.id == "s3"
    assert len({each.oid for each in SYSTEM_TABLES}) == len(SYSTEM_TABLES)
