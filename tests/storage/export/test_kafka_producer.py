"""A producer asks how many partitions a topic has, until the brokers answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from foreshore.errors import DatabaseError, InsufficientPrivilege, UndefinedObject
from foreshore.storage.export.kafka import producer
from foreshore.storage.export.kafka.producer import TransactionalProducer
from foreshore.storage.external.access import Access

ACCESS = Access("kafka", {"broker": "127.0.0.1:1"})


class Brokers:
    """Gives the answers that it was given about topic t, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __len__(self) -> int:
        return 0

    def poll(self, seconds: float) -> None:
        assert seconds == 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return SimpleNamespace(topics={topic: answer})


def found(*answers: Any) -> int:
    asking = TransactionalProducer(ACCESS, "id")
    asking._producer = Brokers(*answers)
    asking.failures.reason = "connections that were idle are closed"
    return asking.partitions("t")


def topic(partitions: int, error: int | None = None) -> SimpleNamespace:
    told = None if error is None else KafkaError(error)
    return SimpleNamespace(partitions=range(partitions), error=told)


def test_brokers_that_are_slow_are_asked_again() -> None:
    slow = (KafkaError(KafkaError._TIMED_OUT), KafkaError(KafkaError._TRANSPORT))
    assert found(*slow, topic(3)) == 3


def test_topic_that_is_not_there_has_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UndefinedObject, match='topic "t": the topic does not exist'):
        found(topic(0, KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(InsufficientPrivilege, match="lacks a right"):
        found(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    monkeypatch.setattr(producer, "BEGIN_SECONDS", 0.0)
    with pytest.raises(DatabaseError, match="could not write to Kafka"):
        found(KafkaError(KafkaError._TIMED_OUT))
