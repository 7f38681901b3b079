"""What holds for sinks of all kinds."""

import asyncio
from pathlib import Path

import deltalake
import pytest

from foreshore.storage import shard
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment

STATISTICS = (
    "SELECT messages_staged, messages_committed, lag < '10 s' FROM mz_internal.mz_sink_statistics"
)


@pytest.fixture
def place(own_env: TestEnvironment, tmp_path: Path) -> Path:
    """Return a new directory that COPY and sinks may write."""
    place = tmp_path / "out"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    return place


async def until_query(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has one row, this one."""
    while True:
        if (await env.query("a", query)).splitlines()[:-1] == [expected]:
            return
        await asyncio.sleep(0.02)


async def test_statistics_and_lag_are_there_after_a_restart(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')")
    await until_query(env, STATISTICS, "2|2|t")
    await env.reopen()  # it may not write there, so it can only stall
    await until_query(env, STATISTICS, "0|0|t")
    frontier = "SELECT frontier > 0 FROM mz_internal.mz_sink_statistics"
    assert await env.query("a", frontier) == "t\nSELECT 1"


async def test_a_sink_is_shown_with_present_names_of_columns(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')")
    await env.ran("a", 'ALTER TABLE t RENAME COLUMN k TO "K 2"')
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert 'KEY ("K 2") NOT ENFORCED' in shown
    await env.ran("a", "DROP SINK s", shown.replace(f"{place}/t", f"{place}/u"))
    await env.ran("a", "WAIT FOR SINKS s")
    assert deltalake.DeltaTable(str(place / "u")).to_pyarrow_table().to_pydict() == {
        "K 2": [1],
        "v": [1],
    }


async def test_a_sink_that_is_there_needs_no_target(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')")
    elsewhere = "CREATE SINK IF NOT EXISTS {} FROM t INTO DELTA (URL '/nowhere/t')"
    assert "already exists, skipping" in await env.ran("a", elsewhere.format("s"))
    assert "ERROR 42501" in await env.query("a", elsewhere.format("s2"))


async def test_wait_for_sinks(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, resumes = own_env, asyncio.Event()
    resume = DeltaExporter.resume

    async def held(self: DeltaExporter) -> Timestamp | None:
        await resumes.wait()
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", held)
    monkeypatch.setattr(shard, "QUIET_SECONDS", 3600.0)  # for which nobody who waits has to wait
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE u (k int PRIMARY KEY)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')")
    await env.ran("a", f"CREATE SINK s2 FROM u INTO DELTA (URL '{place}/u')")
    await env.ran("a", "SET statement_timeout = '200 ms'")
    assert "ERROR 57014" in await env.query("a", "WAIT FOR ALL SINKS")
    await env.ran("a", "RESET statement_timeout", "INSERT INTO t VALUES (1)")
    token = (await env.query("a", "SELECT mz_now()")).splitlines()[0]
    waiting = asyncio.create_task(env.query("b", f"WAIT FOR SINKS s, s2 AS OF {token}"))
    await env.ran("a", "SELECT 1")
    assert not waiting.done()
    resumes.set()
    assert await waiting == "WAIT"
    assert deltalake.DeltaTable(str(place / "t")).to_pyarrow_table().to_pydict() == {"k": [1]}
    for number in range(2, 5):
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR ALL SINKS")
        found = deltalake.DeltaTable(str(place / "t")).to_pyarrow_table()
        assert found.num_rows == number
    await env.ran("a", "BEGIN")
    assert "ERROR 25001: WAIT cannot run inside" in await env.query("a", "WAIT FOR ALL SINKS")
    await env.ran("a", "ROLLBACK")
    answer = await env.query("a", "INSERT INTO t VALUES (9); WAIT FOR ALL SINKS")
    assert "ERROR 25001" in answer


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("WAIT FOR SINKS no", '42P01: relation "no" does not exist'),
        ("WAIT FOR SINKS t", '42809: "t" is not a sink'),
        ("WAIT FOR SINKS", "42601: syntax error at end of input"),
        ("WAIT FOR ALL SINKS AS OF 'x'", "22"),
    ],
)
async def test_what_cannot_be_waited_for(env: TestEnvironment, statement: str, error: str) -> None:
    await env.ran("a", "CREATE TABLE IF NOT EXISTS t (k int)")
    assert f"ERROR {error}" in await env.query("a", statement)
