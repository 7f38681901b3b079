"""The connector of load generators: one tick after another, at an interval."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.generators import auction, counter, key_value, marketing, tpch
from foreshore.storage.ingest.messages import OutputRelation

TICKS = "ticks"  # the part of all outputs that were there from the beginning
MOST_TICKS = 1_000  # of one batch, if the generator is behind

Ticks = Callable[[int, int], Mapping[str, pa.Table]]


def ticks_of(spec: LoadGenerator) -> Ticks:
    """Return what makes the ticks of a generator that is no clock."""
    match spec.generator:
        case "counter":
            return partial(counter.counted, spec)
        case "auction":
            return auction.ticks
        case "marketing":
            return marketing.ticks
        case "key value":
            return partial(key_value.ticks, spec)
        case "tpch":
            return partial(tpch.ticks, spec)
        case "clock":
            raise AssertionError("a clock has a connector of its own")


def snapshot_ticks(spec: LoadGenerator) -> int:
    """Return the number of first ticks that are due at once, and not counted by UP TO."""
    match spec.generator:
        case "tpch":
            return tpch.slices(spec)
        case "key value":
            return spec.snapshot_rounds
        case _:
            return 0


def most_ticks(spec: LoadGenerator) -> int:
    """Return how many ticks after the snapshot may be one batch."""
    size = spec.batch_size if spec.generator == "key value" else 10
    return max(min(MOST_TICKS, 200_000 // size), 1)


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
        make = ticks_of(self._spec)
        for reference, part in self._parts.items():
            end = position.get(part, 0)
            while (begin := end) < until:
                end = self._end(begin, until)
                rows = make(begin, end)
                own = {reference: rows[reference]} if reference in rows else {}
                yield Batch(own, {part: end})

    def _end(self, begin: int, until: int) -> int:
        """Return where a batch ends that begins with a tick; one of a snapshot is a batch."""
        most = 1 if begin < snapshot_ticks(self._spec) else most_ticks(self._spec)
        return min(begin + most, until)

    async def _on_time(self, first: int) -> AsyncIterator[Batch]:
        """Yield the ticks from `first` on of all outputs."""
        spec, make, following = self._spec, ticks_of(self._spec), first
        eager = snapshot_ticks(spec)
        up_to = None if spec.up_to is None else spec.up_to + eager
        at_once = eager + spec.as_of if up_to is None else min(eager + spec.as_of, up_to)
        while following < at_once:
            until = self._end(following, at_once)
            rows = await asyncio.to_thread(make, following, until)
            following = until
            yield Batch(rows, dict.fromkeys((TICKS, *self._parts.values()), following))
        first = following
        interval = spec.tick_ms / 1000
        loop = asyncio.get_running_loop()
        began = loop.time()
        while up_to is None or following < up_to:
            due = first + 1 + int((loop.time() - began) / interval)
            until = self._end(following, due if up_to is None else min(due, up_to))
            if until > following:
                moved = dict.fromkeys((TICKS, *self._parts.values()), until)
                yield Batch(make(following, until), moved)
                following = until
            else:
                await asyncio.sleep(began + (following - first) * interval - loop.time())

    async def furthest(self) -> Position:
        """Return nothing: there is no external system."""
        return {}

    def committed(self, position: Position) -> None:
        """Do nothing: a generator has nothing to forget."""
