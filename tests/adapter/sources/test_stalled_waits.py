"""Statements that wait for a source or sink that stalls: it is tried at once, and they say why."""

import asyncio
from pathlib import Path

import pytest

from foreshore.errors import DatabaseError
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.storage.external import retries
from foreshore.storage.ingest.connector import Position
from foreshore.storage.ingest.postgres.connector import PostgresConnector
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.replicated import SOURCE, STATUS, Upstream, equal, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream

LONG = 3600.0  # a pause that no test waits for


async def until_told(env: TestEnvironment, told: str) -> None:
    """Wait until the session that waits was sent a notice."""
    session = await env.session("w")
    async with asyncio.timeout(60):
        while not any(told in each.message for each in session.news.notice.waiting):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_recent_read_has_stalled_source_tried_and_tells_why(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", LONG)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", LONG)
    await env.ran("a", "ALTER CONNECTION pg SET (DATABASE = 'absent')")
    await until(env, f"SELECT status FROM ({STATUS}) AS s", "stalled")
    upstream.execute("INSERT INTO up.b VALUES (91, 1)")
    await env.ran("w", "SET real_time_recency = on", "SET real_time_recency_timeout = '60s'")
    reading = asyncio.create_task(env.query("w", "SELECT max(id) FROM b", alone=False))
    await until_told(env, 'source "s" is stalled: could not connect')
    upstream.execute("CREATE DATABASE absent")
    try:
        await until(env, f"SELECT error LIKE '%publication%' FROM ({STATUS}) AS s", "t")
        assert not reading.done()
        await env.ran("a", "ALTER CONNECTION pg SET (DATABASE = 'postgres')")
        found = await reading
    finally:
        upstream.execute("DROP DATABASE absent WITH (FORCE)")
    assert found.startswith("91\n"), found
    assert found.count("is stalled") == 1, found


async def test_source_that_is_run_anew_while_it_is_asked_is_asked_again(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    furthest, asked = PostgresConnector.furthest, asyncio.Event()

    async def silent_once(self: PostgresConnector) -> Position:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return await furthest(self)

    monkeypatch.setattr(PostgresConnector, "furthest", silent_once)
    upstream.execute("INSERT INTO up.b VALUES (91, 1)")
    await env.ran("w", "SET real_time_recency = on", "SET real_time_recency_timeout = 0")
    reading = asyncio.create_task(env.query("w", "SELECT max(id) FROM b", alone=False))
    await asked.wait()
    await env.ran("a", "ALTER CONNECTION pg SET (SSL MODE = 'disable')")
    async with asyncio.timeout(20):
        assert (await reading).startswith("91\n")


async def test_stalled_source_is_waited_for_until_the_timeout(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    await env.ran("a", "ALTER CONNECTION pg SET (DATABASE = 'absent')")
    await until(env, f"SELECT status FROM ({STATUS}) AS s", "stalled")
    await env.ran("a", "SET real_time_recency = on", "SET real_time_recency_timeout = '300ms'")
    said = await env.query("a", "SELECT max(id) FROM b")
    assert "ERROR 57014" in said, said
    assert 'NOTICE: source "s" is stalled: could not connect' in said, said


async def test_wait_for_sinks_has_stalled_sink_tried_and_tells_why(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", LONG)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", LONG)
    resume, tries = DeltaExporter.resume, 0

    async def failing(self: DeltaExporter) -> Timestamp | None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise OSError(f"the target is away ({tries})")
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", failing)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    await until(env, "SELECT status FROM mz_internal.mz_sink_statuses", "stalled")
    said = await env.ran("a", "WAIT FOR SINKS s")
    assert said == 'WAIT\nNOTICE: sink "s" is stalled: the target is away (1)'
    assert tries == 3


async def test_wait_for_sinks_has_failure_of_the_server_tried_at_once(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", LONG)
    exports = env.environment.coordinator.exports
    known_through, tries = exports.known_through, 0

    async def failing(sink: object, frontier: Timestamp) -> Timestamp:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise DatabaseError("its input is not readable")
        return await known_through(sink, frontier)  # type: ignore[arg-type]

    monkeypatch.setattr(exports, "known_through", failing)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND")
    await until(env, "SELECT status FROM mz_internal.mz_sink_statuses", "stalled")
    said = await env.ran("a", "WAIT FOR SINKS s")
    assert "its input is not readable" in said
