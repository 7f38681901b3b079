"""nextval for a table's rows waits for locks on the table."""

import asyncio

import pyarrow as pa
import pytest

from foreshore.adapter.client import CopyIn
from tests.adapter.harness import TestEnvironment, until

pytestmark = pytest.mark.full  # sessions that wait for each other

SETUP = """CREATE TABLE t (k serial PRIMARY KEY, v int); CREATE TABLE u (v int);
    INSERT INTO u VALUES (7); INSERT INTO t (v) SELECT 1 FROM generate_series(1, 5)"""
MANY = "SELECT 7 FROM generate_series(1, 5000)"


async def waiting(env: TestEnvironment, count: int = 1) -> None:
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == count)


RESTART = "ALTER SEQUENCE t_k_seq RESTART"
INSERT = "INSERT INTO t (v) VALUES (7)"
MERGE = "MERGE INTO t USING u ON t.v = u.v WHEN NOT MATCHED THEN INSERT (v) VALUES (u.v)"


@pytest.mark.parametrize(
    ("write", "in_block", "restart"),
    [
        (INSERT, False, RESTART),
        (INSERT, True, RESTART),
        (INSERT, False, "SELECT setval('t_k_seq', 1, false)"),
        ("INSERT INTO t VALUES (nextval('t_k_seq'), 7)", False, RESTART),
        ("INSERT INTO t (v) SELECT v FROM u", False, RESTART),
        ("INSERT INTO t (v) SELECT v FROM u", True, RESTART),
        (f"{INSERT} ON CONFLICT (k) DO UPDATE SET v = excluded.v", False, RESTART),
        (MERGE, False, RESTART),
    ],
)
async def test_insert_takes_numbers_after_waiting_for_lock(
    own_env: TestEnvironment, write: str, in_block: bool, restart: str
) -> None:
    await own_env.query("s", SETUP)
    if in_block:
        await own_env.query("w", "BEGIN")
    await own_env.query("s", "BEGIN; LOCK TABLE t")
    writing = asyncio.create_task(own_env.query("w", write, alone=False))
    await waiting(own_env)
    await own_env.query("s", f"DELETE FROM t; {restart}; COMMIT", alone=False)
    assert "ERROR" not in await writing
    if in_block:
        assert await own_env.query("w", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT k FROM t") == "1\nSELECT 1"


async def test_copy_takes_numbers_after_waiting_for_lock(own_env: TestEnvironment) -> None:
    await own_env.query("s", SETUP)
    await own_env.query("s", "BEGIN; LOCK TABLE t")
    session = await own_env.session("w")
    batch = pa.RecordBatch.from_arrays([pa.array([7], pa.int32())], names=["c0"])

    async def copy() -> str:
        async for execution in session.simple("COPY t (v) FROM STDIN"):
            assert isinstance(execution, CopyIn), execution
            for _ in range(2):
                await execution.target.write(batch)
            return await execution.target.finish(last=True)
        raise AssertionError

    copying = asyncio.create_task(copy())
    await waiting(own_env)
    await own_env.query("s", "DELETE FROM t; ALTER SEQUENCE t_k_seq RESTART; COMMIT", alone=False)
    assert await copying == "COPY 2"
    assert await own_env.query("s", "SELECT k FROM t ORDER BY k") == "1\n2\nSELECT 2"


async def test_table_cannot_be_locked_between_nextval_and_commit(own_env: TestEnvironment) -> None:
    await own_env.query("s", SETUP)
    writing = asyncio.create_task(own_env.query("w", f"INSERT INTO t (v) {MANY}", alone=False))
    position = own_env.environment.coordinator.sequences._positions
    known = dict(position)
    await until(lambda: position != known)
    told = await own_env.query(
        "s",
        "BEGIN; LOCK TABLE t; DELETE FROM t; ALTER SEQUENCE t_k_seq RESTART; COMMIT",
        alone=False,
    )
    assert "DELETE 5005" in told
    assert await writing == "INSERT 0 5000"
    assert await own_env.query("s", "SELECT * FROM t") == "SELECT 0"


async def test_upsert_does_not_wait_for_locks_on_other_keys(own_env: TestEnvironment) -> None:
    rows = ", ".join(["(nextval('t_k_seq'), 7)"] * 1000)  # more than are made by tuples
    await own_env.query("s", SETUP)
    await own_env.query("s", "BEGIN; UPDATE t SET v = 2 WHERE k = 1")
    upsert = f"INSERT INTO t VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = excluded.v"
    await own_env.query("w", "SET statement_timeout = '30s'")
    assert await own_env.query("w", upsert) == "INSERT 0 1000"
    assert await own_env.query("s", "COMMIT") == "COMMIT"


@pytest.mark.parametrize(
    "rows",
    [
        "INSERT INTO t (v) SELECT 7 FROM generate_series(1, 3000)",
        "INSERT INTO t VALUES " + ", ".join(["(nextval('t_k_seq'), 7)"] * 3000),
    ],
)
@pytest.mark.parametrize("around", [("", "SELECT 1"), ("BEGIN", "COMMIT")])
async def test_concurrent_bulk_upserts_do_not_deadlock(
    own_env: TestEnvironment, rows: str, around: tuple[str, str]
) -> None:
    await own_env.query("s", SETUP)
    upsert = f"{rows} ON CONFLICT (k) DO UPDATE SET v = excluded.v"
    text = "; ".join(filter(None, (around[0], upsert, around[1])))
    for told in await asyncio.gather(*(own_env.query(name, text, alone=False) for name in "123")):
        assert "INSERT 0 3000" in told, told
    assert await own_env.query("s", "SELECT count(*) FROM t WHERE v = 7") == "9000\nSELECT 1"
