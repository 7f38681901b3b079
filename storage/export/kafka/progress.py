"""The progress topic: how far each sink has come, in the transactions of its messages.

A message has the sink's name as key, and the frontier in a JSON object. All are in one partition of
a compacted topic, which several sinks may share.
"""

import time

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from foreshore.connection_spec import PROGRESS_TOPIC
from foreshore.errors import ConnectionFailure
from foreshore.storage.export.kafka.producer import SLICE_SECONDS
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import ANSWER_SECONDS, configuration
from foreshore.storage.external.kafka_failures import Failures
from foreshore.update import Timestamp

PARTITION = 0
SETTINGS = {"cleanup.policy": "compact"}
READ_SECONDS = 60.0  # for unfinished transactions of other sinks, too


class Progress(msgspec.Struct, frozen=True):
    """What the topic has of a sink: all messages of changes before `frontier` are written."""

    sink: str
    frontier: Timestamp


def topic_of(access: Access) -> str:
    """Return the progress topic of a connection."""
    return access.options.get("progress topic", PROGRESS_TOPIC)


def replicas_of(access: Access) -> int | None:
    """Return how many replicas the progress topic is made with, if the connection says so."""
    found = access.options.get("progress topic replication factor")
    return None if found is None else int(found)


def written(sink: str, frontier: Timestamp) -> bytes:
    """Return the message that says how far a sink has come."""
    return msgspec.json.encode(Progress(sink, frontier))


def frontier_of(access: Access, group: str, sink: str) -> Timestamp | None:
    """Return the last frontier that a sink has committed; None if there is none. It blocks.

    A producer must have shut out all earlier ones of the sink before. Raises DatabaseError.
    """
    topic, failures = topic_of(access), Failures(access)
    base = configuration(access, failures) | {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        "error_cb": failures.told,
    }
    try:
        end = _end(base, topic)
        return _read_to(Consumer(base | _READ), TopicPartition(topic, PARTITION, 0), end, sink)
    except KafkaException as error:
        raise failures.error(error.args[0]) from error


_READ = {"isolation.level": "read_committed", "enable.partition.eof": True}


def _end(base: dict[str, object], topic: str) -> int:
    """Return the offset after all messages, those of unfinished transactions among them."""
    consumer = Consumer(base | {"isolation.level": "read_uncommitted"})
    try:
        _, end = consumer.get_watermark_offsets(
            TopicPartition(topic, PARTITION), timeout=ANSWER_SECONDS
        )
    finally:
        consumer.close()
    return int(end)


def _read_to(consumer: Consumer, start: TopicPartition, end: int, sink: str) -> Timestamp | None:
    """Return the frontier of a sink in the committed messages before `end`."""
    key, found = sink.encode(), None
    ends = time.monotonic() + READ_SECONDS
    try:
        consumer.assign([start])
        reached = 0
        while reached < end:
            for message in consumer.consume(10_000, SLICE_SECONDS):
                if (error := message.error()) is None:
                    reached = message.offset() + 1
                    if message.key() == key:
                        found = message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = message.offset()
                else:
                    raise KafkaException(error)
            if reached < end and time.monotonic() > ends:
                raise ConnectionFailure(
                    f'the end of topic "{start.topic}" cannot be read',
                    hint="Has another sink an unfinished transaction?",
                )
    finally:
        consumer.close()
    return None if found is None else msgspec.json.decode(found, type=Progress).frontier
