"""A position goes beyond what is no message: marks of transactions, and those that were aborted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from foreshore.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState
from foreshore.sources.formats import TextFormat
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka_failures import Failures
from foreshore.storage.ingest.kafka.reader import TopicReader

ACCESS = Access("kafka", {"broker": "127.0.0.1:1"})
EOF = KafkaError._PARTITION_EOF


@dataclass
class Told:
    """A message, or an error of a partition."""

    at: int
    code: int | None = None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def __len__(self) -> int:
        return 1


@dataclass
class Client:
    """Gives what it was given, one list for each call."""

    told: list[list[Told]]
    failures: Failures = field(default_factory=lambda: Failures(ACCESS, "read from"))
    consumer: Any = field(init=False)

    def __post_init__(self) -> None:
        self.consumer = self

    def topic(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(partitions=(0, 1))

    def assign(self, at: list[TopicPartition]) -> None:
        assert [each.partition for each in at] == [0, 1]

    def consume(self, count: int, timeout: float) -> Sequence[Told]:
        return self.told.pop(0) if self.told else []

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return 3, 20

    def get_watermark_offsets(self, at: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 3, 20

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[TopicPartition]:
        found = {0: 7, 1: -1, 2: 1}  # that of partition 1 is later than its messages
        return [TopicPartition("t", each.partition, found[each.partition]) for each in asked]


def reading(*told: list[Told], **options: Any) -> TopicReader:
    """Return a reader at offset 5 whose clock advances by a second at each look."""
    times = iter(range(100))
    spec = KafkaSource("c", "t", Messages(TextFormat()), batch_ms=3000, **options)
    reader = TopicReader(spec, ACCESS, "g", clock=lambda: float(next(times)))
    reader._client.close()
    reader._client = Client(list(told))  # type: ignore[assignment]
    reader._offsets, reader._refresh_at = {0: 5}, 1e9
    return reader


def test_the_end_of_a_partition_is_beyond_its_last_message() -> None:
    reader = reading([Told(5), Told(6)], [Told(9, EOF)])
    messages, moved = reader.take()
    assert [each.offset() for each in messages] == [5, 6]
    assert moved == {"0": 9}
    assert reader.take() == ([], {})


def test_messages_after_an_end_move_further() -> None:
    _, moved = reading([Told(7, EOF)], [Told(7)]).take()
    assert moved == {"0": 8}
    assert reading([Told(5, EOF)]).take() == ([], {})


def starts(partitions: Sequence[int], *, is_later: bool = False, **options: Any) -> dict[int, int]:
    """Return where a reader begins."""
    return reading(**options)._starts(partitions, is_later=is_later)


def test_partitions_begin_at_a_time_or_offset() -> None:
    assert starts([0, 1]) == {0: 3, 1: 3}
    assert starts([0, 1, 2], start_timestamp=5) == {0: 7, 1: 20, 2: 3}
    assert starts([0, 1, 2], start_offsets=(0, 9)) == {0: 3, 1: 9, 2: 3}
    assert starts([0, 1, 2], start_offsets=(-4, -100, -1)) == {0: 16, 1: 3, 2: 19}
    with pytest.raises(ObjectNotInPrerequisiteState, match="ends before START OFFSET 21"):
        starts([0], start_offsets=(21,))


def test_partition_that_came_later_is_read_from_its_first_message() -> None:
    assert starts([1], is_later=True, start_offsets=(-4, -4)) == {1: 3}
    assert starts([1], is_later=True, start_offsets=(0, 9)) == {1: 9}
    assert reading(start_offsets=(-4, -4)).open({"0": 5}) == {"1": 3}


def test_errors_of_partitions_are_raised() -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match="has lost messages"):
        reading([Told(5), Told(5, KafkaError._AUTO_OFFSET_RESET)]).take()
    with pytest.raises(InsufficientPrivilege, match='topic "t": the user .* lacks a right'):
        reading([Told(5, KafkaError.TOPIC_AUTHORIZATION_FAILED)]).take()


def test_what_was_read_and_what_is_known_is_counted() -> None:
    reader = reading([Told(5), Told(6)])
    reader.take()
    assert reader.messages == 2
    assert reader.known == {"0": 20}
