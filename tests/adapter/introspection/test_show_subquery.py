"""SHOW as a subquery."""

from foreshore.adapter.client import Rows
from foreshore.server.codec import RowEncoder
from tests.adapter.harness import TestEnvironment


async def test_show_in_from_is_a_query(env: TestEnvironment) -> None:
    await env.ran(
        "s", "CREATE TABLE t1 (a int)", "CREATE TABLE t2 (a int)", "CREATE VIEW v AS SELECT 1"
    )
    counted = "SELECT count(*) FROM (SHOW TABLES) AS t WHERE name LIKE 't_'"
    assert await env.query("s", counted) == "2\nSELECT 1"
    joined = "SELECT t.name FROM (SHOW TABLES LIKE 't1') t JOIN (SHOW VIEWS) AS v ON v.name = 'v'"
    assert await env.query("s", joined) == "t1\nSELECT 1"
    assert await env.query("s", "SELECT * FROM (SHOW search_path)") == "public\nSELECT 1"


async def test_relation_named_show_is_no_statement(env: TestEnvironment) -> None:
    await env.ran("s", "CREATE TABLE show (a int)", "INSERT INTO show VALUES (7)")
    assert (
        await env.query("s", "SELECT * FROM (show CROSS JOIN (VALUES (1)) AS x)") == "7|1\nSELECT 1"
    )


async def test_show_columns_describes_the_columns_that_it_returns(env: TestEnvironment) -> None:
    await env.ran("s", "CREATE TABLE t (a int NOT NULL, b text)")
    session = await env.session("s")
    async for execution in session.simple("SHOW COLUMNS FROM t"):
        assert isinstance(execution, Rows)
        desc = execution.desc
        assert desc.names == ("name", "nullable", "type")
        assert RowEncoder(desc, (0, 0, 0)).description.startswith(b"T")
    shown = "a|f|integer\nb|t|text\nSELECT 2"
    assert await env.query("s", "SELECT * FROM (SHOW COLUMNS FROM t)") == shown
