"""Statements that change rows know the system columns that SELECT knows; others are refused alike."""

import pytest

from tests.adapter.harness import TestEnvironment

OID = "(SELECT oid FROM pg_class WHERE relname = 't')"
CHANGES = {
    "INSERT": "INSERT INTO t VALUES (2, 2) RETURNING {}",
    "INSERT ... ON CONFLICT": (
        "INSERT INTO t VALUES (1, 3) ON CONFLICT (a) DO UPDATE SET b = 3 RETURNING {}"
    ),
    "UPDATE": "UPDATE t SET b = 4 WHERE a = 1 RETURNING {}",
    "UPDATE ... FROM": "UPDATE t SET b = 4 FROM u WHERE t.a = u.c RETURNING t.{}",
    "DELETE": "DELETE FROM t WHERE a = 1 RETURNING {}",
    "DELETE ... USING": "DELETE FROM t USING u WHERE t.a = u.c RETURNING t.{}",
    "MERGE": "MERGE INTO t USING u ON a = c WHEN MATCHED THEN DELETE RETURNING t.{}",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_returning_knows_the_system_columns_of_select(
    own_env: TestEnvironment, change: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (a int PRIMARY KEY, b int)", "CREATE TABLE u (c int)")
    await env.ran("a", "INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1)")
    oid = (await env.ran("a", f"SELECT {OID}")).splitlines()[0]
    for column in ("xmin", "ctid"):
        selected = await env.query("a", f"SELECT {column} FROM t")
        assert await env.query("a", CHANGES[change].format(column)) == selected
    returned = await env.ran("a", CHANGES[change].format("tableoid"))
    assert returned.splitlines()[0] == oid


async def test_where_of_changes_knows_tableoid(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
    assert await env.query("a", "UPDATE t SET a = 2 WHERE tableoid = 't'::regclass") == "UPDATE 1"
    assert await env.query("a", "DELETE FROM t WHERE t.tableoid = 1") == "DELETE 0"
