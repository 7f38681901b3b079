"""Reads AS OF a future time wait for it and block nobody."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.errors import QueryCanceled
from tests.adapter.harness import TestEnvironment, until

YEAR_9999 = "'9999-12-31 23:59:59+00'"


def group(env: TestEnvironment) -> GroupCommit:
    return env.environment.coordinator.group


def soon(env: TestEnvironment, ms: int = 400) -> int:
    return env.environment.coordinator.oracle.read_ts() + ms


async def waiting(env: TestEnvironment, session: str, sql: str) -> "asyncio.Task[str]":
    """Return a query that has come to wait for its time."""
    task = asyncio.get_running_loop().create_task(env.query(session, sql, alone=False))
    before = len(group(env)._awaited)
    await until(lambda: len(group(env)._awaited) > before or task.done())
    assert not task.done(), task.result()
    return task


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM {} ORDER BY k AS OF {}",
        "SELECT k FROM {} ORDER BY k AS OF AT LEAST {}",
        "SELECT k FROM {} ORDER BY k AS OF to_timestamp({} / 1000.0)",
        "COPY (SELECT k FROM {} ORDER BY k AS OF {}) TO STDOUT",
        "BEGIN; DECLARE c CURSOR FOR SELECT k FROM {} ORDER BY k AS OF {}; FETCH ALL c; COMMIT",
    ],
)
@pytest.mark.parametrize("relation", ["late", "late_kept", "late_indexed"])
async def test_as_of_future_includes_writes_until_then(
    env: TestEnvironment, query: str, relation: str
) -> None:
    await env.query(
        "w",
        "CREATE TABLE IF NOT EXISTS late (k int);"
        " CREATE MATERIALIZED VIEW IF NOT EXISTS late_kept AS SELECT k FROM late WHERE k > 0;"
        " CREATE VIEW IF NOT EXISTS late_doubled AS SELECT k FROM late WHERE k > 0;"
        " CREATE INDEX IF NOT EXISTS late_k ON late_doubled (k);"
        " DELETE FROM late; INSERT INTO late VALUES (1)",
    )
    name = {"late_indexed": "late_doubled"}.get(relation, relation)
    time = soon(env)
    task = await waiting(env, "r", query.format(name, time))
    await env.query("w", "INSERT INTO late VALUES (2)")  # nobody waits for who waits
    assert env.environment.coordinator.oracle.read_ts() < time
    assert not task.done()
    answer = await task
    assert [line for line in answer.splitlines() if line.isdigit()] == ["1", "2"]
    assert env.environment.coordinator.oracle.read_ts() >= time
    if "AT LEAST" not in query:  # what comes later is not in it
        await env.query("w", "INSERT INTO late VALUES (3)")
        again = query.format(name, time)
        assert (await env.query("r", again)) == answer
    env.environment.coordinator.check_consistency()


async def test_as_of_future_excludes_later_writes(env: TestEnvironment) -> None:
    made = "CREATE TABLE steps (k int) WITH (RETAIN HISTORY FOR '1ms')"
    assert await env.query("w", made) == "CREATE TABLE"
    coordinator = env.environment.coordinator
    (steps,) = [each.id for each in coordinator.state.items() if each.name == "steps"]
    time = soon(env, 300)
    task = await waiting(env, "r", f"SELECT count(*) FROM steps AS OF {time}")
    n = written = 0
    while not task.done():
        await env.query("w", "INSERT INTO steps VALUES (1)")
        await coordinator.allow_compaction()
        n += 1
        if coordinator.group.changed(steps) <= time:
            written = n
    assert 0 < written < n
    assert await task == f"{written}\nSELECT 1"


async def test_wait_for_future_time_ends_with_cancel_and_timeout(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE far (k int PRIMARY KEY)")
    far = f"SELECT * FROM far AS OF {YEAR_9999}"
    session = await env.session("r")
    task = await waiting(env, "r", far)
    assert session.news.notices()[0].message.startswith(
        "waiting for time 253402300799000, which is"
    )
    session.interrupts.request(QueryCanceled())
    assert await task == "ERROR 57014: canceling statement due to user request"
    for query in (far, "SELECT * FROM far WHERE k = 1 AS OF AT LEAST now() + interval '1 day'"):
        answer = await env.query("r", f"SET statement_timeout = '100ms'; {query}")
        assert "ERROR 57014: canceling statement due to statement timeout" in answer
        await env.query("r", "RESET statement_timeout")
    assert group(env)._awaited == []
    holds = "SELECT count(*) FROM mz_internal.mz_read_holds WHERE kind = 'transaction' AND "
    assert await env.query("w", holds + "object_name = 'far'") == "0\nSELECT 1"


def test_wait_for_future_time_holds_no_history(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path, lag_ms=50)
        await env.open()
        await env.query("w", "CREATE TABLE t (k int)")
        task = await waiting(env, "r", f"SELECT * FROM t AS OF {YEAR_9999}")
        before = env.environment.coordinator.oracle.read_ts()
        (t,) = [each for each in env.environment.coordinator.state.items() if each.name == "t"]
        await asyncio.sleep(0.2)
        await group(env).advance()
        await env.environment.coordinator.allow_compaction()
        assert env.environment.coordinator.since(t.id) > before
        await asyncio.gather(task, env.close())
        assert "57P01" in task.result()

    asyncio.run(scenario())


async def test_as_of_relative_to_now_is_evaluated_once(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE ahead (k int)")
    ahead = "mz_now()::timestamptz + interval '300 ms'"
    first = soon(env, 300)
    answer = await (await waiting(env, "r", f"SELECT mz_now(), k FROM ahead AS OF {ahead}"))
    assert answer == "SELECT 0"
    await env.query("w", "INSERT INTO ahead VALUES (1)")
    task = await waiting(env, "r", f"SELECT mz_now(), k FROM ahead AS OF {ahead}")
    time, k = (await task).splitlines()[0].split("|")
    assert k == "1"
    assert first < int(time) <= env.environment.coordinator.oracle.read_ts()


async def test_ddl_during_wait_for_future_time_applies(env: TestEnvironment) -> None:
    async def after(query: str, change: str) -> str:
        await env.query("w", "CREATE TABLE moving (k int, j int); CREATE INDEX ON moving (j)")
        await env.query("w", "INSERT INTO moving VALUES (1, 2)")
        time = soon(env, 300)
        task = await waiting(env, "r", query.format(time))
        await env.ran("w", change)
        answer = (await task).replace(str(time), "TIME")
        await env.query("r", "ROLLBACK")
        await env.ran("w", "DROP TABLE IF EXISTS moving")
        return answer

    every = "SELECT * FROM moving AS OF {}"
    by_index = "SELECT k FROM moving WHERE j = 2 AS OF {}"
    assert await after(every, "DROP TABLE moving") == (
        'ERROR 42P01: relation "moving" does not exist'
    )
    assert (await after(every, "DROP TABLE moving; CREATE TABLE moving (x int)")) == "SELECT 0"
    assert await after(every, "ALTER TABLE moving ADD l int DEFAULT 3") == "1|2|3\nSELECT 1"
    block = "BEGIN; SELECT 1; " + every
    assert await after(block, "ALTER TABLE moving DROP j") == "BEGIN\n1\nSELECT 1\n1\nSELECT 1\nT"
    assert await after(by_index, "DROP INDEX moving_j_idx") == "1\nSELECT 1"
    assert await after(by_index, "ALTER TABLE moving DROP j") == (
        'ERROR 42703: column "j" does not exist'
    )


async def test_prepared_statement_with_changed_columns_fails_after_wait(
    env: TestEnvironment,
) -> None:
    await env.query("w", "CREATE TABLE known (k int)")
    await env.query("r", "PREPARE p AS SELECT * FROM known AS OF $1")
    task = await waiting(env, "r", "EXECUTE p (now() + interval '400 ms')")
    await env.query("w", "ALTER TABLE known ADD l int")
    assert await task == "ERROR 0A000: cached plan must not change result type"


async def test_block_continues_at_its_own_time_after_as_of(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE blocked (k int); INSERT INTO blocked VALUES (1)")
    await env.query("r", "BEGIN; SELECT k FROM blocked")
    task = await waiting(env, "r", f"SELECT count(*) FROM blocked AS OF {soon(env)}")
    await env.query("w", "INSERT INTO blocked VALUES (2)")
    assert await task == "2\nSELECT 1\nT"
    assert await env.query("r", "SELECT k FROM blocked") == "1\nSELECT 1\nT"
    lost = await env.query("r", "INSERT INTO blocked VALUES (3); COMMIT")
    assert "ERROR 40001" in lost  # it depends on what another has changed, as without AS OF


async def test_changes_through_future_time_waits(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE told (k int)")
    after, through = soon(env, 0), soon(env)
    changes = f"SELECT k, mz_diff FROM CHANGES(told, {after}, {through})"
    task = await waiting(env, "r", changes)
    await env.query("w", "INSERT INTO told VALUES (1)")
    assert await task == "1|1\nSELECT 1"
    refused = await env.query("r", changes + f" AS OF {through - 1}")
    assert refused.startswith("ERROR 22023: the changes of "), refused
    await env.query("r", "BEGIN; SELECT * FROM told")
    refused = await env.query("r", f"SELECT * FROM CHANGES(told, {after}, {soon(env)})")
    assert refused.startswith("ERROR 22023: the changes of "), refused
    await env.query("r", "ROLLBACK")


async def test_explain_timestamp_of_future_time_does_not_wait(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE explained (k int)")
    for as_of in (f"AS OF {YEAR_9999}", f"AS OF AT LEAST {YEAR_9999}"):
        told = await env.query("r", f"EXPLAIN TIMESTAMP FOR SELECT * FROM explained {as_of}")
        assert "query timestamp: 253402300799000" in told
        assert "can respond immediately: false" in told
    told = await env.query("r", f"EXPLAIN TIMESTAMP FOR SELECT 1 AS OF {YEAR_9999}")
    assert "can respond immediately: true" in told


async def test_bounded_staleness_waits_only_for_exact_as_of(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE bounded (k int)")
    await env.query("b", "SET transaction_isolation = 'bounded staleness 5s'")
    at_least = f"SELECT * FROM bounded AS OF AT LEAST {soon(env)}"
    assert (await env.query("b", at_least)).startswith("ERROR 40001")
    task = await waiting(env, "b", f"SELECT * FROM bounded AS OF {soon(env)}")
    await env.query("w", "INSERT INTO bounded VALUES (1)")
    assert await task == "1\nSELECT 1"


async def test_constant_query_as_of_future_does_not_wait(env: TestEnvironment) -> None:
    assert await env.query("r", f"SELECT 1 AS OF {YEAR_9999}") == "1\nSELECT 1"
    await env.query("w", "CREATE MATERIALIZED VIEW fixed AS VALUES (1)")
    answer = await env.query("r", f"SELECT * FROM fixed AS OF {YEAR_9999}")
    assert answer.startswith("1\nSELECT 1"), answer  # it may have to be filled first
    later = await env.query("r", "SELECT mz_now() AS OF mz_now()::timestamptz + '1 day'")
    assert later.endswith("SELECT 1"), later


async def test_create_view_fails_if_input_is_dropped_while_waiting(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE brief (k int)")
    sql = f"CREATE MATERIALIZED VIEW kept AS SELECT k FROM brief AS OF {soon(env, 1000)}"
    creating = await waiting(env, "r", sql)
    assert await env.query("w", "DROP TABLE brief", alone=False) == "DROP TABLE"
    assert (await creating).startswith('ERROR 42P01: relation "brief" does not exist')
