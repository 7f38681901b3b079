"""CLOCK: one row with the time, which is replaced at each tick."""

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np

from foreshore.sources.generators import LoadGenerator
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.generators.drawn import rows, times

TICKS = "ticks"  # the only part: the time of the row in ticks since 1970


class ClockConnector:
    """Yields the time."""

    def __init__(self, spec: LoadGenerator) -> None:
        self._tick_us = spec.tick_ms * 1000

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the change to each tick that is not over before it can be yielded."""
        shown = durable.position.get(TICKS)
        while True:
            now = time.time_ns() // 1000
            tick = now // self._tick_us
            if shown is None or tick > shown:
                numbers = np.array([tick] if shown is None else [shown, tick], dtype=np.int64)
                diffs = np.array([1] if shown is None else [-1, 1], dtype=np.int64)
                table = rows(diffs, time=times(numbers * self._tick_us))
                yield Batch({OWN_ROWS: table}, {TICKS: tick})
                shown = tick
            await asyncio.sleep(((tick + 1) * self._tick_us - now) / 1_000_000)

    async def furthest(self) -> Position:
        """Return nothing: there is no external system."""
        return {}

    def committed(self, position: Position) -> None:
        """Do nothing: a clock has nothing to forget."""
