"""What consumers read of a topic: committed messages only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

LONGEST_WAIT_SECONDS = 60.0


class Message(NamedTuple):
    """A message of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class TopicReader:
    """Reads the committed messages of all partitions of a topic, from the first on."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "a test",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        found = self._consumer.list_topics(topic, timeout=10).topics[topic]
        self._partitions = list(found.partitions)
        self._consumer.assign([TopicPartition(topic, each, 0) for each in self._partitions])
        self.messages: list[Message] = []

    def read(self) -> list[Message]:
        """Return all messages so far: each partition was read to its end once more, or nearly."""
        ended: set[int] = set()
        ends = time.monotonic() + 0.5
        while len(ended) < len(self._partitions) and time.monotonic() < ends:
            for each in self._consumer.consume(10_000, 0.1):
                if (error := each.error()) is None:
                    headers = tuple(each.headers() or ())
                    found = Message(
                        each.partition(), each.offset(), each.key(), each.value(), headers
                    )
                    self.messages.append(found)
                    ended.discard(each.partition())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(each.partition())
                else:
                    raise AssertionError(error)
        return self.messages

    def newest(self) -> dict[bytes | None, bytes]:
        """Return the newest value of each key, as a compacted topic has them."""
        found = {each.key: each.value for each in self.read()}
        return {key: value for key, value in found.items() if value is not None}

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


@contextmanager
def reading(address: str, topic: str) -> Iterator[TopicReader]:
    """Read a topic for the length of a block."""
    reader = TopicReader(address, topic)
    try:
        yield reader
    finally:
        reader.close()


def rows_of(newest: dict[bytes | None, bytes]) -> list[Any]:
    """Return JSON values, in an order of their own."""
    return sorted((json.loads(each) for each in newest.values()), key=str)
