"""A query waits for one collection while another that it reads is dropped."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, until


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("ALTER TABLE t ADD COLUMN b int DEFAULT 7", "1|7|1\nSELECT 1"),
        ("DROP TABLE t", 'ERROR 42P01: relation "t" does not exist'),
    ],
)
async def test_query_waiting_while_table_is_dropped_fails(
    tmp_path: Path, ddl: str, expected: str
) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        await env.query("s", "CREATE TABLE t (a int)")
        await env.query("s", "CREATE TABLE other (a int)")
        await env.query("s", "INSERT INTO t VALUES (1)")
        await env.query("s", "INSERT INTO other VALUES (1)")
        await env.query("s", "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query(
            "s", "CREATE MATERIALIZED VIEW m IN CLUSTER c AS SELECT count(*) AS n FROM other"
        )
        asked = asyncio.ensure_future(env.query("reader", "SELECT * FROM t, m"))
        uppers = env.environment.coordinator.compute._uppers
        await until(lambda: bool(uppers.waited_for()))
        await env.query("s", ddl)
        await env.query("s", "CREATE CLUSTER REPLICA c.r1 (SIZE 'embedded')")
        async with asyncio.timeout(30):
            assert await asked == expected
    finally:
        await env.close()
