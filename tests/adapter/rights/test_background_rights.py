"""Sinks and sources run as long as their owners have the rights, and go on where they were."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import until_state

LOST = [  # what takes a right away, what gives it back, and of what
    ("REVOKE SELECT ON t FROM low", "GRANT SELECT ON t TO low", "table t"),
    ("REVOKE readers FROM low", "GRANT readers TO low", "table t"),
    (
        "REVOKE ALL ON CLUSTER own FROM low",
        "GRANT USAGE ON CLUSTER own TO low",
        "cluster own",
    ),
    (
        "REVOKE pg_write_server_files FROM low",
        "GRANT pg_write_server_files TO low",
        "files of the server",
    ),
]


async def prepared(env: TestEnvironment, tmp_path: Path, *, by_member: bool = False) -> None:
    """Make table t, whose sink s is that of the role low."""
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran(
        "a",
        "CREATE ROLE low",
        "CREATE ROLE readers",
        "GRANT pg_write_server_files TO low",
        "GRANT readers TO low",
        "CREATE CLUSTER own SIZE 'duckdb'",
        "GRANT USAGE, CREATE ON CLUSTER own TO low",
        "GRANT CREATE ON SCHEMA public TO low",
        "CREATE TABLE t (k int)",
        f"GRANT SELECT ON t TO {'readers' if by_member else 'low'}",
        "INSERT INTO t VALUES (1)",
        "SET ROLE low",
        f"CREATE SINK s IN CLUSTER own FROM t INTO DELTA (URL '{tmp_path}/t') ENVELOPE APPEND",
        "RESET ROLE",
        "WAIT FOR SINKS s",
    )


async def until_answer(env: TestEnvironment, query: str, holds: Callable[[str], bool]) -> str:
    """Wait until the answer to a query is as it should be; return it."""
    while True:
        if holds(answer := await env.query("a", query)):
            return answer
        await asyncio.sleep(0.02)


def written(tmp_path: Path) -> list[int]:
    return sorted(DeltaTable(str(tmp_path / "t")).to_pyarrow_table()["k"].to_pylist())


@pytest.mark.parametrize(("take", "give", "of"), LOST, ids=[each[0] for each in LOST])
async def test_sink_stops_without_a_right_and_goes_on_with_it(
    own_env: TestEnvironment, tmp_path: Path, take: str, give: str, of: str
) -> None:
    env = own_env
    await prepared(env, tmp_path, by_member="readers" in take)
    await env.ran("a", take)
    found = await until_state(env, "stalled")
    needed = f'permission denied for {of}, and its owner "low" needs the right (42501)'
    assert found.startswith(f"stalled|{needed}")
    await env.ran("a", "INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
    await env.reopen()
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    assert needed in await until_state(env, "stalled")
    assert written(tmp_path) == [1]
    await env.ran("a", give, "WAIT FOR SINKS s", "INSERT INTO t VALUES (4)", "WAIT FOR SINKS s")
    assert written(tmp_path) == [1, 2, 3, 4]


async def test_sink_runs_on_when_its_owner_may_not_log_in(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    await prepared(own_env, tmp_path)
    await own_env.ran("a", "ALTER ROLE low NOLOGIN", "INSERT INTO t VALUES (2)", "WAIT FOR SINKS s")
    assert written(tmp_path) == [1, 2]


async def test_source_stops_without_a_right_and_goes_on_with_it(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE low",
        "CREATE CLUSTER own SIZE 'duckdb'",
        "GRANT USAGE, CREATE ON CLUSTER own TO low",
        "GRANT CREATE ON SCHEMA public TO low",
        "SET ROLE low",
        "CREATE SOURCE g IN CLUSTER own FROM LOAD GENERATOR COUNTER (TICK INTERVAL '10ms')",
        "RESET ROLE",
        "REVOKE ALL ON CLUSTER own FROM low",
    )
    status = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 'g'"
    found = await until_answer(env, status, lambda answer: answer.startswith("stalled"))
    assert "permission denied for cluster own" in found
    count = await env.query("a", "SELECT count(*) FROM g")
    await env.ran("a", "GRANT USAGE ON CLUSTER own TO low")
    await until_answer(
        env, "SELECT count(*) FROM g", lambda answer: "NOTICE" not in answer and answer != count
    )
    repeated = "SELECT counter FROM g GROUP BY counter HAVING count(*) > 1"
    assert await env.query("a", repeated) == "SELECT 0"


async def test_source_of_files_stops_when_its_owner_may_read_none(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env = own_env
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("1\n")
    await env.ran(
        "a",
        "CREATE ROLE low",
        "GRANT pg_read_server_files TO low",
        "CREATE CLUSTER own SIZE 'duckdb'",
        "GRANT USAGE, CREATE ON CLUSTER own TO low",
        "GRANT CREATE ON SCHEMA public TO low",
        "SET ROLE low",
        f"CREATE SOURCE g (k int) IN CLUSTER own FROM FILES '{tmp_path}/in/*.csv' (FORMAT csv)",
        "RESET ROLE",
        "REVOKE pg_read_server_files FROM low",
    )
    status = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 'g'"
    found = await until_answer(env, status, lambda answer: answer.startswith("stalled"))
    assert "permission denied for files of the server" in found
    await env.ran("a", "GRANT pg_read_server_files TO low")
    await until_answer(env, status, lambda answer: answer.startswith("running"))
