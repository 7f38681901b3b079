"""Pauses between tries grow, and may be cut short, but not to nothing by those who ask often."""

import asyncio

import pytest

from foreshore.storage.external import retries
from foreshore.storage.external.retries import Pauses

LONG = 3600.0  # a pause that no test waits for


@pytest.mark.parametrize("least", [0.01, 0.1])
def test_pause_that_is_cut_short_all_the_time_has_its_least_length(
    monkeypatch: pytest.MonkeyPatch, least: float
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", LONG)
    monkeypatch.setattr(retries, "LEAST_WAIT_SECONDS", least)

    async def hurry(pauses: Pauses) -> None:
        while True:
            pauses.cut_short()
            await asyncio.sleep(0)

    async def paused() -> float:
        """Return the seconds of a pause that is announced as a long one."""
        pauses, loop, announced = Pauses(), asyncio.get_running_loop(), list[float]()
        hurrying = loop.create_task(hurry(pauses))
        began = loop.time()
        async with asyncio.timeout(60):
            await pauses.pause(announced.append)
        hurrying.cancel()
        assert announced == [LONG]
        return loop.time() - began

    assert asyncio.run(paused()) > 0.9 * least  # timers are early by their resolution
