"""A system column needs the right on its table, as in PostgreSQL: rights on columns do not suffice."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

ALLOWED = [
    "SELECT a FROM t",
    "SELECT count(*) FROM t",
    "SELECT 1 FROM t",
    "SELECT u.tableoid, t.a FROM u, t",
    "SELECT tableoid FROM u",
    "SELECT tableoid FROM pg_class LIMIT 0",
]
REFUSED = [
    "SELECT tableoid FROM t",
    "SELECT t.tableoid FROM u, t",
    "SELECT t.tableoid FROM u JOIN t USING (a)",
    "SELECT (SELECT t.tableoid FROM u LIMIT 1) FROM t",
    "SELECT a FROM t WHERE tableoid = 1",
    "SELECT x.tableoid FROM t x",
    "SELECT a FROM t ORDER BY tableoid",
    "SELECT count(*) FROM t GROUP BY tableoid",
    "SELECT max(tableoid) FROM t",
    "SELECT t FROM t",
    "SELECT row_to_json(t) FROM t",
    "INSERT INTO t VALUES (2) RETURNING t",
    "TABLE t",
]


def test_system_column_needs_the_right_on_its_table(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int PRIMARY KEY, b int)",
            "CREATE TABLE u (a int)",
            "CREATE ROLE low",
            "GRANT SELECT (a), INSERT, UPDATE, DELETE ON t TO low",
            "GRANT SELECT ON u TO low",
            "SET ROLE low",
        )
        for statement in ALLOWED:
            assert "ERROR" not in await env.query("a", statement), statement
        for statement in REFUSED:
            answer = await env.query("a", statement)
            assert answer == "ERROR 42501: permission denied for table t", statement

    in_environment(tmp_path, go)
