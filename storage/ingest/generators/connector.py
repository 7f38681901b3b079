"""The connector of load generators: one tick after another, at an interval."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.generators import auction, counter

TICKS = "ticks"  # the only part
MOST_TICKS = 1_000  # of one batch, if the generator is behind

Ticks = Callable[[int, int], Mapping[str, pa.Table]]
GENERATORS: Mapping[str, Ticks] = {
    "counter": counter.counted,
    "auction": auction.ticks,
}


class GeneratorConnector:
    """Makes the ticks that are due, so that a generator that was away catches up."""

    def __init__(self, spec: LoadGenerator) -> None:
        self._spec = spec

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the ticks from the position on, each when it is due after the one before."""
        spec, make = self._spec, GENERATORS[self._spec.generator]
        interval = spec.tick_ms / 1000
        following = durable.position.get(TICKS, 0)
        loop = asyncio.get_running_loop()
        began, first = loop.time(), following
        while spec.up_to is None or following < spec.up_to:
            due = first + 1 + int((loop.time() - began) / interval)
            until = min(due, following + MOST_TICKS)
            if spec.up_to is not None:
                until = min(until, spec.up_to)
            if until > following:
                yield Batch(make(following, until), {TICKS: until})
                following = until
            else:
                await asyncio.sleep(began + (following - first) * interval - loop.time())

    def committed(self, position: Position) -> None:
        """Do nothing: a generator has nothing to forget."""
