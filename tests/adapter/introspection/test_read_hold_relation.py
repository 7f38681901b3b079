"""mz_internal.mz_read_holds shows who holds history; invariants are checked on demand."""

import asyncio
from pathlib import Path

import pytest

from foreshore.ids import GlobalId
from tests.adapter.harness import TestEnvironment, in_environment, until

T = GlobalId("u1")
LAG_MS = 50


async def held(env: TestEnvironment, what: str, where: str) -> list[str]:
    found = await env.query("reader", f"SELECT {what} FROM mz_internal.mz_read_holds {where}")
    assert not found.startswith("ERROR"), found
    return found.split("\n")[:-1]


def test_read_holds_name_session_of_open_block(tmp_path: Path) -> None:
    async def main(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        await env.query("a", "CREATE TABLE t (k int)")
        await env.query("a", "CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM t")
        await env.query("a", "INSERT INTO t VALUES (1)")
        await env.query("idle", "BEGIN")
        await env.query("idle", "SELECT * FROM t")
        time = (await env.query("idle", "SELECT mz_now()")).split("\n")[0]
        pid = (await env.session("idle")).pid
        async with asyncio.timeout(30):  # the view's dataflow holds it back for a while
            while coordinator.storage.since(T) < int(time):
                await asyncio.sleep(4 * LAG_MS / 1000)
                await coordinator.group.advance()
                await coordinator.allow_compaction()
        worst = await held(
            env,
            "object_name, kind, connection_id, time, age_ms >= 200",
            "WHERE kind = 'transaction' ORDER BY age_ms DESC, object_name",
        )
        assert f"t|transaction|{pid}|{time}|t" in worst
        assert f"v|transaction|{pid}|{time}|t" in worst  # a block may come to read anything
        since = await env.query(
            "reader", f"SELECT read_frontier FROM mz_internal.mz_frontiers WHERE object_id = '{T}'"
        )
        assert since.split("\n")[0] == time  # and nothing else does
        (retention,) = await held(
            env, "token, time", "WHERE kind = 'retention' AND object_name = 't'"
        )
        token, retained = retention.split("|")
        assert token == coordinator.capabilities[T][0].token
        assert int(retained) > int(time)
        await env.query("idle", "COMMIT")
        assert await held(env, "*", f"WHERE connection_id = {pid}") == []

    in_environment(tmp_path, main, lag_ms=LAG_MS)


def test_read_holds_distinguish_kinds(tmp_path: Path) -> None:
    async def main(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        await env.query("a", "CREATE TABLE t (k int)")
        await env.query("a", "CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM t")
        await until(lambda: any(True for _ in coordinator.compute.holds()))
        of_t = "WHERE object_name = 't' AND kind = "
        assert await held(env, "dataflow_id, token IS NULL", f"{of_t} 'dataflow'") == ["u2|f"]
        assert await held(env, "token", f"{of_t} 'capability'") == []
        lease = await coordinator.storage.clone_capability(coordinator.capabilities[T][0], 10_000)
        shown = await held(env, "token, time, connection_id", f"{of_t} 'capability'")
        assert shown == [f"{lease.token}|{lease.frontier}|NULL"]
        await coordinator.storage.drop_capability(lease)
        assert await held(env, "token", f"{of_t} 'capability'") == []
        with coordinator.holds.acquire([T], coordinator.oracle.read_ts(), "subscription", 7):
            assert await held(env, "connection_id", f"{of_t} 'subscription'") == ["7"]

    in_environment(tmp_path, main, lag_ms=LAG_MS)


async def test_check_endpoint_asserts_invariants(own_env: TestEnvironment) -> None:
    coordinator = own_env.environment.coordinator
    creating = asyncio.create_task(own_env.query("a", "CREATE TABLE t (k int)", alone=False))
    for _ in range(50):  # whatever is half done meanwhile
        await coordinator.check_settled()
        await asyncio.sleep(0.001)
    assert await creating == "CREATE TABLE"
    forgotten = coordinator.holds.collections.pop(T)
    with pytest.raises(AssertionError, match="u1 is not held"):
        await coordinator.check_settled()
    coordinator.holds.collections[T] = forgotten
