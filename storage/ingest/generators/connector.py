"""The connector of load generators: one tick after another, at an interval."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.generators import auction, counter
from foreshore.storage.ingest.messages import OutputRelation

TICKS = "ticks"  # the part of all outputs that were there from the beginning
MOST_TICKS = 1_000  # of one batch, if the generator is behind

Ticks = Callable[[int, int], Mapping[str, pa.Table]]
GENERATORS: Mapping[str, Ticks] = {
    "counter": counter.counted,
    "auction": auction.ticks,
}


class GeneratorConnector:
    """Makes the ticks that are due, so that a generator that was away catches up.

    Each output with a reference has a part of its own, by the id of its relation: one that is
    added later is brought to where the others are first.
    """

    def __init__(self, spec: LoadGenerator, outputs: Mapping[str, OutputRelation]) -> None:
        self._spec = spec
        self._parts = {
            reference: TICKS if reference == OWN_ROWS else f"{reference} {each.id}"
            for reference, each in outputs.items()
            if not reference.startswith(":")
        }

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the ticks from the position on, each when it is due after the one before."""
        following = durable.position.get(TICKS, 0)
        for batch in self._caught_up(durable.position, following):
            yield batch
        async for batch in self._on_time(following):
            yield batch

    def _caught_up(self, position: Position, until: int) -> Iterator[Batch]:
        """Yield for outputs that are behind their ticks before `until`."""
        make = GENERATORS[self._spec.generator]
        for reference, part in self._parts.items():
            for begin in range(position.get(part, 0), until, MOST_TICKS):
                end = min(begin + MOST_TICKS, until)
                rows = make(begin, end)
                own = {reference: rows[reference]} if reference in rows else {}
                yield Batch(own, {part: end})

    async def _on_time(self, first: int) -> AsyncIterator[Batch]:
        """Yield the ticks from `first` on of all outputs."""
        spec, make, following = self._spec, GENERATORS[self._spec.generator], first
        interval = spec.tick_ms / 1000
        loop = asyncio.get_running_loop()
        began = loop.time()
        while spec.up_to is None or following < spec.up_to:
            due = first + 1 + int((loop.time() - began) / interval)
            until = min(due, following + MOST_TICKS)
            if spec.up_to is not None:
                until = min(until, spec.up_to)
            if until > following:
                moved = dict.fromkeys((TICKS, *self._parts.values()), until)
                yield Batch(make(following, until), moved)
                following = until
            else:
                await asyncio.sleep(began + (following - first) * interval - loop.time())

    def committed(self, position: Position) -> None:
        """Do nothing: a generator has nothing to forget."""
