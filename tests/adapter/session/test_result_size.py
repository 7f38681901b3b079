"""max_query_result_size: how large the result of a query may be."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

ROWS = "SELECT repeat('x', 1000) FROM generate_series(1, {count})"


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
