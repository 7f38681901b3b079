"""Random lives of a database, each from a seed: whatever fails and whenever it ends, no anomaly."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.history import workloads
from tests.history.workloads import Workload
from tests.simulation.numbers import Numbers
from tests.simulation.world import SimulatedConnection, World

WORKLOADS: dict[str, type[Workload]] = {**workloads.WORKLOADS, "numbers": Numbers}
CLIENTS = 6
LIVES = 3
FAULTS = 0.02  # of what the services are asked
SEEDS = 1  # in make test, for each workload
MORE_SEEDS = 100


@pytest.fixture(autouse=True)
def killed_processes_are_collected() -> Iterator[None]:
    """Collect the coroutines of killed processes now.

    In a later test, what they log when they are closed could come in the middle of anything.
    """
    yield
    gc.collect()


def simulate(data_dir: Path, name: str, seed: int) -> tuple[World, Workload]:
    """Live several lives over the same data, all but the last ended by a crash."""
    world = World(data_dir, seed)
    workload = WORKLOADS[name](seed)
    prepared = False

    async def life(world: World, *, last: bool) -> None:
        nonlocal prepared
        serving = await world.open(faults=FAULTS if prepared and not last else 0.0)

        async def connect() -> SimulatedConnection:
            return await SimulatedConnection.connect(serving)

        if not prepared:
            await workload.prepare(await connect())
            await (await connect()).execute("CREATE TABLE late (i int)")
            prepared = True
            world.fail(FAULTS)
        enough = asyncio.Event()
        tasks = [asyncio.create_task(workload.client(connect, enough)) for _ in range(CLIENTS)]
        goal = workload.done + world.choose.randrange(20, 60)
        takeover = workload.done + world.choose.randrange(60)  # in some lives beyond the goal
        while workload.done < goal:
            await asyncio.sleep(0.05)
            for task in tasks:
                if task.done():
                    task.result()
            if world.choose.random() < 0.02:
                world.kill_a_replica()
            if world.choose.random() < 0.05:
                world.clock.jump()
            if takeover < workload.done < goal and not last:
                takeover, before = goal, serving
                serving = await world.take_over(before, faults=FAULTS)
                await before.close()
        enough.set()
        await asyncio.gather(*tasks)
        serving.environment.coordinator.check_consistency()
        if last:
            await workload.finish(await connect())
            assert await (await connect()).fetchval("SELECT count(*) FROM late") == 0

    for number in range(LIVES):
        last = number == LIVES - 1
        over = False
        while not over:
            crash_after = 0 if last or not prepared else world.choose.randrange(1, 150)
            over = world.live(partial(life, last=last), crash_after=crash_after) or not last
            gc.collect()
    return world, workload


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_seed_gives_an_anomaly(tmp_path: Path, name: str, seed: int) -> None:
    found = anomalies(tmp_path / "data", name, seed)
    assert not found, f"seed {seed}: " + "\n".join(found[:5])


def anomalies(data_dir: Path, name: str, seed: int) -> list[str]:
    """Return what is wrong with the history of a seed; what is raised says which seed it was."""
    try:
        _, workload = simulate(data_dir, name, seed)
    except BaseException as error:
        error.add_note(f"{name}, seed {seed}")
        raise
    return [str(anomaly) for anomaly in workload.anomalies()]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_seed_of_many_gives_an_anomaly(tmp_path: Path, name: str) -> None:
    first = int(os.environ.get("FORESHORE_SIMULATION_SEED", "1000"))
    # Lives that end by a crash leave their engines behind: a few to a process.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=5) as processes:
        for seed in range(first, first + MORE_SEEDS):
            found = processes.submit(anomalies, tmp_path / str(seed), name, seed).result()
            assert not found, f"seed {seed}: " + "\n".join(found[:5])


@pytest.mark.full
def test_a_seed_is_always_the_same_life(tmp_path: Path) -> None:
    lives = [simulate(tmp_path / str(i), "bank", 7) for i in range(2)]
    assert lives[0][0].points == lives[1][0].points
    assert lives[0][0].now == lives[1][0].now
    assert [r.reads for r in lives[0][1].records] == [r.reads for r in lives[1][1].records]  # type: ignore[attr-defined]
