"""Limits of queries: the size and rows of results, what is read, and the time of a statement."""

from pathlib import Path

import pytest

from foreshore.adapter.client import Rows, Startup
from foreshore.errors import InsufficientPrivilege
from foreshore.memory import resident_bytes
from foreshore.result_limits import ResultTooLarge
from tests.adapter.harness import TestEnvironment, in_environment

ROWS = "SELECT repeat('x', 1000) FROM generate_series(1, {count})"

DISTINCT = "SELECT repeat('x', 1000) || i FROM generate_series(1, {count}) AS i"


def test_result_beyond_its_limit_is_an_error(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "SET max_query_result_size = '100kB'")
        assert await env.query("s", "SHOW max_query_result_size") == "100kB\nSHOW"
        for count in (200, 20_000):
            refused = await env.query("s", ROWS.format(count=count))
            assert "ERROR 53200: result exceeds max size of 100 kB" in refused
        assert "ERROR" not in await env.query("s", ROWS.format(count=50))
        assert "ERROR" in await env.query("s", "SELECT repeat('x', 200000)")
        await env.ran("s", f"CREATE TABLE t AS {ROWS.format(count=200)}")
        assert await env.query("s", "SELECT count(*) FROM t") == "200\nSELECT 1"
        await env.ran("s", "SET max_query_result_size = 0", ROWS.format(count=2_000))
        wrong = await env.query("s", "SET max_query_result_size = 'much'")
        assert wrong.startswith("ERROR 22023: invalid value for parameter")

    in_environment(tmp_path, scenario)


async def test_copy_and_subscribe_have_the_limit_too(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", "CREATE TABLE t (x text)", "SET max_query_result_size = '100kB'")
    refused = "ERROR 53200: result exceeds max size of 100 kB"
    assert refused in await env.query("s", f"COPY ({ROWS.format(count=200)}) TO STDOUT")
    await env.ran("s", "BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE t")
    for _ in range(4):  # each at its own time
        await env.ran("writer", f"INSERT INTO t {DISTINCT.format(count=60)}")
        await env.ran("s", "FETCH 60 c WITH (TIMEOUT = '30s')")
    await env.ran("writer", f"INSERT INTO t {DISTINCT.format(count=200)}")
    assert refused in await env.query("s", "FETCH 200 c WITH (TIMEOUT = '30s')")
    await env.query("s", "ROLLBACK")
    assert refused in await env.query("s", "SUBSCRIBE t")  # its contents


async def test_limits_of_a_role_are_not_exceeded_by_its_sessions(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE small LOGIN",
        "CREATE TABLE t (k int PRIMARY KEY, x text)",
        "INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 20000) AS i",
        "GRANT SELECT ON t TO small",
        "ALTER ROLE small SET max_result_size = '100kB'",
        "ALTER SYSTEM SET max_result_rows = 300",
        "ALTER DATABASE foreshore SET max_statement_time = '1s'",
        "ALTER ROLE small SET max_scan_size = '1kB'",
    )
    env.sessions["small"] = await env.environment.connect(Startup("small", "foreshore", {}))
    for name in ("max_result_size", "max_result_rows", "max_statement_time", "max_scan_size"):
        for sql in (
            f"SET {name} = 0",
            f"RESET {name}",
            f"SET LOCAL {name} = 0",
            f"SELECT set_config('{name}', '0', false)",
            f"ALTER ROLE small SET {name} = 0",
            f"ALTER ROLE small RESET {name}",
        ):
            assert "ERROR 42501" in await env.query("small", sql), sql
        with pytest.raises(InsufficientPrivilege):
            await env.environment.connect(Startup("small", "foreshore", {name: "0"}))
    own = ("max_query_result_size", "statement_timeout")
    await env.ran("small", *(f"SET {name} = 0" for name in own), "RESET ALL", "DISCARD ALL")
    assert "max size of 100 kB" in await env.query("small", ROWS.format(count=200))
    rows = "SELECT i FROM generate_series(1, {}) AS i"
    assert (await env.query("small", rows.format(300))).endswith("SELECT 300")
    assert "ERROR 53200: result exceeds max 300 rows" in await env.query("small", rows.format(301))
    prepared = await env.sessions["small"].extended.parse("", rows.format(301), ())
    assert prepared is not None
    assert "ERROR 57014" in await env.query("small", "SELECT pg_sleep(60)")
    assert "ERROR 53400: query would read about" in await env.query("small", "TABLE t")
    assert "ERROR 53400" in await env.query("small", "SELECT count(*) FROM t WHERE x > 'a'")
    assert "ERROR 53400" in await env.query("small", "COPY t TO STDOUT")
    assert "ERROR" not in await env.query("small", "SELECT x FROM t WHERE k = 7")
    assert "ERROR" not in await env.query("admin", "SELECT count(*) FROM t")


async def test_a_change_that_returns_too_much_is_not_made(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", "CREATE TABLE t (k int, x text)", "SET max_result_rows = 3")
    await env.ran("s", "SET max_result_size = '10kB'")
    many = "INSERT INTO t SELECT i, 'x' FROM generate_series(1, {}) AS i RETURNING k"
    values = "INSERT INTO t VALUES (1), (2), (3), (4) RETURNING k"
    large = "INSERT INTO t VALUES (1, repeat('x', 20000)) RETURNING x"
    for sql in (many.format(4), values, large, f"COPY ({values}) TO STDOUT"):
        assert "ERROR 53200: result exceeds" in await env.query("s", sql), sql
    assert await env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"
    assert (await env.query("s", many.format(3))).endswith("INSERT 0 3")
    counted = f"WITH d AS ({many.format(9)}) SELECT count(*) FROM d"
    assert await env.query("s", counted) == "9\nSELECT 1"


async def test_portal_that_suspends_counts_all_its_rows(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", "SET max_result_rows = 25")
    session = env.sessions["s"]
    await session.extended.parse("", "SELECT i FROM generate_series(1, 100) AS i", ())
    await session.extended.bind("", "", (), ())
    taken = []

    async def ten() -> None:
        execution = await session.extended.execute("", 10)
        assert isinstance(execution, Rows)
        async for batch in execution.batches:
            taken.append(batch.num_rows)

    await ten()
    await ten()
    with pytest.raises(ResultTooLarge):
        await ten()
    assert sum(taken) == 20


async def test_large_result_that_is_read_slowly_takes_no_memory(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", "SELECT 1")
    session, before = env.sessions["s"], resident_bytes()
    await session.extended.parse(
        "", "SELECT i, repeat('z', 1000) FROM generate_series(1, 150000) AS i", ()
    )
    await session.extended.bind("", "", (), ())
    execution = await session.extended.execute("", 10)
    assert isinstance(execution, Rows)
    assert sum([batch.num_rows async for batch in execution.batches]) == 10
    assert resident_bytes() - before < 100 << 20  # of 150 MB, on their way to the client
