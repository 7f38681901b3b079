"""The connector of Kafka: what comes within some milliseconds is a batch, over all partitions.

The client blocks, so it has a thread, which also decodes. Meanwhile threads of the client's library
fetch what follows.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from foreshore.errors import ConnectionFailure
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import REACHED, Batch, Durable, Position
from foreshore.storage.ingest.kafka.reader import TopicReader
from foreshore.storage.ingest.kafka.rows import RowMaker
from foreshore.storage.ingest.messages import OutputRelation

T = TypeVar("T")
START_SECONDS = 10.0  # for which a question about the ends waits for the reader


class KafkaConnector:
    """Reads a topic."""

    def __init__(self, spec: KafkaSource, output: OutputRelation, accesses: Accesses) -> None:
        self._spec, self._output, self._accesses = spec, output, accesses
        self._reader: TopicReader | None = None
        self._thread: ThreadPoolExecutor | None = None  # that of the reader

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield what follows the position, for ever."""
        spec, access = self._spec, self._accesses[self._spec.connection]
        group = f"{spec.group_prefix}foreshore-{self._output.id}"
        thread = ThreadPoolExecutor(1, thread_name_prefix="kafka")

        async def on_thread(do: Callable[[], T]) -> T:
            return await asyncio.get_running_loop().run_in_executor(thread, do)

        maker = RowMaker(spec, self._output, self._accesses)
        reader = await on_thread(lambda: TopicReader(spec, access, group))
        try:
            if maker.present is not None:
                async for rows in durable.contents(OWN_ROWS):
                    await on_thread(lambda rows=rows: maker.load(rows))  # type: ignore[misc]
            began = await on_thread(lambda: reader.open(durable.position))
            self._reader, self._thread = reader, thread
            yield Batch({}, began) if began else REACHED
            while True:
                batch = await on_thread(lambda: maker.batch(*reader.take()))
                if batch.moved:
                    yield batch
        finally:
            self._reader = None
            thread.submit(reader.close)
            thread.shutdown(wait=False)

    async def furthest(self) -> Position:
        """Return the ends of the partitions; raises DatabaseError if it cannot."""
        ends = asyncio.get_running_loop().time() + START_SECONDS
        while self._reader is None or self._thread is None:
            if asyncio.get_running_loop().time() > ends:
                raise ConnectionFailure("the topic is not read at present")
            await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._reader.furthest)

    def committed(self, position: Position) -> None:
        """Let the consumer group know, for who monitors it."""
        if self._reader is not None:
            self._reader.committed(position)
