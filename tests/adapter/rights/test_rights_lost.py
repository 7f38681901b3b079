"""Statements that go on while a role loses rights: SUBSCRIBE ends, a cursor gives its rows."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment, until

DENIED = "ERROR 42501: permission denied for "


async def _running(env: TestEnvironment, reader: str, sql: str) -> asyncio.Task[str]:
    """Return a statement that is waiting for rows, and has sent those that there are."""
    before = len(env.environment.coordinator.changelogs._subscribers)
    task = asyncio.create_task(env.query(reader, sql))
    await until(lambda: len(env.environment.coordinator.changelogs._subscribers) > before)
    return task


@pytest.mark.parametrize("subject", ["t", "v", "m", "(SELECT a, count(*) FROM t GROUP BY a)"])
async def test_subscribe_ends_when_its_role_loses_a_right(
    own_env: TestEnvironment, subject: str
) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE reader",
        "CREATE ROLE grp",
        "CREATE TABLE t (a int, b int)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
        "GRANT grp TO reader",
    )
    await env.ran("reader", "SET SESSION AUTHORIZATION reader")
    relation = "t" if "t" in subject else subject
    for give, take, message in (
        (f"GRANT SELECT ON {relation} TO reader", f"REVOKE SELECT ON {relation} FROM reader", None),
        (f"GRANT SELECT ON {relation} TO grp", "REVOKE grp FROM reader", None),
        ("ALTER ROLE reader SUPERUSER", "ALTER ROLE reader NOSUPERUSER", None),
        (
            f"GRANT SELECT ON {relation} TO reader",
            "REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC",
            "cluster quickstart",
        ),
    ):
        await env.ran("admin", give)
        task = await _running(env, "reader", f"SUBSCRIBE {subject}")
        await env.ran("admin", "CREATE ROLE other", "GRANT SELECT ON t TO other")
        await env.ran("admin", "DROP OWNED BY other", "DROP ROLE other")
        await env.ran("admin", "INSERT INTO t VALUES (1, 1)")
        assert not task.done()
        await env.ran("admin", take, "INSERT INTO t VALUES (4471, 1)")
        async with asyncio.timeout(10):
            answer = await task
        assert answer.splitlines()[-1].startswith(DENIED + (message or "")), (take, answer)
        assert "4471" not in answer, take
        await env.ran("admin", "DELETE FROM t", "GRANT grp TO reader")
        await env.ran("admin", f"REVOKE SELECT ON {relation} FROM grp")


async def test_cursor_over_subscribe_ends_and_one_over_a_query_has_its_rows(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE reader",
        "CREATE TABLE t (a int, b int)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "GRANT SELECT (a) ON t TO reader",
    )
    await env.ran("reader", "SET SESSION AUTHORIZATION reader")
    await env.ran(
        "reader",
        "BEGIN",
        "DECLARE s CURSOR FOR SUBSCRIBE (SELECT a FROM t)",
        "DECLARE q CURSOR FOR SELECT a FROM t ORDER BY a",
        "FETCH 1 q",
        "FETCH 1 s WITH (TIMEOUT = '30s')",
    )
    await env.ran("admin", "REVOKE SELECT (a) ON t FROM reader")
    assert await env.query("reader", "FETCH q") == "2\nFETCH 1\nT"
    answer = await env.query("reader", "FETCH ALL s WITH (TIMEOUT = '30s')")
    assert answer.startswith(DENIED + "table t"), answer
