"""The connector of Kafka: what comes within some milliseconds is a batch, over all partitions.

The rows of a source and each of its tables are read by themselves, each from a position of its own:
so a new table is filled while the others go on.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

from foreshore.errors import ConnectionFailure
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import (
    REACHED,
    Batch,
    Durable,
    OutputReport,
    Position,
    Report,
)
from foreshore.storage.ingest.kafka.feeding import Feeding
from foreshore.storage.ingest.messages import OutputRelation

START_SECONDS = 10.0  # for which a question about the ends waits for the readers


class KafkaConnector:
    """Reads a topic for some relations."""

    def __init__(
        self, spec: KafkaSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> None:
        self._spec, self._accesses = spec, accesses
        self._outputs = {
            reference: each
            for reference, each in outputs.items()
            if each.messages is not None or (reference == OWN_ROWS and spec.messages is not None)
        }
        self._running: list[Feeding] | None = None
        self._before: dict[str, int] = {}  # messages that were read before those began

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield what follows the position, for ever."""
        feedings: list[Feeding] = []
        try:
            for reference, output in self._outputs.items():
                feedings.append(Feeding(self._spec, reference, output, self._accesses))
                await feedings[-1].load(durable)
            began: dict[str, int] = {}
            for each in feedings:
                began |= await each.open(durable.position)
            self._running = feedings
            yield Batch({}, began) if began else REACHED
            async for batch in _merged(feedings):
                yield batch
        finally:
            self._running, self._before = None, self._counted(feedings)
            for each in feedings:
                each.close()

    async def furthest(self) -> Position:
        """Return the ends of the partitions; raises DatabaseError if it cannot."""
        ends = asyncio.get_running_loop().time() + START_SECONDS
        while self._running is None:
            if asyncio.get_running_loop().time() > ends:
                raise ConnectionFailure("the topic is not read at present")
            await asyncio.sleep(0.05)
        found: dict[str, int] = {}
        for each in self._running:
            found |= await each.furthest()
        return found

    def report(self) -> Report:
        """Return how many messages were read, and the ends of the topic that are known."""
        running = self._running or []
        known: dict[str, int] = {}
        for each in running:
            known |= each.known
        counts = self._counted(running)
        return Report({reference: OutputReport(n) for reference, n in counts.items()}, known)

    def _counted(self, feedings: list[Feeding]) -> dict[str, int]:
        """Return the numbers of messages by outputs, with those of feedings before."""
        more = {each.reference: each.messages for each in feedings}
        return {r: self._before.get(r, 0) + more.get(r, 0) for r in self._outputs}

    def committed(self, position: Position) -> None:
        """Let the consumer groups know, for who monitors them."""
        for each in self._running or ():
            each.committed(position)


async def _merged(feedings: list[Feeding]) -> AsyncIterator[Batch]:
    """Yield the batches of all, each when it is there; for ever, even if there are none."""
    if not feedings:
        await asyncio.Event().wait()
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(each.batch()): each for each in feedings}
    try:
        while True:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                feeding = tasks.pop(task)
                batch = task.result()
                tasks[loop.create_task(feeding.batch())] = feeding
                if batch.moved:
                    yield batch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
