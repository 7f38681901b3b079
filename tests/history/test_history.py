"""Histories of sixteen concurrent clients, with kills, are strictly serializable."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from tests.harness import Server
from tests.history.workloads import WORKLOADS, Workload

CLIENTS = 16


async def run(server: Server, workload: Workload, transactions: int, kills: int) -> None:
    """Run a workload until so many transactions are done, killing the server now and then."""
    connection = await asyncpg.connect(server.url)
    await workload.prepare(connection)
    await connection.close()
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(workload.client(partial(asyncpg.connect, server.url), enough))
        moments = sorted(random.Random(kills).sample(range(1, transactions), kills))
        for moment in (*moments, transactions):
            await workload.reach(moment)
            if moment < transactions:
                server.kill()
                await asyncio.to_thread(server.start)
        enough.set()
    connection = await asyncpg.connect(server.url)
    await workload.finish(connection)
    await connection.close()


def check(data_dir: Path, name: str, transactions: int, kills: int, seed: int) -> None:
    workload = WORKLOADS[name](seed)
    server = Server(data_dir).start()
    try:
        asyncio.run(run(server, workload, transactions, kills))
    finally:
        server.stop()
    found = workload.anomalies()
    assert not found, "\n".join(map(str, found[:5]))


@pytest.mark.full
@pytest.mark.parametrize("name", WORKLOADS)
def test_histories_are_strictly_serializable(data_dir: Path, name: str) -> None:
    check(data_dir, name, transactions=200, kills=1, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_long_histories_are_strictly_serializable(data_dir: Path, name: str) -> None:
    check(data_dir, name, transactions=25_000, kills=10, seed=2)
