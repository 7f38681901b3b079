"""What reads a topic for one relation.

The client blocks, so it has a thread, which also decodes. Meanwhile threads of the client's library
fetch what follows.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.kafka.layout import Layout
from foreshore.storage.ingest.kafka.reader import TopicReader
from foreshore.storage.ingest.kafka.rows import RowMaker
from foreshore.storage.ingest.messages import OutputRelation

T = TypeVar("T")


class Feeding:
    """Reads a topic for the relation of an output, which has a format or its source has."""

    def __init__(
        self, spec: KafkaSource, reference: str, output: OutputRelation, accesses: Accesses
    ) -> None:
        messages = output.messages or spec.messages
        assert messages is not None, reference
        self._spec, self.reference, self._output = spec, reference, output
        self._access = accesses[spec.connection]
        self._maker = RowMaker(messages, reference, output, accesses)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka")
        self._reader: TopicReader | None = None

    async def load(self, durable: Durable) -> None:
        """Take the rows of keys as they are."""
        if self._maker.present is not None:
            async for rows in durable.contents(self.reference):
                await self._on_thread(lambda rows=rows: self._maker.load(rows))  # type: ignore[misc]

    async def open(self, position: Position) -> Position:
        """Go to a position; return where parts begin that it does not have."""
        return await self._on_thread(lambda: self._open(position))

    def _open(self, position: Position) -> Position:
        group = f"{self._spec.group_prefix}foreshore-{self._output.id}"
        table = "" if self.reference == OWN_ROWS else str(self._output.id)
        layout = msgspec.json.decode(self._output.details, type=Layout)
        self._reader = TopicReader(self._spec, self._access, group, table, layout.topic_id)
        return self._reader.open(position)

    async def batch(self) -> Batch:
        """Return what came in a batch's time, which may be nothing."""
        return await self._on_thread(lambda: self._maker.batch(*self._there.take()))

    async def furthest(self) -> Position:
        """Return the ends of the partitions; raises DatabaseError if it cannot."""
        return await self._on_thread(lambda: self._there.furthest())

    @property
    def messages(self) -> int:
        """Return how many messages were read since it was opened."""
        return 0 if self._reader is None else self._reader.messages

    @property
    def known(self) -> Position:
        """Return the ends of the partitions, as far as they are known without asking."""
        return {} if self._reader is None else self._reader.known

    def committed(self, position: Position) -> None:
        """Note what is durable; does not block."""
        self._there.committed(position)

    def close(self) -> None:
        """Leave the brokers, when what the thread does has ended; does not wait for it."""

        def leave() -> None:
            if self._reader is not None:
                self._reader.close()

        self._thread.submit(leave)
        self._thread.shutdown(wait=False)

    @property
    def _there(self) -> TopicReader:
        assert self._reader is not None, "it is not open"
        return self._reader

    async def _on_thread(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)
