"""When a replica makes checkpoints: after the interval, on Spark also for views that are new."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from foreshore.compute.replica import checkpoints
from foreshore.compute.replica.checkpoints import Checkpointer, Pace
from foreshore.ids import GlobalId

HOUR = {"checkpoint_interval_ms": "3600000", "checkpoint_least_bytes": "1"}


class Counted(Checkpointer):
    """Counts its rounds instead of making them."""

    rounds = 0
    first: asyncio.Event

    def _is_worth_while(self, engine: Any) -> bool:
        return True

    async def _round(self, engine: Any) -> None:
        self.rounds += 1
        self.first.set()


@pytest.mark.parametrize(("engine", "rounds"), [("spark", 2), ("embedded", 1)])
def test_a_view_hydrated_after_a_round_is_saved_soon_where_hydration_is_slow(
    engine: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOOK_SECONDS", 0.01)

    async def scenario() -> int:
        dataflows: dict[GlobalId, Any] = {}

        def hydrated(name: str, state: str) -> None:
            dataflows[GlobalId(name)] = SimpleNamespace(id=GlobalId(name), state=state)

        with ThreadPoolExecutor(1) as pool:
            found = Counted(dataflows, pool, print, print, lambda: False)
            found._engine, found._pace = object(), Pace.of(HOUR, engine)  # type: ignore[assignment]
            found.first = asyncio.Event()
            hydrated("u1", "running")
            running = asyncio.create_task(found.run())
            await found.first.wait()
            hydrated("u2", "hydrating")
            await asyncio.sleep(0.1)
            assert found.rounds == 1
            hydrated("u2", "running")
            await asyncio.sleep(0.3)
            running.cancel()
            return found.rounds

    assert asyncio.run(scenario()) == rounds
