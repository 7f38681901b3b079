"""Writes the changes of an interval to a topic, with the frontier, in one transaction.

The producer has an id of its sink's own. One that resumes shuts out all earlier ones, and their
unfinished transactions are aborted. So the progress topic has the frontier of what is committed.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.storage.export.kafka import progress
from foreshore.storage.export.kafka.layout import laid_out, target_of
from foreshore.storage.export.kafka.messages import (
    Layout,
    Messages,
    messages_of_changes,
    messages_of_contents,
)
from foreshore.storage.export.kafka.producer import TransactionalProducer
from foreshore.storage.export.kafka.sorted_messages import SortedMessages
from foreshore.storage.export.kafka.topics import Topics
from foreshore.storage.export.messages import Export
from foreshore.storage.external.access import Access
from foreshore.update import Timestamp

GATHERED_BYTES = 64 << 20  # of an interval, which are put in order in memory

ToMessages: TypeAlias = Callable[[Layout, pa.Table], Iterator[Messages]]


class KafkaExporter:
    """Writes to one topic; the state of one producer."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._target = target_of(export)
        self._access = access_of(export)
        self._layout: Layout | None = None
        self._producer: TransactionalProducer | None = None
        self._frontier: Timestamp | None = None
        self._partitions = 1  # of the topic

    async def resume(self) -> Timestamp | None:
        """Shut out earlier producers, and return the frontier that was committed last."""
        self._layout = await laid_out(self._export)
        self._partitions = await asyncio.to_thread(self._require_topics)
        self._producer = await asyncio.to_thread(producer_of, self._export)
        self._frontier = await asyncio.to_thread(self._begin, self._producer)
        return self._frontier

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval and its end in one transaction."""
        producer = self._producer
        assert producer is not None, "resume comes first"
        if self._frontier not in (None, lower):
            raise ObjectNotInPrerequisiteState(
                f"the topic has changes before {self._frontier}, not before {lower}"
            )
        if self._export.hash is not None:  # there may be more than before
            self._partitions = await asyncio.to_thread(producer.partitions, self._target.topic)
        await asyncio.to_thread(producer.begin)
        spec = self._export.spec
        if self._frontier is None and (spec.key_known or not spec.key):
            async for part in parts:  # the contents: all are new, at one time
                await asyncio.to_thread(self._produce, producer, messages_of_contents, part)
        else:
            await self._write_in_order(producer, parts)
        await asyncio.to_thread(self._commit, producer, upper)
        self._frontier = upper

    async def _write_in_order(
        self, producer: TransactionalProducer, parts: AsyncIterator[pa.Table]
    ) -> None:
        """Write the messages of all updates, of which many wait in a file."""
        layout, gathered, size = self._layout, list[pa.Table](), 0
        assert layout is not None, "resume comes first"
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            ordered: SortedMessages | None = None
            async for part in parts:
                gathered.append(part)
                size += part.nbytes
                if size > GATHERED_BYTES:
                    ordered = ordered or SortedMessages(layout, Path(scratch))
                    for each in gathered:
                        await asyncio.to_thread(ordered.add, each)
                    gathered = []
            if ordered is not None:
                await asyncio.to_thread(self._send, producer, ordered.messages())
            elif gathered:
                updates = pa.concat_tables(gathered)
                await asyncio.to_thread(self._produce, producer, messages_of_changes, updates)

    async def close(self) -> None:
        """Abort what is not committed."""
        if (producer := self._producer) is None:
            return
        producer.end_soon()
        await asyncio.to_thread(producer.close)

    # --- on threads ----------------------------------------------------------------------------

    def _require_topics(self) -> int:
        """Return how many partitions the topic has; raises UndefinedObject if there is none."""
        topics = Topics(self._access)
        topics.require(progress.topic_of(self._access))
        return topics.require(self._target.topic)

    def _begin(self, producer: TransactionalProducer) -> Timestamp | None:
        producer.begin_after_others()
        name = self._export.name
        return progress.frontier_of(self._access, f"{self._target.group_prefix}{name}", name)

    def _produce(
        self, producer: TransactionalProducer, to_messages: ToMessages, table: pa.Table
    ) -> None:
        assert self._layout is not None, "resume comes first"
        self._send(producer, to_messages(self._layout, table))

    def _send(self, producer: TransactionalProducer, found: Iterator[Messages]) -> None:
        for messages in found:
            producer.write(self._target.topic, messages, self._partitions)

    def _commit(self, producer: TransactionalProducer, upper: Timestamp) -> None:
        name = self._export.name
        producer.write_to(
            progress.topic_of(self._access),
            progress.PARTITION,
            name.encode(),
            progress.written(name, upper),
        )
        producer.commit()


def producer_of(export: Export) -> TransactionalProducer:
    """Return a producer with the id of a sink."""
    target = target_of(export)
    id = f"{target.transaction_prefix}{export.name}"
    return TransactionalProducer(access_of(export), id, target.compression)


def access_of(export: Export) -> Access:
    """Return how to reach the brokers."""
    return export.accesses[target_of(export).connection]
