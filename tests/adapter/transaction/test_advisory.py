"""Advisory locks, as far as it needs a look inside.

What PostgreSQL answers too is in tests/sqllogic/scripts/sessions_advisory_locks.slt.
"""

import asyncio

import pytest

from foreshore import session_variables
from foreshore.adapter.transaction import advisory_locks
from foreshore.errors import QueryCanceled
from tests.adapter.harness import TestEnvironment, until

NOT_OWNED = "WARNING: you don't own a lock of type ExclusiveLock"


async def free(env: TestEnvironment) -> None:
    """Let nobody have anything."""
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK; RESET lock_timeout; SELECT pg_advisory_unlock_all()")
    assert not list(env.environment.coordinator.advisory.rows())


async def one(env: TestEnvironment, session: str, call: str) -> str:
    """Return what a call gives to a session."""
    return (await env.ran(session, f"SELECT {call}")).splitlines()[0]


async def waiting(env: TestEnvironment, session: str, call: str) -> asyncio.Task[str]:
    """Make a call that has to wait."""
    before = len(env.environment.coordinator.advisory._waiting)
    task = asyncio.create_task(env.query(session, f"SELECT {call}", alone=False))
    await until(lambda: task.done() or len(env.environment.coordinator.advisory._waiting) > before)
    assert not task.done(), task.result()
    return task


async def test_unlock_of_lock_not_held_warns(env: TestEnvironment) -> None:
    await free(env)
    refused = await env.ran("a", "SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(7)")
    assert refused.splitlines() == [
        "f|f", "SELECT 1", NOT_OWNED, "WARNING: you don't own a lock of type ShareLock",
    ]  # fmt: skip
    await env.ran("a", "BEGIN; SELECT pg_advisory_xact_lock(1)")
    answer = await env.ran("a", "SELECT pg_advisory_unlock(1)")
    assert answer.splitlines() == ["f", "SELECT 1", NOT_OWNED, "T"]


async def test_ended_session_releases_advisory_locks(env: TestEnvironment) -> None:
    await free(env)
    await env.ran("gone", "SELECT pg_advisory_lock(1)")
    waits = await waiting(env, "b", "pg_advisory_lock(1)")
    await env.sessions.pop("gone").close()
    assert await waits == "\nSELECT 1"
    await env.ran("b", "DISCARD ALL")
    assert await one(env, "a", "pg_try_advisory_lock(1)") == "t"


async def test_advisory_lock_wait_ends_with_timeout_or_deadlock(env: TestEnvironment) -> None:
    await free(env)
    await env.ran("a", "SELECT pg_advisory_lock(1)")
    await env.ran("b", "SELECT pg_advisory_lock(2); SET lock_timeout = '30ms'")
    late = await env.query("b", "SELECT pg_advisory_lock(1)")
    assert late == "ERROR 55P03: canceling statement due to lock timeout"
    await env.ran("b", "RESET lock_timeout")
    waits = await waiting(env, "a", "pg_advisory_lock(2)")
    circle = await env.query("b", "SELECT pg_advisory_xact_lock(1)")
    assert circle.startswith("ERROR 40P01: deadlock detected")
    assert not waits.done()
    (await env.session("a")).interrupts.request(QueryCanceled())
    assert (await waits).startswith("ERROR 57014")
    assert await one(env, "b", "pg_advisory_unlock(2)") == "t"
    assert await one(env, "b", "pg_try_advisory_lock(2)") == "t", "nobody waits any more"


async def test_pg_locks_shows_holders_and_waiters(env: TestEnvironment) -> None:
    await free(env)
    await env.ran("a", "SELECT pg_advisory_lock(4294967298), pg_advisory_lock_shared(7, 8)")
    waits = await waiting(env, "b", "pg_advisory_lock(7, 8)")
    answer = await env.ran(
        "c",
        "SELECT classid, objid, objsubid, mode, granted, datname FROM pg_locks"
        " JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' ORDER BY 1, 5 DESC",
    )
    assert answer.splitlines()[:-1] == [
        "1|2|1|ExclusiveLock|t|foreshore",
        "7|8|2|ShareLock|t|foreshore",
        "7|8|2|ExclusiveLock|f|foreshore",
    ]
    await env.ran("a", "SELECT pg_advisory_unlock_all()")
    await waits


async def test_advisory_lock_in_unsupported_place_is_refused(env: TestEnvironment) -> None:
    await free(env)
    for statement in (
        "CREATE VIEW v AS SELECT pg_advisory_lock(1)",
        "CREATE MATERIALIZED VIEW v AS SELECT pg_try_advisory_lock(1)",
        "SELECT 1 FROM generate_series(1, 2) AS i WHERE pg_try_advisory_lock(i)",
    ):
        assert (await env.query("a", statement)).startswith("ERROR 0A000"), statement


async def tried_again(env: TestEnvironment, sql: str) -> str:
    """Run `sql` in session a, which calls pg_advisory_lock(-1), and alter `w` meanwhile."""
    await one(env, "b", "pg_advisory_lock(-1)")
    locks = env.environment.coordinator.advisory
    task = asyncio.create_task(env.query("a", sql, alone=False))
    await until(lambda: task.done() or bool(locks._waiting))
    assert not task.done(), task.result()
    await env.ran("b", "ALTER TABLE w ADD COLUMN more int")
    await one(env, "b", "pg_advisory_unlock(-1)")
    return await task


async def begun_tables(env: TestEnvironment) -> None:
    await free(env)
    await env.ran(
        "b",
        "DROP TABLE IF EXISTS w, r; DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s;"
        "CREATE TABLE w (k int, v text); CREATE TABLE r (k int); INSERT INTO r VALUES (1), (2)",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO w SELECT k, (pg_advisory_lock(k) IS NULL)::text || (pg_advisory_lock(-1) IS NULL)::text FROM r",
        "INSERT INTO w VALUES (1, (pg_advisory_lock(1) IS NULL)::text || (pg_advisory_lock(2) IS NULL)::text"
        " || (pg_advisory_lock(-1) IS NULL)::text)",
    ],
)
async def test_statement_with_session_lock_is_not_retried(env: TestEnvironment, sql: str) -> None:
    await begun_tables(env)
    assert (await tried_again(env, sql)).startswith("ERROR 40001")
    for key in (1, 2):  # as in PostgreSQL, the locks outlast the error
        assert await one(env, "a", f"pg_advisory_unlock({key})") == "t"
        assert await one(env, "a", f"pg_advisory_unlock({key})") == "f"
    await free(env)


async def test_transaction_advisory_lock_is_taken_again_on_retry(env: TestEnvironment) -> None:
    await begun_tables(env)
    calls = "(pg_advisory_xact_lock(k) IS NULL)::text || (pg_advisory_xact_lock(-1) IS NULL)::text"
    told = await tried_again(env, f"BEGIN; INSERT INTO w SELECT k, {calls} FROM r")
    assert "ERROR" not in told, told
    assert await one(env, "b", "pg_try_advisory_lock(1)") == "f"
    await env.ran("a", "ROLLBACK")
    assert await one(env, "b", "pg_try_advisory_lock(1)") == "t"
    await free(env)


async def test_statement_with_setval_is_not_retried(env: TestEnvironment) -> None:
    await begun_tables(env)
    await one(env, "b", "pg_advisory_lock(-1)")
    sql = "INSERT INTO w SELECT setval('s', 100), (pg_advisory_lock(-1) IS NULL)::text"
    task = asyncio.create_task(env.query("a", sql, alone=False))
    await until(lambda: task.done() or bool(env.environment.coordinator.advisory._waiting))
    assert await one(env, "b", "nextval('s')") == "101"
    await env.ran("b", "ALTER TABLE w ADD COLUMN more int")
    await one(env, "b", "pg_advisory_unlock(-1)")
    assert (await task).startswith("ERROR 40001")
    assert await one(env, "b", "nextval('s')") == "102"
    await free(env)


@pytest.mark.parametrize("function", ["pg_advisory_lock", "pg_advisory_xact_lock_shared"])
async def test_number_of_locks_is_bounded(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(advisory_locks, "MOST_HELD", 20)
    answer = await env.query("a", f"SELECT {function}(g) FROM generate_series(1, 100) g")
    assert answer.startswith("ERROR 53200: out of shared memory")
    await env.ran("b", "SELECT pg_advisory_lock(1000)")
    await free(env)
    await env.ran("a", f"SELECT {function}(1)")
    await free(env)


async def test_number_of_settings_of_applications_is_bounded(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_variables, "MOST_CUSTOM", 20)
    query = "SELECT set_config('app.v' || g, 'x', false) FROM generate_series(1, 100) g"
    answer = await env.query("settings", query)
    assert answer.startswith("ERROR 53200: out of shared memory")
    await env.ran("settings", "SET app.other = 'x'", "SET app.other = 'y'", "SET search_path = x")
