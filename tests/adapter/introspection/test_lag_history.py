"""The history of how far collections were behind: written by the system, read like any table."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foreshore.adapter.introspection import lag_history
from foreshore.adapter.introspection.lag_history import LagHistory
from foreshore.adapter.transaction.group_commit import Write
from foreshore.catalog.state import LAG_HISTORY
from foreshore.clock import ManualClock
from foreshore.errors import DataCorrupted
from foreshore.storage.controller import ReadCapability, StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, in_environment

HISTORY = "mz_internal.mz_wallclock_global_lag_history"


async def ran(env: TestEnvironment, sql: str) -> str:
    answer = await env.query("s", sql)
    assert "ERROR" not in answer, answer
    return answer.rsplit("\n", 1)[0]


async def count(env: TestEnvironment) -> int:
    return int(await ran(env, f"SELECT count(*) FROM {HISTORY}"))


async def reached(env: TestEnvironment, rows: int) -> None:
    async with asyncio.timeout(20):
        while await count(env) < rows:  # noqa: ASYNC110 - it is written in its own time
            await asyncio.sleep(0.02)


async def history_of(env: TestEnvironment) -> LagHistory:
    """Return a writer whose time is the test's; the environment's own is about to wait a minute."""
    history = LagHistory(env.environment.coordinator)
    await history.load()
    return history


def test_the_greatest_lag_of_each_minute_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        await ran(env, "CREATE TABLE t (k int)")
        await ran(env, "CREATE TABLE u (k int)")
        history = await history_of(env)
        clock = ManualClock(coordinator.clock.now() + 3_600_000)
        monkeypatch.setattr(coordinator, "clock", clock)
        await history.look()
        clock.advance(-3_000_000)
        await history.look()
        await history.write()
        minute = clock.now()
        shown = (
            f"SELECT name, lag BETWEEN '59 minutes' AND '61 minutes', occurred_at FROM {HISTORY}"
            " JOIN mz_objects o ON o.id = object_id ORDER BY 1, 3"
        )
        first = f"{datetime.fromtimestamp(minute / 1000, UTC):%Y-%m-%d %H:%M:%S}"
        lines = (await ran(env, shown)).splitlines()
        assert [line.split("|")[:2] for line in lines] == [["t", "t"], ["u", "t"]]
        assert all(line.split("|")[2].startswith(first) for line in lines)
        clock.advance(-550_000)
        await history.look()
        await history.write()  # begins anew, and has nothing of the minute before
        lags = await ran(env, f"SELECT lag < '59 minutes' FROM {HISTORY} ORDER BY lag")
        assert lags.split() == ["t", "t", "f", "f"]
        monkeypatch.undo()

    in_environment(tmp_path, main)


def test_it_is_a_collection_like_any_other(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await ran(env, "CREATE TABLE t (k int)")
        table = await ran(env, "SELECT id FROM mz_tables WHERE name = 't'")
        history = await history_of(env)
        await ran(
            env,
            f"CREATE MATERIALIZED VIEW worst AS SELECT object_id, max(lag) AS lag FROM {HISTORY}"
            " GROUP BY object_id",
        )
        before = env.environment.coordinator.oracle.read_ts()
        await history.look()
        await history.write()
        assert await count(env) == 2  # the table's and the view's
        assert await ran(env, f"SELECT count(*) FROM {HISTORY} AS OF {before}") == "0"
        following = (
            f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {HISTORY} WITH (SNAPSHOT = false)"
            f" AS OF {before}; FETCH 2 c"
        )
        changes = (await ran(env, following)).splitlines()[2:]
        assert sorted(line.split("|")[1:3] for line in changes[:2])[0] == ["1", table]
        await ran(env, "ROLLBACK")
        shown = (
            f"SELECT count(*) FROM worst w JOIN {HISTORY} h ON w.object_id = h.object_id"
            " AND w.lag IS NOT DISTINCT FROM h.lag"
        )
        assert await ran(env, shown) == "2"
        await env.close()

        await env.open()  # it is durable, and so is what stands on it
        assert await count(env) == 2
        assert await ran(env, shown) == "2"
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "sql",
    [
        f"INSERT INTO {HISTORY} VALUES ('u1', NULL, now())",
        f"UPDATE {HISTORY} SET lag = NULL",
        f"DELETE FROM {HISTORY}",
        f"TRUNCATE {HISTORY}",
        f"COPY {HISTORY} FROM STDIN",
        f"DROP TABLE {HISTORY}",
        f"ALTER TABLE {HISTORY} ADD COLUMN more int",
        f"ALTER TABLE {HISTORY} RENAME TO mine",
        f"ALTER TABLE {HISTORY} SET (RETAIN HISTORY FOR '1 day')",
        f"CREATE INDEX ON {HISTORY} (object_id)",
        f"COMMENT ON TABLE {HISTORY} IS 'mine'",
    ],
)
def test_only_the_system_changes_it(system: TestEnvironment, sql: str) -> None:
    async def main() -> None:
        await system.open()
        assert (await system.query("s", sql)).startswith("ERROR 42501: ")
        await system.close()

    asyncio.run(main())


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> TestEnvironment:
    """Return an environment that stands for all statements that change nothing of it."""
    return TestEnvironment(tmp_path_factory.mktemp("system"))


def test_it_has_a_bound_and_reads_nothing_to_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "MAX_ROWS", 25)

    async def main(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        for name in ("t", "u", "v"):
            await ran(env, f"CREATE TABLE {name} (k int)")
        history = await history_of(env)
        clock = ManualClock(coordinator.clock.now())
        monkeypatch.setattr(coordinator, "clock", clock)

        async def minutes(number: int, writer: LagHistory) -> None:
            for _ in range(number):
                clock.advance(60_000)
                await writer.look()
                await writer.write()

        with monkeypatch.context() as patched:
            patched.setattr(env.storage, "snapshot", lambda *_: pytest.fail("it reads"))
            await minutes(20, history)
        assert await count(env) <= 25 + 3
        oldest = (
            f"SELECT min(occurred_at) = max(occurred_at) - interval '{{}} minutes' FROM {HISTORY}"
        )
        assert await ran(env, oldest.format(8)) == "t"
        again = await history_of(env)  # as after a start: it knows what is there
        assert [time for time, _ in again._kept] == [time for time, _ in history._kept]
        assert all(
            one.sort_by("object_id").equals(other.sort_by("object_id"))
            for (_, one), (_, other) in zip(again._kept, history._kept, strict=True)
        )
        await minutes(3, again)
        assert await ran(env, oldest.format(8)) == "t"
        clock.advance(lag_history.KEPT_MS)
        await minutes(1, again)  # a day is as long as anything is kept
        assert await count(env) == 3
        monkeypatch.undo()

    in_environment(tmp_path, main)


def test_a_damaged_history_is_written_no_more_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lag_history, "LOOKS", 1)

    async def main(env: TestEnvironment) -> None:
        await ran(env, "CREATE TABLE t (k int)")
        await reached(env, 3)
        env.storage.corruptions.found(LAG_HISTORY.id, DataCorrupted("a batch is missing"))
        async with asyncio.timeout(20):
            await LagHistory(env.environment.coordinator).run()  # as at a start
        answer = await env.query("s", f"SELECT count(*) FROM {HISTORY}")
        assert answer.startswith("ERROR XX001: ")
        await ran(env, "INSERT INTO t VALUES (1)")
        assert await ran(env, "SELECT k FROM t") == "1"
        await asyncio.sleep(0.1)
        assert env.environment.failed is None

    in_environment(tmp_path, main)


def test_what_passes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "RETRY_SECONDS", 0.05)
    failures: list[BaseException] = [OSError("timed out"), RuntimeError("a fault")]
    snapshot = StorageController.snapshot

    def unreadable(self: StorageController, read: ReadCapability, time: Timestamp) -> Snapshot:
        if read.id == LAG_HISTORY.id and failures:
            raise failures.pop()
        return snapshot(self, read, time)

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(lag_history, "LOOK_SECONDS", 0.01)
            patched.setattr(lag_history, "LOOKS", 1)
            patched.setattr(StorageController, "snapshot", unreadable)
            await env.open()
            async with asyncio.timeout(20):
                while failures:  # noqa: ASYNC110 - it tries in its own time
                    await asyncio.sleep(0.02)
            await ran(env, "CREATE TABLE t (k int)")
            await reached(env, 3)
            group = env.environment.coordinator.group
            write = group.write

            async def lost(each: Write) -> Timestamp:
                """Write, and let nobody hear of it."""
                await write(each)
                patched.setattr(group, "write", write)
                raise OSError("connection reset")

            patched.setattr(group, "write", lost)
            await reached(env, await count(env) + 3)
            assert group.write == write
            assert env.environment.failed is None
            await env.close()
        await env.open()
        history = await history_of(env)
        assert sum(rows.num_rows for _, rows in history._kept) == await count(env)
        await env.close()

    asyncio.run(main())


def test_many_collections_are_looked_at_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "LOOKED_AT_ONCE", 4)

    async def main(env: TestEnvironment) -> None:
        for i in range(9):
            await ran(env, f"CREATE TABLE t{i} (k int)")
        history = await history_of(env)
        looking = asyncio.create_task(history.look())
        await asyncio.sleep(0)
        assert 0 < len(history._greatest) <= 4
        await ran(env, "DROP TABLE t8")
        await looking
        await history.write()
        assert 8 <= await count(env) <= 9  # t8 is there only if it was looked at in time

    in_environment(tmp_path, main)


def test_who_keeps_the_table_from_changing_stops_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_history, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(lag_history, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lag_history, "LOOKS", 1)

    async def main(env: TestEnvironment) -> None:
        group = env.environment.coordinator.group
        group.block([LAG_HISTORY.id], env)
        await ran(env, "CREATE TABLE t (k int)")
        async with asyncio.timeout(20):
            while caplog.text.count("is lost: ") < 2:  # noqa: ASYNC110 - it tries in its own time
                await asyncio.sleep(0.02)
        assert await count(env) == 0
        group.unblock([LAG_HISTORY.id])
        await reached(env, 2)

    in_environment(tmp_path, main)


@pytest.mark.parametrize(
    "sql",
    [
        f"LOCK TABLE {HISTORY}",
        "LOCK TABLE of_history",
        f"SELECT * FROM {HISTORY} FOR UPDATE",
        f"SELECT * FROM {HISTORY} FOR UPDATE SKIP LOCKED",
        "SELECT * FROM of_history FOR UPDATE",
        "SELECT * FROM t, of_history h FOR UPDATE OF h",
    ],
)
def test_nobody_can_lock_it(system: TestEnvironment, sql: str) -> None:
    """As of a system catalog: LOCK TABLE pg_class is allowed, and keeps nothing from changing."""

    async def main() -> None:
        await system.open()
        await system.query("s", f"CREATE VIEW of_history AS SELECT * FROM {HISTORY}")
        await system.query("s", "CREATE TABLE t (k int)")
        assert "ERROR" not in await system.query("s", f"BEGIN; {sql}")
        history = await history_of(system)
        await history.look()
        async with asyncio.timeout(5):
            await history.write()
        await ran(system, "ROLLBACK")
        await system.close()

    asyncio.run(main())


def test_its_id_is_the_same_in_every_database() -> None:
    assert LAG_HISTORY.id == "s2"
