"""A replica that outlives its server keeps what is right for the next one, and nothing else."""

import asyncio
import secrets
import socket
from pathlib import Path

import pytest

from foreshore.compute.transport import SECRET_VARIABLE
from foreshore.storage.backup import back_up, restore
from tests.adapter.harness import House, until
from tests.compute.runtime.test_reconcile import replica_at

COUNT = "SET cluster = c; SELECT n FROM v"


def test_an_index_is_kept_over_a_restart_and_not_for_a_restored_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, secrets.token_hex())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, backup = tmp_path / "data", tmp_path / "backup"

    async def steps(house: House) -> int:
        """Return in how many steps the index has come to be what it is."""
        compute = house.environment.coordinator.compute

        def running() -> list[int]:
            return [
                each["steps"]
                for status in compute.status()
                if status["cluster"] == cluster_of(house)
                for each in status["dataflows"]
                if each["state"] == "running"
            ]

        await until(lambda: bool(running()))
        (found,) = running()
        return found

    def cluster_of(house: House) -> str:
        cluster = house.environment.coordinator.state.cluster("c")
        assert cluster is not None
        return cluster.id

    async def scenario() -> None:
        async with replica_at(port):
            house = House(data)
            await house.open()
            for sql in (
                "CREATE CLUSTER c (REPLICATION FACTOR = 0)",
                f"CREATE CLUSTER REPLICA c.r (ADDRESS '127.0.0.1:{port}')",
                "CREATE TABLE t (k int)",
                "CREATE VIEW v AS SELECT count(*) AS n FROM t",
                "CREATE INDEX IN CLUSTER c ON v (n)",
            ):
                assert "ERROR" not in (answer := await house.query("s", sql)), answer
            for n in range(1, 5):
                await house.query("s", "INSERT INTO t VALUES (1)")
                assert await house.query("s", COUNT) == f"SET\n{n}\nSELECT 1"
            await asyncio.to_thread(back_up, data, backup)
            await house.query("s", "INSERT INTO t VALUES (2)")
            assert await house.query("s", COUNT) == "SET\n5\nSELECT 1"

            await house.reopen()
            assert await house.query("s", COUNT) == "SET\n5\nSELECT 1"
            assert await steps(house) >= 4

            await house.close()
            data.rename(tmp_path / "old")
            await asyncio.to_thread(restore, backup, data)
            await house.open()
            assert await house.query("s", COUNT) == "SET\n4\nSELECT 1"
            assert await steps(house) < 4
            await house.close()

    asyncio.run(scenario())
