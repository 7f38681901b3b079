"""max_query_memory: what needs more fails with 53200, and nobody else notices.

Nor does anybody notice rows of constants, however many there are.
"""

import asyncio
import threading

import pytest

from foreshore import blocking, query_memory
from foreshore.adapter.client import Startup
from foreshore.adapter.environment import THREADS
from foreshore.query_memory import QUERY_MEMORY
from tests.adapter.harness import TestEnvironment

# Rows of a kilobyte.
TEXTS = "SELECT i, repeat(md5(i::text), 32) AS x FROM generate_series(1, {}) AS i"


async def small(env: TestEnvironment, limit: str) -> None:
    """Make a table of some 2 MB, and session "small" of a role with this limit."""
    await env.ran(
        "admin",
        "CREATE ROLE small LOGIN",
        f"CREATE TABLE t AS {TEXTS.format(2_000)}",
        "GRANT SELECT, INSERT ON t TO small",
        f"ALTER ROLE small SET max_query_memory = '{limit}'",
    )
    env.sessions["small"] = await env.environment.connect(Startup("small", "foreshore", {}))


async def test_query_beyond_the_memory_of_its_role_fails(own_env: TestEnvironment) -> None:
    env = own_env
    await small(env, "30MB")
    pairs = "FROM t AS a CROSS JOIN t AS b WHERE a.i <= 20"
    for sql in (
        "SELECT length(string_agg(repeat(x, 50), '')) FROM t",  # kernels, and DuckDB
        f"SELECT length(string_agg(a.x || b.x, ',')) {pairs}",
        f"SELECT a.i, b.x {pairs} ORDER BY b.x, a.i",  # rows that are collected
        "SELECT length(repeat('x', 100000000))",  # a constant
        f"{TEXTS.format(40_000)} ORDER BY x",
        "WITH RECURSIVE r(n, x) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, x || x FROM r"
        " WHERE n < 27) SELECT max(length(x)) FROM r",
    ):
        answer = await env.query("small", sql)
        assert answer.startswith("ERROR 53200: out of memory"), (sql, answer[:300])
        assert "2000" in await env.query("admin", "SELECT count(*) FROM t")
    streamed = await env.query("small", TEXTS.format(40_000))
    assert streamed.endswith("SELECT 40000")
    assert "2000" in await env.query("small", "SELECT count(DISTINCT x) FROM t")
    assert "\n1\n" in "\n" + await env.query("small", "SELECT count(*) FROM t WHERE i = 7")
    assert "ERROR 42501" in await env.query("small", "SET max_query_memory = 0")


async def test_changes_beyond_the_memory_of_their_role_are_not_made(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await small(env, "30MB")
    refused = "ERROR 53200: out of memory"
    assert refused in await env.query("small", f"INSERT INTO t {TEXTS.format(40_000)}")
    await env.ran("small", "BEGIN")
    answers = [await env.query("small", f"INSERT INTO t {TEXTS.format(6_000)}") for _ in range(6)]
    assert answers[0].startswith("INSERT 0 6000")
    assert any(refused in each for each in answers)
    await env.ran("small", "ROLLBACK")
    assert await env.query("admin", "SELECT count(*) FROM t") == "2000\nSELECT 1"
    assert (await env.query("small", "INSERT INTO t VALUES (1, 'x')")).startswith("INSERT 0 1")


async def test_subscription_beyond_the_memory_of_its_role_ends(own_env: TestEnvironment) -> None:
    env = own_env
    await small(env, "1MB")
    await env.ran(
        "admin",
        "CREATE TABLE many AS SELECT generate_series(1, 50000) AS n",
        "GRANT SELECT ON many TO small",
    )
    groups = "SUBSCRIBE (SELECT n, count(*) FROM many GROUP BY n)"
    await env.ran("small", "BEGIN", f"DECLARE c CURSOR FOR {groups}")
    answer = await env.query("small", "FETCH 1 c WITH (TIMEOUT = '60s')")
    assert answer.startswith("ERROR 53200: out of memory"), answer
    await env.ran("small", "ROLLBACK")
    await env.ran("admin", "BEGIN", f"DECLARE c CURSOR FOR {groups}")
    assert "FETCH 1" in await env.query("admin", "FETCH 1 c WITH (TIMEOUT = '60s')")


ENDLESS = (
    "SELECT g FROM generate_series(1, 1000000000000) g ORDER BY g DESC LIMIT 1",
    "SELECT g, repeat('x', 1000) FROM generate_series(1, 1000000000000) g ORDER BY 2, 1",
    "INSERT INTO t SELECT g FROM generate_series(1, 1000000000000) g WHERE g < 0",
    "CREATE TABLE u AS SELECT g FROM generate_series(1, 1000000000000) g WHERE g % 2 = 3",
)


@pytest.mark.parametrize("sql", ENDLESS)
async def test_endless_constants_end_when_they_are_cancelled(
    own_env: TestEnvironment, sql: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (i bigint)", "SET statement_timeout = '100ms'")
    assert "57014" in await env.query("a", sql)
    executor = env.environment.coordinator.executor
    all_threads = threading.Barrier(THREADS, timeout=60)
    await asyncio.gather(*(blocking.run(executor, all_threads.wait) for _ in range(THREADS)))


async def test_rows_that_are_written_need_no_room_at_once(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_memory._Default, "is_share", True)
    limit = QUERY_MEMORY.limit
    rows = "SELECT g, lpad(g::text, 1000) AS x FROM generate_series(1, 20000) g"
    try:
        QUERY_MEMORY.configure(8 << 20)
        assert await own_env.ran("a", f"CREATE TABLE t AS {rows}") == "SELECT 20000"
        assert await own_env.ran("a", f"INSERT INTO t {rows}") == "INSERT 0 20000"
    finally:
        QUERY_MEMORY.configure(limit)
