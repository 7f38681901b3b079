"""A table, two views over it, and an error that comes and goes."""

import asyncio
from collections.abc import Iterable

from foreshore.ids import GlobalId
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment

ERRORS = "mz_internal.mz_materialized_view_errors"
DIVISION = "ERROR 22012: division by zero"
SETUP = (
    "CREATE TABLE t (a int)",
    "INSERT INTO t VALUES (1), (2)",
    "CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS x FROM t",
    "CREATE MATERIALIZED VIEW above AS SELECT sum(x) AS s FROM m",
)
QUERIES = {  # what a view over time has to be, from tables that know all times
    "m": "SELECT 10 / a AS x FROM t",
    "above": "SELECT sum(x) AS s FROM (SELECT 10 / a AS x FROM t) d",
}


async def ran(env: TestEnvironment, *statements: str) -> list[str]:
    """Run statements, of which none fails; return the rows of the last."""
    for sql in statements:
        answer = await env.query("w", sql)
        assert "ERROR" not in answer, (sql, answer)
    return answer.splitlines()[:-1]


async def says(env: TestEnvironment, sql: str) -> list[str]:
    """Return a query's rows in an order of their own, or its error."""
    async with asyncio.timeout(20):
        return sorted((await env.query("r", sql)).splitlines())


async def seen(env: TestEnvironment) -> Timestamp:
    """Return a time up to which the views are."""
    await says(env, "SELECT * FROM above")
    return env.environment.coordinator.oracle.read_ts()


async def toggled(env: TestEnvironment, times: int = 2) -> list[Timestamp]:
    """Let an error come and go; return the times before, between and after."""
    found = [await seen(env)]
    for _ in range(times):
        await ran(env, "INSERT INTO t VALUES (0)")
        found.append(await seen(env))
        await ran(env, "DELETE FROM t WHERE a = 0")
        found.append(await seen(env))
    return found


async def passed(env: TestEnvironment, time: Timestamp) -> None:
    """Reopen the environment, in which the dataflow of `m` begins later than at `time`."""
    await ran(env, "INSERT INTO t VALUES (10)")  # what it appends is durable
    await seen(env)
    await env.reopen()
    assert env.environment.coordinator.as_ofs[id_of(env, "m")] > time


def id_of(env: TestEnvironment, name: str) -> GlobalId:
    """Return a collection's id."""
    items = env.environment.coordinator.state.items()
    (found,) = [item.id for item in items if item.name == name]
    return found


async def agrees(env: TestEnvironment, times: Iterable[Timestamp]) -> None:
    """Assert that at each time the views are what their queries are."""
    for time in times:
        for view, query in QUERIES.items():
            wanted = await says(env, f"{query} AS OF {time}")
            assert await says(env, f"SELECT * FROM {view} AS OF {time}") == wanted, (view, time)


async def rows(env: TestEnvironment) -> list[str]:
    """Return the table's."""
    return await ran(env, f"SELECT sqlstate, error, at FROM {ERRORS} ORDER BY at")
