"""Reads of sources without rows: a notice, or with wait_for_snapshot a wait for the first ones."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.adapter.read.bound import timestamp
from foreshore.errors import QueryCanceled
from foreshore.storage.ingest.messages import StartSource
from foreshore.storage.ingest.worker import Worker
from tests.adapter.harness import TestEnvironment

NOTICE = 'NOTICE: source "s" has no rows yet: its first snapshot is being read'


async def gated(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> asyncio.Event:
    """Make a source, and views over it, whose process reads nothing before the event is set."""
    opened, deliver = asyncio.Event(), Worker.deliver

    async def later(*command: Any) -> None:
        await opened.wait()
        deliver(*command)

    def held(worker: Worker, command: Any, *rest: Any) -> None:
        if isinstance(command, StartSource) and not opened.is_set():
            starts.append(asyncio.ensure_future(later(worker, command, *rest)))
        else:
            deliver(worker, command, *rest)

    starts: list[asyncio.Future[None]] = []
    monkeypatch.setattr(Worker, "deliver", held)
    place = tmp_path / "incoming"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    pq.write_table(pa.table({"n": [1, 2]}), place / "a.parquet")
    await own_env.ran(
        "a",
        f"CREATE SOURCE s (n int8) FROM FILES '{place}' (FORMAT parquet)",
        "CREATE VIEW v AS SELECT n FROM s",
        "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM s",
        "CREATE TABLE t (n int)",
    )
    return opened


READS = {
    "SELECT n FROM s": "1\n2\nSELECT 2",
    "SELECT n FROM v": "1\n2\nSELECT 2",
    "SELECT n FROM m": "2\nSELECT 1",
    "SELECT count(*) FROM s JOIN t ON true": "0\nSELECT 1",
    "INSERT INTO t SELECT n FROM s": "INSERT 0 2",
    "SELECT (SELECT max(n) FROM s)": "2\nSELECT 1",
    "EXECUTE p": "2\nSELECT 1",
}


@pytest.mark.parametrize("read", READS)
async def test_a_read_of_a_source_without_rows_gets_a_notice_or_waits(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    env, gate = own_env, await gated(own_env, tmp_path, monkeypatch)
    await env.ran("a", "PREPARE p AS SELECT n FROM m")
    if not read.startswith("INSERT"):
        assert NOTICE in await env.query("a", read)
    assert NOTICE not in await env.query("a", "SELECT * FROM t")
    await env.ran("a", "SET wait_for_snapshot = on")
    reading = asyncio.create_task(env.query("a", read))
    done, _ = await asyncio.wait([reading], timeout=0.05)
    assert not done  # it waits
    gate.set()
    assert await reading == READS[read]
    await env.ran("a", "SET wait_for_snapshot = off")
    assert await env.query("a", "SELECT n FROM v") == "1\n2\nSELECT 2"


async def test_a_wait_ends_by_the_statement_timeout_and_with_the_source(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gated(own_env, tmp_path, monkeypatch)
    await own_env.ran("a", "SET wait_for_snapshot = on", "SET statement_timeout = '50ms'")
    assert "57014" in await own_env.query("a", "SELECT n FROM s")
    await own_env.ran("a", "RESET statement_timeout")
    reading = asyncio.create_task(own_env.query("a", "SELECT n FROM v", alone=False))
    await asyncio.sleep(0)
    await own_env.ran("b", "DROP SOURCE s CASCADE")
    assert "42P01" in await reading


async def test_a_transaction_that_has_its_time_gets_the_notice(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gated(own_env, tmp_path, monkeypatch)
    await own_env.ran("a", "SET wait_for_snapshot = on", "BEGIN", "SELECT * FROM t")
    assert NOTICE in await own_env.query("a", "SELECT n FROM s")


async def test_who_may_not_read_a_source_learns_nothing_of_it(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gated(own_env, tmp_path, monkeypatch)
    await own_env.ran("a", "CREATE ROLE nobody", "SET ROLE nobody", "SET wait_for_snapshot = on")
    answer = await own_env.query("a", "SELECT n FROM v")
    assert answer.startswith("ERROR 42501")
    assert NOTICE not in answer


async def test_a_read_of_a_view_that_is_filled_for_long_gets_a_notice(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamp, "FILLING_SECONDS", 0.02)
    await env.ran(
        "f",
        "CREATE CLUSTER IF NOT EXISTS nobody_fills (SIZE 'embedded', REPLICATION FACTOR 0)",
        "CREATE TABLE slow_rows (n int)",
        "CREATE MATERIALIZED VIEW slow IN CLUSTER nobody_fills AS TABLE slow_rows",
    )
    session = await env.session("f")
    told = asyncio.Event()
    session.news.when_noticed(told.set)
    reading = asyncio.create_task(env.query("f", "SELECT * FROM slow"))
    await told.wait()
    session.interrupts.request(QueryCanceled())
    notice = 'NOTICE: waiting for materialized view "slow", which is being filled'
    assert notice in await reading
    await asyncio.sleep(0.05)  # a statement that is over tells no other
    assert "NOTICE" not in await env.query("f", "SELECT 1")
