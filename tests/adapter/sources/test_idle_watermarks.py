"""IDLE TIMEOUT: the clock moves the watermarks of relations that nobody writes."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from foreshore.clock import ManualClock
from foreshore.errors import CheckViolation, LockNotAvailable
from foreshore.ids import GlobalId
from foreshore.types import Watermark
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_files import allowed, put, reaches
from tests.adapter.sources.test_watermarks import VIEW, row

MARK = "WATERMARK FOR at AS at - INTERVAL '5 seconds' IDLE TIMEOUT INTERVAL '30 s'"
TABLE = f"CREATE TABLE t (at timestamp, k int, {MARK})"
READ = "SELECT watermark FROM mz_internal.mz_watermarks"


class Clock:
    """The clock of an environment's idle watermarks, which the test moves."""

    def __init__(self, env: TestEnvironment) -> None:
        self._env = env
        self.manual = ManualClock(1_000_000)

    async def passes(self, seconds: int) -> None:
        """Let time pass, second by second."""
        idle = self._env.environment.idle_watermarks
        idle.clock = self.manual
        await idle.move()
        for _ in range(seconds):
            self.manual.advance(1000)
            await idle.move()


@pytest.fixture
def clock(own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr("foreshore.adapter.coordinator.idle_watermarks.LOOK_SECONDS", 1e9)
    return Clock(own_env)


async def test_silent_table_closes_its_window(own_env: TestEnvironment, clock: Clock) -> None:
    env = own_env
    await env.ran("s", TABLE, VIEW, row(10))
    await clock.passes(29)
    assert await env.query("s", READ) == "2020-01-01 00:00:05+00\nSELECT 1"
    await clock.passes(1)
    assert await env.query("s", READ) == "2020-01-01 00:00:35+00\nSELECT 1"
    await clock.passes(24)
    assert await env.query("s", "SELECT * FROM closed") == "SELECT 0"
    await clock.passes(8)
    assert await env.query("s", "SELECT * FROM closed") == "2020-01-01 00:01:00|1\nSELECT 1"
    assert await env.query("s", "SELECT * FROM t_idle") == "2020-01-01 00:01:12\nSELECT 1"
    assert (await env.query("s", row(59))).startswith("ERROR 23514")
    await env.reopen()
    assert (await env.query("s", row(59))).startswith("ERROR 23514")
    await env.ran("s", row(67), row(130))
    shown = await env.query("s", "SELECT * FROM closed ORDER BY 1")
    assert shown == "2020-01-01 00:01:00|1\n2020-01-01 00:02:00|1\nSELECT 2"


async def test_altered_table_keeps_the_mark_of_the_clock(
    own_env: TestEnvironment, clock: Clock
) -> None:
    env = own_env
    await env.ran("s", TABLE, VIEW, row(10))
    await clock.passes(90)
    assert (await env.query("s", row(59))).startswith("ERROR 23514")
    await env.ran("s", "ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 3")
    assert await env.query("s", READ) == "2020-01-01 00:01:31+00\nSELECT 1"
    assert (await env.query("s", row(59))).startswith("ERROR 23514")
    await env.reopen()
    await env.ran("s", "ALTER TABLE t DROP COLUMN more")
    assert (await env.query("s", row(59))).startswith("ERROR 23514")
    await clock.passes(40)
    assert await env.query("s", READ) == "2020-01-01 00:02:09+00\nSELECT 1"


async def test_written_and_empty_tables_wait_for_rows(
    own_env: TestEnvironment, clock: Clock
) -> None:
    env = own_env
    await env.ran("s", TABLE)
    await clock.passes(60)
    assert await env.query("s", READ) == "NULL\nSELECT 1"
    await env.ran("s", row(100))
    for _ in range(3):
        await env.ran("s", "INSERT INTO t VALUES (NULL, 1)")
        await clock.passes(20)
    assert await env.query("s", READ) == "2020-01-01 00:01:35+00\nSELECT 1"
    clock.manual.advance(-1_000_000)
    await clock.passes(20)
    assert await env.query("s", READ) == "2020-01-01 00:01:35+00\nSELECT 1"


async def test_a_clock_that_is_set_forward_moves_a_watermark_by_seconds(
    own_env: TestEnvironment, clock: Clock
) -> None:
    env = own_env
    await env.ran("s", TABLE, row(10))
    await clock.passes(29)
    clock.manual.advance(86_400_000)
    await clock.passes(1)  # 29 seconds and the ten at most that count
    assert await env.query("s", READ) == "2020-01-01 00:00:44+00\nSELECT 1"
    await clock.passes(30)
    assert await env.query("s", READ) == "2020-01-01 00:01:08+00\nSELECT 1"


async def test_relation_that_cannot_be_moved_hinders_no_other(
    own_env: TestEnvironment, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await env.ran("s", TABLE.replace("TABLE t", "TABLE a"), TABLE, row(10))
    await env.ran("s", row(20).replace("INTO t", "INTO a"))
    idle = env.environment.idle_watermarks
    write, first = idle._write, min(env.environment.coordinator.watermarks.with_timeout)

    async def failing(id: GlobalId, watermark: Watermark, mark: int) -> None:
        if id == first:
            raise LockNotAvailable
        await write(id, watermark, mark)

    monkeypatch.setattr(idle, "_write", failing)
    await clock.passes(30)
    assert await env.query("s", "SELECT * FROM a_idle") == "SELECT 0"
    assert await env.query("s", "SELECT * FROM t_idle") == "2020-01-01 00:00:40\nSELECT 1"


async def test_silent_table_does_not_hold_a_join_back(
    own_env: TestEnvironment, clock: Clock
) -> None:
    env = own_env
    counts = "(SELECT window_end, count(*) FROM TUMBLE({}, at, INTERVAL '1 minute') GROUP BY 1)"
    await env.ran(
        "s",
        TABLE,
        "CREATE TABLE other (at timestamp, WATERMARK FOR at AS at)",
        "CREATE MATERIALIZED VIEW joined WITH (EMIT ON WINDOW CLOSE) AS SELECT a.window_end,"
        f" a.count, b.count AS n FROM {counts.format('other')} a"
        f" LEFT JOIN {counts.format('t')} b ON a.window_end = b.window_end",
        row(10),
        "INSERT INTO other VALUES ('2020-01-01 00:00:30')",
        "INSERT INTO other VALUES ('2020-01-01 01:00:00')",
    )
    assert await env.query("s", "SELECT * FROM joined") == "SELECT 0"
    await clock.passes(90)
    assert await env.query("s", "SELECT * FROM joined") == "2020-01-01 00:01:00|1|1\nSELECT 1"


async def test_relation_of_marks_belongs_to_its_table(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", TABLE, VIEW, row(10))
    for change in ("INSERT INTO t_idle VALUES (NULL)", "DELETE FROM t_idle", "TRUNCATE t_idle"):
        assert "ERROR 42809: cannot change table" in await env.query("s", change)
    assert "ERROR 2BP01" in await env.query("s", "DROP TABLE t_idle CASCADE")
    shown = (await env.query("s", "SHOW CREATE TABLE t")).splitlines()[0].split("|")[1]
    assert f"{MARK[:34]}'00:00:05' IDLE TIMEOUT INTERVAL '00:00:30')" in shown
    await env.ran("s", "ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME at TO happened")
    await env.ran("s", "ALTER TABLE u ADD COLUMN more int NOT NULL DEFAULT 3")
    await env.reopen()
    await env.ran("s", "DROP TABLE u CASCADE", shown, "DROP TABLE t")
    assert "ERROR 42P01" in await env.query("s", "SELECT * FROM t_idle")
    for wrong, state in (
        ("IDLE TIMEOUT INTERVAL '1 ms'", "22023"),
        ("IDLE TIMEOUT INTERVAL '1 month'", "0A000"),
        ("IDLE TIMEOUT INTERVAL '1 min' MARKS 'u1'", "42601"),
    ):
        found = await env.query(
            "s", f"CREATE TABLE x (at timestamp, WATERMARK FOR at AS at {wrong})"
        )
        assert found.startswith(f"ERROR {state}"), found
    await env.ran("s", "CREATE TABLE x_idle ()")
    assert "ERROR 42P07" in await env.query("s", TABLE.replace("t (", "x ("))


async def test_silent_source_closes_its_window(
    own_env: TestEnvironment, clock: Clock, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "2020-01-01 00:01:40,1\n2020-01-01 00:00:30,2\n")
    source = (
        f"CREATE SOURCE t (at timestamp, k int, {MARK})"
        f" FROM FILES '{place}/*.csv' (FORMAT csv, POLL INTERVAL '10 ms')"
    )
    await env.ran("a", source, VIEW)
    await reaches(env, "SELECT count(*) FROM t", "2")
    await clock.passes(60)
    put(place, "b.csv", "2020-01-01 00:02:20,3\n2020-01-01 00:03:10,4\n")
    await reaches(env, "SELECT k FROM t_late", "3")
    shown = (await env.query("a", "SHOW CREATE SOURCE t")).splitlines()[0].split("|")[1]
    assert "IDLE TIMEOUT INTERVAL '00:00:30')" in shown
    windows = ("2020-01-01 00:01:00|1", "2020-01-01 00:02:00|1")
    await reaches(env, "SELECT * FROM closed ORDER BY 1", *windows)


async def test_source_with_late_rows_only_is_silent(
    own_env: TestEnvironment, clock: Clock, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "2020-01-01 00:01:40,0\n")
    source = (
        f"CREATE SOURCE t (at timestamp, k int, {MARK})"
        f" FROM FILES '{place}/*.csv' (FORMAT csv, POLL INTERVAL '10 ms')"
    )
    await env.ran("a", source)
    await reaches(env, "SELECT count(*) FROM t", "1")
    for count in range(1, 4):
        await clock.passes(15)
        put(place, f"late{count}.csv", f"2020-01-01 00:00:10,{count}\n")
        await reaches(env, "SELECT count(*) FROM t_late", str(count))
    assert await env.query("s", READ) == "2020-01-01 00:02:13+00\nSELECT 1"


async def test_rows_that_the_clock_makes_late_in_between_are_separated(
    own_env: TestEnvironment, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "2020-01-01 00:01:40,1\n")
    source = (
        f"CREATE SOURCE t (at timestamp, k int, {MARK})"
        f" FROM FILES '{place}/*.csv' (FORMAT csv, POLL INTERVAL '10 ms')"
    )
    await env.ran("a", source)
    await reaches(env, "SELECT count(*) FROM t", "1")
    ingestion = env.environment.coordinator.ingestion
    separate, write, passes = ingestion._separate_late, ingestion._write, [60]
    failed = []

    async def written(progressed: Any) -> None:
        try:
            await write(progressed)
        except CheckViolation as error:
            failed.append(error.message)
            raise

    async def separated(id: GlobalId, rows: Any) -> None:
        await separate(id, rows)
        if passes:
            await clock.passes(passes.pop())

    await clock.passes(0)
    monkeypatch.setattr(ingestion, "_separate_late", separated)
    monkeypatch.setattr(ingestion, "_write", written)
    put(place, "b.csv", "2020-01-01 00:02:20,2\n2020-01-01 00:03:10,3\n")
    await reaches(env, "SELECT k FROM t ORDER BY k", "1", "3")
    await reaches(env, "SELECT k FROM t_late", "2")
    assert failed == ['new row is below the watermark of column "at"']


async def test_view_has_the_windows_that_rows_and_clock_have_closed(
    own_env: TestEnvironment, clock: Clock
) -> None:
    env, random = own_env, Random(3)
    await env.ran("s", TABLE, VIEW)
    query = VIEW.partition(" AS ")[2]
    final = (
        "window_end <= (SELECT greatest(max(at), (SELECT max(at) FROM t_idle)) FROM t)"
        " - interval '5 s'"
    )
    second, before = 10, set[str]()
    for step in range(25):
        match random.choice(("row", "row", "short", "long", "open" if step == 12 else "row")):
            case "row":
                second += random.choice((0, 1, 20, 70))
                late = await env.query("s", row(max(second - random.choice((0, 3, 9)), 0)))
                assert "ERROR" not in late or "23514" in late
            case "short":
                await clock.passes(random.randint(1, 29))
            case "long":
                await clock.passes(random.randint(30, 100))
            case _:
                await env.reopen()
        shown = set((await env.query("s", "SELECT * FROM closed")).splitlines()[:-1])
        wanted = await env.query("s", f"SELECT * FROM ({query}) q WHERE {final}")
        assert shown == set(wanted.splitlines()[:-1])
        assert before <= shown
        before = shown
    assert len(before) > 3
