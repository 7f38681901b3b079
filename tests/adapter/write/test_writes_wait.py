"""Writes that wait for a table lock can be ended and block nobody else."""

import asyncio

import pytest

from foreshore.adapter.client import Rows
from foreshore.errors import AdminShutdown, DatabaseError, QueryCanceled
from tests.adapter.harness import Gate, TestEnvironment, until


async def waiting(env: TestEnvironment, count: int = 1) -> None:
    """Wait until so many wait for a lock."""
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == count)


@pytest.mark.parametrize("in_block", [False, True])
async def test_waiting_write_can_be_cancelled(own_env: TestEnvironment, in_block: bool) -> None:
    await own_env.query("s", "CREATE TABLE t (a int)")
    session = await own_env.session("w")
    if in_block:
        await own_env.query("w", "BEGIN; INSERT INTO t VALUES (1)")
    await own_env.query("s", "BEGIN; TRUNCATE t")
    write = asyncio.create_task(
        own_env.query("w", "COMMIT" if in_block else "INSERT INTO t VALUES (1)", alone=False)
    )
    await waiting(own_env)
    session.interrupts.request(QueryCanceled())
    assert await write == "ERROR 57014: canceling statement due to user request"
    await own_env.query("w", "SET statement_timeout = '1ms'")
    said = await own_env.query("w", "INSERT INTO t VALUES (1)", alone=False)
    assert said == "ERROR 57014: canceling statement due to statement timeout"
    await own_env.query("w", "SET statement_timeout = 0; SET lock_timeout = '1ms'")
    said = await own_env.query("w", "INSERT INTO t VALUES (1)", alone=False)
    assert said == "ERROR 55P03: canceling statement due to lock timeout"
    await own_env.query("w", "SET lock_timeout = 0")
    write = asyncio.create_task(own_env.query("w", "INSERT INTO t VALUES (1)", alone=False))
    await waiting(own_env)
    ended: list[DatabaseError] = []
    session.interrupts.when_terminated(ended.append)
    session.interrupts.terminate(AdminShutdown())
    assert ended  # at once: nothing is on its way to the disk
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    await session.fail()
    assert await own_env.query("s", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT * FROM t") == "SELECT 0"
    assert await own_env.query("w", "INSERT INTO t VALUES (2)") == "INSERT 0 1"


async def test_writes_waiting_for_each_other_are_a_deadlock(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (a int); CREATE TABLE u (a int PRIMARY KEY, b int)")
    await own_env.query("s", "INSERT INTO u VALUES (1, 1)")
    begun = "BEGIN; UPDATE u SET b = 2 WHERE a = 1; INSERT INTO t VALUES (1)"
    await own_env.query("w", begun)
    await own_env.query("s", "BEGIN; TRUNCATE t")
    update = asyncio.create_task(own_env.query("s", "UPDATE u SET b = 3 WHERE a = 1", alone=False))
    await waiting(own_env)
    async with asyncio.timeout(30):
        said = await own_env.query("w", "COMMIT", alone=False)
        assert said == "ERROR 40P01: deadlock detected"
        assert await update == "UPDATE 1\nT"
    assert await own_env.query("s", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT * FROM u") == "1|3\nSELECT 1"


async def test_committing_write_precedes_table_lock(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.query("s", "CREATE TABLE t (a int)")
    gate = Gate(monkeypatch, own_env.storage, "begin_append")
    first = asyncio.create_task(own_env.query("v", "INSERT INTO t VALUES (1)", alone=False))
    await gate.reached.wait()
    group = own_env.environment.coordinator.group
    second = asyncio.create_task(own_env.query("w", "INSERT INTO t VALUES (2)", alone=False))
    await until(lambda: len(group._pending) == 1)
    taking = asyncio.create_task(own_env.query("s", "BEGIN; TRUNCATE t", alone=False))
    await until(lambda: bool(own_env.environment.coordinator.locks.tables))
    gate.open()
    async with asyncio.timeout(30):
        assert await first == await second == "INSERT 0 1"
        assert await taking == "BEGIN\nTRUNCATE TABLE\nT"
    assert await own_env.query("s", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT * FROM t") == "SELECT 0"


async def test_write_also_waits_for_table_locked_meanwhile(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (a int); CREATE TABLE u (a int)")
    await own_env.query("w", "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    await own_env.query("s", "BEGIN; LOCK TABLE u")
    write = asyncio.create_task(own_env.query("w", "COMMIT", alone=False))
    await waiting(own_env)
    await own_env.query("o", "BEGIN; LOCK TABLE t", alone=False)
    await own_env.query("s", "COMMIT", alone=False)
    await waiting(own_env)
    async with asyncio.timeout(30):
        said = await own_env.query("o", "LOCK TABLE u", alone=False)
        assert said == "ERROR 40P01: deadlock detected\nE"
        assert await write == "COMMIT"
    assert await own_env.query("o", "ROLLBACK") == "ROLLBACK"
    assert await own_env.query("s", "SELECT * FROM t, u") == "1|1\nSELECT 1"


async def test_cancel_during_commit_is_too_late(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.query("s", "CREATE TABLE t (a int)")
    gate = Gate(monkeypatch, own_env.storage, "begin_append")
    insert = "INSERT INTO t SELECT i FROM generate_series(1, 20000) AS g(i) RETURNING a"
    session = await own_env.session("s")
    counts: list[int] = []

    async def client() -> None:
        async for execution in session.simple(insert):
            assert isinstance(execution, Rows)
            async for batch in execution.batches:
                counts.append(batch.num_rows)
                session.interrupts.request(QueryCanceled())

    write = asyncio.create_task(client())
    await gate.reached.wait()
    session.interrupts.request(QueryCanceled())
    gate.open()
    async with asyncio.timeout(30):
        await write
    assert sum(counts) == 20_000
    assert len(counts) > 1
    assert await own_env.query("s", "SELECT count(*) FROM t") == "20000\nSELECT 1"
