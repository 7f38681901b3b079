"""Writes that wait for who has all of their table: they can be ended, and hold up nobody else."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.client import Rows
from foreshore.errors import AdminShutdown, DatabaseError, QueryCanceled
from tests.adapter.harness import Gate, TestEnvironment, in_environment, until


async def waiting(env: TestEnvironment, count: int = 1) -> None:
    """Wait until so many wait for a lock."""
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == count)


@pytest.mark.parametrize("in_block", [False, True])
def test_a_write_that_waits_can_be_ended(tmp_path: Path, in_block: bool) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int)")
        session = await env.session("w")
        if in_block:
            await env.query("w", "BEGIN; INSERT INTO t VALUES (1)")
        await env.query("s", "BEGIN; TRUNCATE t")
        write = asyncio.create_task(
            env.query("w", "COMMIT" if in_block else "INSERT INTO t VALUES (1)", alone=False)
        )
        await waiting(env)
        session.interrupt(QueryCanceled())
        assert await write == "ERROR 57014: canceling statement due to user request"
        await env.query("w", "SET statement_timeout = '1ms'")
        said = await env.query("w", "INSERT INTO t VALUES (1)", alone=False)
        assert said == "ERROR 57014: canceling statement due to statement timeout"
        await env.query("w", "SET statement_timeout = 0; SET lock_timeout = '1ms'")
        said = await env.query("w", "INSERT INTO t VALUES (1)", alone=False)
        assert said == "ERROR 55P03: canceling statement due to lock timeout"
        await env.query("w", "SET lock_timeout = 0")
        write = asyncio.create_task(env.query("w", "INSERT INTO t VALUES (1)", alone=False))
        await waiting(env)
        ended: list[DatabaseError] = []
        session.when_terminated(ended.append)
        session.terminate(AdminShutdown())
        assert ended  # at once: nothing is on its way to the disk
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        await session.fail()
        assert await env.query("s", "COMMIT") == "COMMIT"
        assert await env.query("s", "SELECT * FROM t") == "SELECT 0"
        assert await env.query("w", "INSERT INTO t VALUES (2)") == "INSERT 0 1"

    in_environment(tmp_path, scenario)


def test_who_waits_for_one_another_hears_of_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int); CREATE TABLE u (a int PRIMARY KEY, b int)")
        await env.query("s", "INSERT INTO u VALUES (1, 1)")
        begun = "BEGIN; UPDATE u SET b = 2 WHERE a = 1; INSERT INTO t VALUES (1)"
        await env.query("w", begun)
        await env.query("s", "BEGIN; TRUNCATE t")
        update = asyncio.create_task(env.query("s", "UPDATE u SET b = 3 WHERE a = 1", alone=False))
        await waiting(env)
        async with asyncio.timeout(30):
            said = await env.query("w", "COMMIT", alone=False)
            assert said == "ERROR 40P01: deadlock detected"
            assert await update == "UPDATE 1\nT"
        assert await env.query("s", "COMMIT") == "COMMIT"
        assert await env.query("s", "SELECT * FROM u") == "1|3\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_a_write_that_is_about_to_be_committed_goes_before_who_takes_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int)")
        gate = Gate(monkeypatch, env.storage, "append")
        first = asyncio.create_task(env.query("v", "INSERT INTO t VALUES (1)", alone=False))
        await gate.reached.wait()
        group = env.environment.coordinator.group
        second = asyncio.create_task(env.query("w", "INSERT INTO t VALUES (2)", alone=False))
        await until(lambda: len(group._pending) == 1)
        taking = asyncio.create_task(env.query("s", "BEGIN; TRUNCATE t", alone=False))
        await until(lambda: bool(env.environment.coordinator.locks._tables))
        gate.open()
        async with asyncio.timeout(30):
            assert await first == await second == "INSERT 0 1"
            assert await taking == "BEGIN\nTRUNCATE TABLE\nT"
        assert await env.query("s", "COMMIT") == "COMMIT"
        assert await env.query("s", "SELECT * FROM t") == "SELECT 0"

    in_environment(tmp_path, scenario)


def test_a_table_that_is_taken_while_another_is_waited_for_is_waited_for_as_well(
    tmp_path: Path,
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int); CREATE TABLE u (a int)")
        await env.query("w", "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
        await env.query("s", "BEGIN; LOCK TABLE u")
        write = asyncio.create_task(env.query("w", "COMMIT", alone=False))
        await waiting(env)
        await env.query("o", "BEGIN; LOCK TABLE t", alone=False)
        await env.query("s", "COMMIT", alone=False)
        await waiting(env)
        async with asyncio.timeout(30):
            said = await env.query("o", "LOCK TABLE u", alone=False)
            assert said == "ERROR 40P01: deadlock detected\nE"
            assert await write == "COMMIT"
        assert await env.query("o", "ROLLBACK") == "ROLLBACK"
        assert await env.query("s", "SELECT * FROM t, u") == "1|1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_a_cancel_that_comes_while_it_is_committed_is_too_late_for_its_rows_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int)")
        gate = Gate(monkeypatch, env.storage, "append")
        insert = "INSERT INTO t SELECT i FROM generate_series(1, 20000) AS g(i) RETURNING a"
        session = await env.session("s")
        counts: list[int] = []

        async def client() -> None:
            async for execution in session.simple(insert):
                assert isinstance(execution, Rows)
                async for batch in execution.batches:
                    counts.append(batch.num_rows)
                    session.interrupt(QueryCanceled())

        write = asyncio.create_task(client())
        await gate.reached.wait()
        session.interrupt(QueryCanceled())
        gate.open()
        async with asyncio.timeout(30):
            await write
        assert sum(counts) == 20_000
        assert len(counts) > 1
        assert await env.query("s", "SELECT count(*) FROM t") == "20000\nSELECT 1"

    in_environment(tmp_path, scenario)
