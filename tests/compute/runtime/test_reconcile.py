"""A replica that outlives its controller keeps the dataflows that the next one needs."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foreshore.processes.transport import SCRATCH_VARIABLE, SECRET_VARIABLE
from tests.compute.runtime.harness import (
    Environment,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)
from tests.harness import free_port


@asynccontextmanager
async def replica_at(port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "foreshore.compute.replica.main"),
        *("--listen", f"127.0.0.1:{port}"),
        env=dict(os.environ),
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def work_of(env: Environment, dataflow: str) -> tuple[int, int]:
    """Return the number of steps of the dataflow, and the number of dataflows."""
    while True:
        for status in env.compute.clusters.status():
            for each in status["dataflows"]:
                if each["id"] == dataflow and each["state"] == "running":
                    return each["steps"], len(status["dataflows"])
        await asyncio.sleep(0.02)


def test_reconnecting_controller_finds_indexes_hydrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, secrets.token_hex())
    port = free_port()
    relation = counts_of(*table("u1"))
    other = counts_of(relation)

    async def first_life() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1", f"127.0.0.1:{port}")
            await env.create("u1")
            time = await env.write({"u1": [((1, "a"), 1)]})
            await env.maintain("c", "u8", relation, index_on("u7", 0, of=relation), as_of=time)
            await env.maintain("c", "u6", relation, index_on("u5", 0, of=relation), as_of=time)
            for n in range(3):
                time = await env.write({"u1": [((n, "a"), 1)]})
                await env.compute.wait_upper(id_("u7"), time)
            # the controller ends without dropping the indexes
            for task in [r.task for c in env.compute.clusters for r in c.replicas.values()]:
                assert task is not None
                task.cancel()
            await asyncio.sleep(0)

    async def second_life() -> None:
        async with environment(tmp_path) as env:
            await env.acquire()
            env.tables = [id_("u1")]
            env.time = env.storage.upper(id_("u1"))
            missed = await env.write({"u1": [((7, "b"), 1)]})
            env.compute.create_cluster("c")
            await env.maintain("c", "u8", relation, index_on("u7", 0, of=relation), as_of=missed)
            env.compute.create_replica("c", "r1", f"127.0.0.1:{port}")
            assert await env.index_rows("c", "u7", relation, missed) == {("a", 4): 1, ("b", 1): 1}
            steps, dataflows = await work_of(env, "u8")
            assert steps >= 3  # including those before reconciliation
            assert dataflows == 1  # the other one was dropped
            time = await env.write({"u1": [((8, "b"), 1)]})
            assert await env.index_rows("c", "u7", relation, time) == {("a", 4): 1, ("b", 2): 1}

    async def third_life() -> None:
        async with environment(tmp_path) as env:
            await env.acquire()
            env.tables = [id_("u1")]
            env.time = env.storage.upper(id_("u1"))
            time = await env.write({})
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1", f"127.0.0.1:{port}")
            # the same id for another plan
            await env.maintain("c", "u8", other, index_on("u7", 0, of=other), as_of=time)
            assert await env.index_rows("c", "u7", other, time) == {(4, 1): 1, (2, 1): 1}

    async def scenario() -> None:
        async with replica_at(port):
            await first_life()
            await second_life()
            await third_life()

    run(scenario)


def test_a_replica_ends_with_its_environment_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "foreshore.compute.replica.main"),
            *("--listen", f"unix:{scratch / 'socket'}", "--lifeline"),
            stdin=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                SECRET_VARIABLE: secrets.token_hex(),
                SCRATCH_VARIABLE: str(scratch),
            },
        )
        while not (scratch / "socket").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert process.stdin is not None
        process.stdin.close()  # as the end of the environment does
        assert await process.wait() == 0
        assert not scratch.exists()

    run(scenario)
