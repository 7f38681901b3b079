"""A replica that survives its server keeps what the next one can use."""

import asyncio
import secrets
from pathlib import Path

import pytest

from foreshore.processes.transport import SECRET_VARIABLE
from foreshore.storage.backup import back_up, restore
from tests.adapter.harness import TestEnvironment, until
from tests.compute.runtime.test_reconcile import replica_at
from tests.harness import free_port

COUNT = "SET cluster = c; SELECT n FROM v"


def test_replica_keeps_index_over_restart_but_not_for_restored_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, secrets.token_hex())
    port = free_port()
    data, backup = tmp_path / "data", tmp_path / "backup"

    async def steps(env: TestEnvironment) -> int:
        """Return in how many steps the index has come to be what it is."""
        compute = env.environment.coordinator.compute

        def running() -> list[int]:
            return [
                each["steps"]
                for status in compute.clusters.status()
                if status["cluster"] == cluster_of(env)
                for each in status["dataflows"]
                if each["state"] == "running"
            ]

        await until(lambda: bool(running()))
        (found,) = running()
        return found

    def cluster_of(env: TestEnvironment) -> str:
        cluster = env.environment.coordinator.state.cluster("c")
        assert cluster is not None
        return cluster.id

    async def scenario() -> None:
        async with replica_at(port):
            env = TestEnvironment(data)
            await env.open()
            for sql in (
                "CREATE CLUSTER c (REPLICATION FACTOR = 0)",
                f"CREATE CLUSTER REPLICA c.r (ADDRESS '127.0.0.1:{port}')",
                "CREATE TABLE t (k int)",
                "CREATE VIEW v AS SELECT count(*) AS n FROM t",
                "CREATE INDEX IN CLUSTER c ON v (n)",
            ):
                assert "ERROR" not in (answer := await env.query("s", sql)), answer
            await steps(env)  # before, SELECT would not wait for the index
            for n in range(1, 5):
                await env.query("s", "INSERT INTO t VALUES (1)")
                assert await env.query("s", COUNT) == f"SET\n{n}\nSELECT 1"
            await asyncio.to_thread(back_up, data, backup)
            await env.query("s", "INSERT INTO t VALUES (2)")
            assert await env.query("s", COUNT) == "SET\n5\nSELECT 1"

            await env.reopen()
            assert await env.query("s", COUNT) == "SET\n5\nSELECT 1"
            assert await steps(env) >= 4

            await env.close()
            data.rename(tmp_path / "old")
            await asyncio.to_thread(restore, backup, data)
            await env.open()
            assert await env.query("s", COUNT) == "SET\n4\nSELECT 1"
            assert await steps(env) < 4
            await env.close()

    asyncio.run(scenario())
