"""What statements need, and the check of it: tables, columns, views, cached plans."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment
from tests.adapter.rights.house import grant, revoke, role, session_as

DENIED = "ERROR 42501: permission denied for table t"


async def _tables(env: TestEnvironment) -> None:
    await env.ran(
        "admin",
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text)",
        "CREATE TABLE u (id int)",
        "INSERT INTO t VALUES (1, 10, 'x')",
    )
    role(env, "reader")
    await session_as(env, "reader")


def test_select_without_rights_is_refused_until_they_are_granted(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        for sql in ("SELECT * FROM t", "SELECT a FROM t WHERE id = 1", "SELECT count(*) FROM t"):
            assert await env.query("reader", sql) == DENIED, sql
        grant(env, "reader", "SELECT", "t")
        assert await env.query("reader", "SELECT a FROM t WHERE id = 1") == "10\nSELECT 1"
        revoke(env, "reader", "t")
        assert await env.query("reader", "SELECT a FROM t WHERE id = 1") == DENIED

    in_environment(tmp_path, scenario)
