"""max_query_memory: what needs more fails with 53200, and nobody else notices."""

from foreshore.adapter.client import Startup
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
