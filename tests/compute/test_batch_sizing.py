"""Batch sizing finds windows of near optimal size for all cost functions."""

from collections.abc import Callable
from random import Random

import pytest

from foreshore.compute.batch_sizing import BatchSizing

Cost = Callable[[int], float]
BACKLOG = 20_000
COSTS: dict[str, Cost] = {
    "the same for any": lambda times: 0.02,
    "the same for any, slow": lambda times: 3.0,
    "the same for any, very slow": lambda times: 30.0,
    "linear": lambda times: 0.02 + 2e-5 * times,
    "linear, slow": lambda times: 0.02 + 1e-2 * times,
    "square": lambda times: 0.02 + 1e-6 * times**2,
    "square, slow": lambda times: 1.0 + 2e-5 * times**2,
    "cube": lambda times: 0.02 + 3e-7 * times**3,
    "cube, slow": lambda times: 1.0 + 1e-6 * times**3,
}


def time_for_backlog(batch_sizing: BatchSizing, cost: Cost, noise: Random | None = None) -> float:
    """Return the time for processing a backlog."""
    left, spent = BACKLOG, 0.0
    while left:
        times = min(left, batch_sizing.times)
        seconds = cost(times) * (noise.uniform(0.7, 1.5) if noise else 1)
        batch_sizing.stepped(times, seconds)
        left -= times
        spent += seconds
    return spent


def acceptable(cost: Cost) -> float:
    """Return three times the cost with windows of the best size, and 24 trials of it."""
    best = min(range(1, BACKLOG + 1), key=lambda times: -(-BACKLOG // times) * cost(times))
    return (3 * -(-BACKLOG // best) + 24) * cost(best)


@pytest.mark.parametrize("name", COSTS)
def test_backlog_is_processed_near_optimal_rate(name: str) -> None:
    spent = time_for_backlog(BatchSizing(16, seconds=0.25), COSTS[name])
    assert spent < acceptable(COSTS[name])


@pytest.mark.parametrize("name", COSTS)
def test_noisy_step_times_do_not_mislead_batch_sizing(name: str) -> None:
    for seed in range(20):
        spent = time_for_backlog(BatchSizing(16, seconds=0.25), COSTS[name], Random(seed))
        assert spent < 3 * acceptable(COSTS[name]), seed


@pytest.mark.parametrize("before", COSTS)
@pytest.mark.parametrize("name", COSTS)
def test_batch_size_adapts_to_changed_costs(name: str, before: str) -> None:
    batch_sizing = BatchSizing(16, seconds=0.25)
    time_for_backlog(batch_sizing, COSTS[before])
    spent = [time_for_backlog(batch_sizing, COSTS[name]) for _ in range(4)]
    assert spent[-1] < 1.5 * acceptable(COSTS[name])


def test_small_window_does_not_change_batch_size() -> None:
    batch_sizing = BatchSizing(16, seconds=0.25)
    for _ in range(100):
        batch_sizing.stepped(3, 0.01)
    assert batch_sizing.times == 16
    batch_sizing.stepped(1, 60.0)  # slow with a single time: it cannot be smaller
    assert batch_sizing.times == 16
    batch_sizing.stepped(16, 0.01)
    assert batch_sizing.times == 32


@pytest.mark.parametrize("room", [1, 3, 16, 100])
@pytest.mark.parametrize("name", COSTS)
def test_size_exceeding_memory_is_rarely_retried(name: str, room: int) -> None:
    batch_sizing = BatchSizing(16, seconds=0.25)
    steps, failures = 0, 0
    for _ in range(1_000):
        if batch_sizing.times > room:
            failures += 1
            batch_sizing.exhausted(batch_sizing.times)
        else:
            steps += 1
            batch_sizing.stepped(batch_sizing.times, COSTS[name](batch_sizing.times))
    assert failures < steps / 16


@pytest.mark.parametrize("name", COSTS)
def test_memory_limit_of_batch_size_is_lifted(name: str) -> None:
    batch_sizing = BatchSizing(16, seconds=0.25)
    for times in (16, 8, 4, 2, 1):  # the rows of one time were too many
        batch_sizing.exhausted(times)
        assert batch_sizing.times == max(times // 2, 1)
    for _ in range(100):
        batch_sizing.stepped(batch_sizing.times, COSTS[name](batch_sizing.times))
    assert batch_sizing.times >= 16
    assert time_for_backlog(batch_sizing, COSTS[name]) < acceptable(COSTS[name])


def test_small_window_exceeding_memory_limits_batch_size() -> None:
    batch_sizing = BatchSizing(16, seconds=0.25)
    time_for_backlog(batch_sizing, COSTS["linear"])
    before = batch_sizing.times
    batch_sizing.exhausted(3)  # there were no more
    assert batch_sizing.times == 1
    for _ in range(300):
        batch_sizing.stepped(batch_sizing.times, COSTS["linear"](batch_sizing.times))
    assert batch_sizing.times >= before
