"""Errors of materialized views are known after the dataflow that had them has ended."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter import environment
from foreshore.adapter.environment import Environment
from foreshore.adapter.introspection import view_errors
from foreshore.catalog import state
from foreshore.catalog.item import Item
from foreshore.catalog.state import AUDIT_EVENTS, LAG_HISTORY, SYSTEM_TABLES, VIEW_ERRORS
from foreshore.compute.controller import error_log
from foreshore.storage import backup
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, until
from tests.adapter.introspection.failing import (
    DIVISION,
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


def test_error_table_id_is_the_same_in_every_database() -> None:
    assert VIEW_ERRORS.id == "s3"
    assert len({each.oid for each in SYSTEM_TABLES}) == len(SYSTEM_TABLES)
