"""The history of how far collections were behind, which only the system writes."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foreshore.adapter.introspection import lag_history
from foreshore.adapter.introspection.lag_history import LagHistory
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.state import LAG_HISTORY
from foreshore.clock import ManualClock
from foreshore.compute.controller.lag_samples import KEPT_MS
from foreshore.errors import DataCorrupted
from foreshore.storage.controller import ReadCapability, StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, until

HISTORY = "mz_internal.mz_wallclock_global_lag_history"


async def ran(env: TestEnvironment, sql: str) -> str:
    answer = await env.query("s", sql)
    assert "ERROR" not in answer, answer
    return answer.rsplit("\n", 1)[0]


async def count(env: TestEnvironment) -> int:
    return int(await ran(env, f"SELECT count(*) FROM {HISTORY}"))


async def reached(env: TestEnvironment, rows: int) -> None:
    async with asyncio.timeout(20):
        while await count(env) < rows:  # noqa: ASYNC110 - another task writes it
            await asyncio.sleep(0.02)


def writer_of(env: TestEnvironment) -> LagHistory:
    """Return a writer that runs when the test says; the environment's own waits for a minute."""
    return LagHistory(env.environment.coordinator)


async def test_sample_has_greatest_lag_of_its_minute(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = own_env.environment.coordinator
    await ran(own_env, "CREATE TABLE t (k int)")
    await ran(own_env, "CREATE TABLE u (k int)")
    history = writer_of(own_env)
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
    lines = (await ran(own_env, shown)).splitlines()
    assert [line.split("|")[:2] for line in lines] == [["t", "t"], ["u", "t"]]
    assert all(line.split("|")[2].startswith(first) for line in lines)
    clock.advance(-550_000)
    await history.look()
    await history.write()  # has nothing of the minute before
    lags = await ran(own_env, f"SELECT lag < '59 minutes' FROM {HISTORY} ORDER BY lag")
    assert lags.split() == ["t", "t", "f", "f"]
    monkeypatch.undo()


def test_history_is_readable_like_any_table_also_after_restart(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await ran(env, "CREATE TABLE t (k int)")
        table = await ran(env, "SELECT id FROM mz_tables WHERE name = 't'")
        history = writer_of(env)
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

        await env.open()  # it is durable, and so is the view over it
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
def test_users_cannot_change_history(system: TestEnvironment, sql: str) -> None:
    async def main() -> None:
        await system.open()
        assert (await system.query("s", sql)).startswith("ERROR 42501: ")
        await system.close()

    asyncio.run(main())


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> TestEnvironment:
    """Return an environment for statements that fail and change nothing."""
    return TestEnvironment(tmp_path_factory.mktemp("system"))


async def test_table_keeps_newest_samples_within_its_bounds(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "MAX_ROWS", 25)
    coordinator = own_env.environment.coordinator
    for name in ("t", "u", "v"):
        await ran(own_env, f"CREATE TABLE {name} (k int)")
    clock = ManualClock(coordinator.clock.now())
    monkeypatch.setattr(coordinator, "clock", clock)

    async def minutes(number: int, writer: LagHistory) -> None:
        for _ in range(number):
            clock.advance(60_000)
            await writer.look()
            await writer.write()

    await minutes(20, writer_of(own_env))
    oldest = f"SELECT max(occurred_at) - min(occurred_at) FROM {HISTORY}"
    assert (await count(own_env), await ran(own_env, oldest)) == (24, "00:07:00")
    await minutes(3, writer_of(own_env))  # as after a start
    assert (await count(own_env), await ran(own_env, oldest)) == (24, "00:07:00")
    clock.advance(KEPT_MS)
    await minutes(1, writer_of(own_env))
    assert await count(own_env) == 3
    monkeypatch.undo()


async def test_corrupted_history_ends_recording_but_not_the_server(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lag_history, "LOOKS", 1)
    await ran(own_env, "CREATE TABLE t (k int)")
    await reached(own_env, 3)
    own_env.storage.corruptions.found(LAG_HISTORY.id, DataCorrupted("a batch is missing"))
    async with asyncio.timeout(20):
        await LagHistory(own_env.environment.coordinator).run()  # as at a start
    answer = await own_env.query("s", f"SELECT count(*) FROM {HISTORY}")
    assert answer.startswith("ERROR XX001: ")
    await ran(own_env, "INSERT INTO t VALUES (1)")
    assert await ran(own_env, "SELECT k FROM t") == "1"
    await asyncio.sleep(0.1)
    assert own_env.environment.failed is None


async def test_sample_after_failed_read_or_write_is_written(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[BaseException] = [OSError("timed out"), RuntimeError("a defect")]
    snapshot = StorageController.snapshot

    def unreadable(self: StorageController, read: ReadCapability, time: Timestamp) -> Snapshot:
        if read.id == LAG_HISTORY.id and failures:
            raise failures.pop()
        return snapshot(self, read, time)

    monkeypatch.setattr(lag_history, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lag_history, "LOOKS", 1)
    monkeypatch.setattr(StorageController, "snapshot", unreadable)
    await until(lambda: not failures)
    await ran(own_env, "CREATE TABLE t (k int)")
    await reached(own_env, 3)
    group = own_env.environment.coordinator.group
    write = group.write

    async def lost(each: Write) -> Timestamp:
        """Write, and fail as if the answer was lost."""
        await write(each)
        monkeypatch.setattr(group, "write", write)
        raise OSError("connection reset")

    monkeypatch.setattr(group, "write", lost)
    await reached(own_env, await count(own_env) + 3)
    assert group.write == write
    assert own_env.environment.failed is None


async def test_look_at_many_collections_yields_to_the_event_loop(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_history, "LOOKED_AT_ONCE", 8)  # more than the system has
    for i in range(9):
        await ran(own_env, f"CREATE MATERIALIZED VIEW t{i} AS SELECT {i} AS k")
    history = writer_of(own_env)
    looking = asyncio.create_task(history.look())
    await asyncio.sleep(0)
    assert 0 < len(history._samples.greatest) <= 8
    await ran(own_env, "DROP MATERIALIZED VIEW t8")
    await looking
    await history.write()
    assert 8 <= await count(own_env) <= 9  # t8 is there only if it was looked at in time


async def test_samples_are_written_after_table_was_locked(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_history, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(lag_history, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lag_history, "LOOKS", 1)
    group = own_env.environment.coordinator.group
    group.block([LAG_HISTORY.id], own_env)
    await ran(own_env, "CREATE TABLE t (k int)")
    async with asyncio.timeout(20):
        while caplog.text.count("is lost: ") < 2:  # noqa: ASYNC110 - another task tries
            await asyncio.sleep(0.02)
    assert await count(own_env) == 0
    group.unblock([LAG_HISTORY.id])
    await reached(own_env, 2)


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
def test_users_locks_do_not_delay_samples(system: TestEnvironment, sql: str) -> None:
    """LOCK TABLE of a system catalog is allowed too, and locks nothing."""

    async def main() -> None:
        await system.open()
        await system.query("s", f"CREATE VIEW of_history AS SELECT * FROM {HISTORY}")
        await system.query("s", "CREATE TABLE t (k int)")
        assert "ERROR" not in await system.query("s", f"BEGIN; {sql}")
        history = writer_of(system)
        await history.look()
        async with asyncio.timeout(20):
            await history.write()
        await ran(system, "ROLLBACK")
        await system.close()

    asyncio.run(main())


def test_id_is_the_same_in_every_database() -> None:
    assert LAG_HISTORY.id == "s2"
